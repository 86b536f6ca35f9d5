//! `gpushare slurm epilog`: removes the group of a finished job.

use shm_layout::Change;

use super::{Job, defined};
use crate::{Done, segments};
use gpushare_base::text::exit::Exit;
use gpushare_control::EditRequest;
use gpushare_control::audit::Place;

/// Remove the group of a job that is over
///
/// Slurm's Epilog runs this as root, and the SPANK plugin does; it works as the job's user where no broker runs. A job that has no
/// group, or none any more, is fine.
#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run() -> Done {
    let job = Job::of_environment()?;
    let dir = segments::dir()?;
    if job.left_to_user(&dir)? || defined(&dir, &job.group).is_none() {
        return Ok(Exit::Done);
    }
    let change = Change::remove_group(job.group.clone());
    let request = EditRequest::new(change, format!("group {}", job.group), Place::Ctl)
        .because(Some("the Slurm job has ended".into()));
    segments::editor(&dir).submit(request)?;
    Ok(Exit::Done)
}
