//! `gpushare slurm`: the hooks that Slurm calls at the start and the end of a job, and their installation.

use std::io::Write;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use shm_layout::{QuotaValue, SegmentDir, Segments, clock, snapshot};

use crate::{Done, note};
use gpushare_base::host::programs::OWN;
use gpushare_base::text::exit::{Exit, Failure};

mod check;
mod epilog;
mod install;
mod task_prolog;

/// Limit the jobs of Slurm to their part of a GPU: --gres=shard:N and --gpu-mem=8G
///
/// All processes of a job are one group, slurm-JOBID. Its memory is what the job's shards are worth, or less with
/// --gpu-mem, and no other job takes what --gpu-reserve says of it; its members have the weight 10 for each shard, and the job's
/// name. Jobs with whole GPUs are shown and not limited. Jobs without a GPU are left alone, unless they have --gpu-mem, which then
/// limits each of their processes. Slurm calls the two hooks below, by a
/// SPANK plugin (which also adds the two options to srun, sbatch and salloc) or as TaskProlog and Epilog. They always exit with 0, so that no node is drained because of them, and say on
/// standard error what they could not do.
#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub enum Verb {
    Install(install::Args),
    Check(check::Args),
    TaskProlog(task_prolog::Args),
    Epilog(epilog::Args),
}

pub fn run(verb: &Verb, out: &mut dyn Write) -> Done {
    match verb {
        Verb::Install(args) => install::run(args, out),
        Verb::Check(args) => check::run(args, out),
        Verb::TaskProlog(args) => task_prolog::run(args, out),
        Verb::Epilog(_) => always(epilog::run()),
    }
}

/// Returns success in every case and prints a failure, because Slurm drains a node whose hook fails.
fn always(done: Done) -> Done {
    if let Err(failure) = done {
        note(&failure.sentence);
    }
    Ok(Exit::Done)
}

/// The job of Slurm's environment.
struct Job {
    group: String,
    /// Uid and gid of the job's user.
    user: Option<(u32, u32)>,
}

impl Job {
    fn of_environment() -> Result<Self, Failure> {
        let job = std::env::var("SLURM_JOB_ID").unwrap_or_default();
        let group = gpushare_launch::slurm::group(&job).ok_or_else(|| {
            Failure::failed(
                "SLURM_JOB_ID is not set to a job's number; Slurm calls this, nobody else",
            )
        })?;
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        let user = number("SLURM_JOB_UID").map(|uid| (uid, number("SLURM_JOB_GID").unwrap_or(uid)));
        Ok(Self { group, user })
    }

    /// Runs this command as the job's user if the segments are the user's own, and returns true. Root must not write them.
    fn left_to_user(&self, dir: &SegmentDir) -> Result<bool, Failure> {
        let root = rustix::process::geteuid().is_root();
        let user = self.user.filter(|(uid, _)| *uid != 0);
        let Some((uid, gid)) = user.filter(|_| root && !dir.is_brokered) else {
            return Ok(false);
        };
        let mut command = Command::new(OWN);
        command
            .args(std::env::args_os().skip(1))
            .uid(uid)
            .gid(gid)
            .current_dir("/");
        command.status()?;
        Ok(true)
    }
}

/// Returns the memory quota of a defined group.
fn defined(dir: &SegmentDir, name: &str) -> Option<QuotaValue> {
    let segments = Segments::open_viewer(&dir.path).ok()?;
    let groups = snapshot(&segments, clock::now()).groups;
    let mut groups = groups.into_iter();
    let group = groups.find(|group| group.name == name && group.defined)?;
    Some(group.memory)
}
