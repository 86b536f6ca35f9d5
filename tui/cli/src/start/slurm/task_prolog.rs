//! `gpushare slurm task-prolog`: sets the environment of a step's processes.

use std::io::Write;

use shm_layout::variables;

use super::{Job, defined};
use crate::{Done, segments};
use gpushare_base::host::artifacts;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_base::text::units::{Amount, parse_amount};
use gpushare_control::audit::Place;
use gpushare_control::{EditRequest, Installation as _, group};
use gpushare_launch::program::wrong_value;
use gpushare_launch::slurm::{Asked, Shard, grows};
use gpushare_observe::source::nvml::Watch;

/// Print the environment of a step's processes as export NAME=value, and make the job's group
///
/// Slurm's TaskProlog runs this as the job's user, before each task; the SPANK plugin as root, once for a step. Without a broker the
/// group is in the user's own segments. With one, only root makes it: under a TaskProlog alone each process then has the limit
/// by itself.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Memory of a shard: 1/8 of the GPU if it has 8 shards, or a size
    #[arg(long, value_name = "1/N|SIZE")]
    shard: Option<String>,
    /// Memory of each GPU that all processes of the job may use together [default: what GPUSHARE_GPU_MEM says]
    ///
    /// Never more than its shards are worth. In a job without shards and GPUs it limits each process.
    #[arg(long, value_name = "SIZE|%")]
    gpu_mem: Option<String>,
    /// Memory of each GPU that no process outside the job can take [default: what GPUSHARE_GPU_RESERVE says]
    ///
    /// Never more than the job may use, so it needs shards, or whole GPUs and --gpu-mem. Under a TaskProlog alone with a broker there is none.
    #[arg(long, value_name = "SIZE|%")]
    gpu_reserve: Option<String>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let mut said = Vec::new();
    let lines = prepare(args, &mut said).unwrap_or_else(|failure| {
        said.push(failure.sentence);
        Vec::new()
    });
    // Slurm prints the rest of such a line of a TaskProlog to the job's output.
    for sentence in said {
        writeln!(out, "print gpushare: {}", plain(&sentence))?;
    }
    for (name, value) in lines {
        writeln!(out, "export {name}={value}")?;
    }
    Ok(Exit::Done)
}

type Lines = Vec<(&'static str, String)>;

fn prepare(args: &Args, said: &mut Vec<String>) -> Result<Lines, Failure> {
    let get = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    let wished = |given: &Option<String>, variable| {
        let text = given.clone().or_else(|| get(variable));
        text.filter(|text| !text.is_empty())
    };
    let wish = wished(&args.gpu_mem, variables::GPU_MEM);
    let reserve = wished(&args.gpu_reserve, variables::GPU_RESERVE);
    let mut read =
        |what: &str, error| said.push(wrong_value(what, &error).sentence + "; it limits nothing");
    let shard = args.shard.as_deref().map(str::parse::<Shard>);
    let shard = shard.and_then(|shard| shard.map_err(|error| read("--shard", error)).ok());
    let wish = wish.as_deref().map(parse_amount);
    let wish = wish.and_then(|wish| wish.map_err(|error| read("--gpu-mem", error)).ok());
    let reserve = reserve.as_deref().map(parse_amount);
    let reserve = reserve.and_then(|wish| wish.map_err(|error| read("--gpu-reserve", error)).ok());
    let Some(asked) = Asked::of(&get, shard, wish, reserve, &smallest) else {
        return Ok(Vec::new());
    };
    if reserve.is_some() && asked.reserve.is_none() {
        said.push("--gpu-reserve needs shards, or whole GPUs and --gpu-mem, which say what the job may use; it reserves nothing".into());
    }
    let job = Job::of_environment()?;
    let dir = segments::dir()?;
    if job.left_to_user(&dir)? {
        return Ok(Vec::new());
    }
    let library = artifacts::library()
        .and_then(|library| artifacts::preload(library, Some(&dir.path)).map_err(Failure::failed));
    let library = library.map_err(|failure| {
        Failure::failed(format!("the job runs without limits: {}", failure.sentence))
    })?;
    let preload = artifacts::PRELOAD.prepend(&library);
    let mut lines = vec![("LD_PRELOAD", preload.to_string_lossy().into_owned())];
    // The directory is named explicitly, so that the library reports a broker that does not serve the user.
    if dir.is_brokered || get(variables::DIR).is_some() {
        lines.push((variables::DIR, dir.path.display().to_string()));
    }
    lines.extend(asked.name.clone().map(|name| (variables::NAME, name)));
    if !asked.limits() {
        let why = "Slurm gave the job neither shards nor GPUs";
        said.extend(asked.each.map(|each| limits_each(each, why)));
        lines.extend(asked.each.map(|each| (variables::MEMORY, each.to_string())));
        return Ok(lines);
    }
    lines.push((variables::GROUP, job.group.clone()));
    let each = match make(&job.group, &asked) {
        Ok(()) => {
            let why = "the size of the GPUs is unknown here; write it as the shards are, by a size or by a share";
            said.extend(asked.each.map(|each| limits_each(each, why)));
            asked.each
        }
        Err(failure) => {
            said.push(format!(
                "{}; each process is limited by itself",
                failure.sentence
            ));
            lines.extend(
                asked
                    .weight
                    .map(|weight| (variables::WEIGHT, weight.to_string())),
            );
            asked.each.or(asked.memory)
        }
    };
    lines.extend(each.map(|amount| (variables::MEMORY, amount.to_string())));
    Ok(lines)
}

fn limits_each(each: Amount, why: &str) -> String {
    format!("--gpu-mem {each} limits each process and not the job, because {why}")
}

/// Returns the bytes of the smallest GPU of this node, if NVML reports the size of each. The devices in the segments do not count:
/// any process can enter one that does not exist.
fn smallest() -> Option<u64> {
    let nvml = Watch::once(&segments::dir().ok()?.path);
    nvml.settle(segments::NVML);
    let devices = nvml.latest().devices;
    let sizes = devices.iter().map(|device| device.total_bytes);
    sizes.min().filter(|bytes| *bytes > 0)
}

/// Makes the job's group, or raises its memory for a step that needs more than those before it. An operator's changes are
/// kept, unless they are too low for such a step.
fn make(name: &str, asked: &Asked) -> Result<(), Failure> {
    let dir = segments::dir_or_new()?;
    let now = defined(&dir, name);
    if now.is_some_and(|memory| !grows(memory, asked.memory, &smallest)) {
        return Ok(());
    }
    if !dir.may_make_groups() {
        return Err(Failure::not_permitted(format!(
            "only root can make the group {name}, as gpushare's plugin for Slurm does"
        )));
    }
    let change = group::change(name, &asked.settings(), None)?;
    let request = EditRequest::new(change, format!("group {name}"), Place::Ctl)
        .because(Some("asked for by the Slurm job".into()));
    segments::editor(&dir).submit(request)?;
    Ok(())
}
