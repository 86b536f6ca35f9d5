//! `gpushare pick`: the least busy device, held for a moment so that two picks at once differ.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use shm_layout::{SegmentDir, Segments, Uuid, clock};

use super::table::{Side, Table};
use super::{Done, note, world};
use crate::exit::{Exit, Failure};
use crate::sample::{DeviceSample, SCHEMA_VERSION, Sample};
use crate::units::{self, human_size, short_size};
use crate::{environment, targets, uuids};

/// Print the UUID of the least busy device and hold a short claim on it
///
/// For CUDA_VISIBLE_DEVICES=$(gpushare pick). MIG instances count as devices. Only devices listed in
/// /usr/local/share/gpus/ids (or the file GPUSHARE_ALLOWED_GPUS names) are chosen, if that file exists.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// This device, by number or UUID, instead of the least busy one
    #[arg(value_name = "N")]
    gpu: Option<String>,
    /// Only a device with this much memory free
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Show how busy each device is and why one was chosen
    #[arg(long)]
    explain: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Long enough for a program to reach its first allocation, short enough not to matter if it never does.
const CLAIM: Duration = Duration::from_secs(10);
const ALLOWED: &str = "/usr/local/share/gpus/ids";

/// What one claim, one waiter, full utilisation and full memory are worth against each other.
const CLAIM_WORTH: f64 = 0.5;
const QUEUE_WORTH: f64 = 0.25;
const UTILISATION_WORTH: f64 = 1.0;
const MEMORY_WORTH: f64 = 1.0;

#[derive(Debug, Serialize)]
struct Candidate {
    gpu: usize,
    uuid: String,
    name: String,
    free_bytes: u64,
    total_bytes: u64,
    utilisation_percent: Option<u32>,
    queue: usize,
    claims: u32,
    busy: f64,
    /// Why it was not considered.
    excluded: Option<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    uuid: &'a str,
    gpu: usize,
    claimed: bool,
    devices: &'a [Candidate],
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let wanted = args
        .memory
        .as_deref()
        .map(units::parse_size)
        .transpose()
        .map_err(|error| Failure::usage(format!("--memory: {error}")))?;
    let dir = world::dir_or_new()?;
    // From the look to the claim nobody else may look, or two picks choose the same device.
    let _turn = take_turn(&dir.path);
    let sample = world::look(&dir)?;
    if sample.devices.is_empty() {
        return Err(Failure::no_such_target(
            "there is no GPU here: NVML shows none and no program has used one; gpushare doctor says why",
        ));
    }
    let named = args
        .gpu
        .as_deref()
        .map(|gpu| targets::device(gpu, &sample))
        .transpose()?;
    let allowed = allowed()?;
    let candidates: Vec<Candidate> = sample
        .devices
        .iter()
        .enumerate()
        .map(|(gpu, device)| candidate(gpu, device, &sample, wanted, allowed.as_deref()))
        .collect();
    let chosen = choose(&candidates, named, wanted)?;
    let claimed = claim(&dir, &sample.devices[chosen]);
    write(args, &candidates, chosen, claimed, out)?;
    Ok(Exit::Done)
}

fn candidate(
    gpu: usize,
    device: &DeviceSample,
    sample: &Sample,
    wanted: Option<u64>,
    allowed: Option<&[Uuid]>,
) -> Candidate {
    let ledger: u64 = sample
        .processes
        .iter()
        .filter_map(|process| process.on(gpu))
        .map(|held| held.used_bytes)
        .sum();
    // NVML knows of processes without gpushare, the ledger of memory promised but not yet touched.
    let used = device.used_bytes.unwrap_or(0).max(ledger);
    let free_bytes = device.total_bytes.saturating_sub(used);
    let queue = device.waiters.len() + usize::from(device.owner.is_some());
    let fraction = used as f64 / device.total_bytes.max(1) as f64;
    let utilisation = f64::from(device.util_percent.unwrap_or(0)) / 100.0;
    let busy = f64::from(device.picks) * CLAIM_WORTH
        + queue as f64 * QUEUE_WORTH
        + utilisation * UTILISATION_WORTH
        + fraction.min(1.0) * MEMORY_WORTH;
    let uuid = uuids::parse(&device.uuid);
    let excluded = match (allowed, uuid, wanted) {
        (Some(allowed), Some(uuid), _) if !allowed.contains(&uuid) => {
            Some("not in the list of allowed devices".into())
        }
        (_, _, Some(wanted)) if free_bytes < wanted => {
            Some(format!("only {} free", human_size(free_bytes)))
        }
        _ => None,
    };
    Candidate {
        gpu,
        uuid: device.uuid.clone(),
        name: device.name.clone(),
        free_bytes,
        total_bytes: device.total_bytes,
        utilisation_percent: device.util_percent,
        queue,
        claims: device.picks,
        busy: (busy * 1000.0).round() / 1000.0,
        excluded,
    }
}

fn choose(
    candidates: &[Candidate],
    named: Option<usize>,
    wanted: Option<u64>,
) -> Result<usize, Failure> {
    if let Some(gpu) = named {
        return match candidates
            .get(gpu)
            .and_then(|candidate| candidate.excluded.as_ref())
        {
            Some(why) => Err(Failure::failed(format!("gpu{gpu} cannot be picked: {why}"))),
            None => Ok(gpu),
        };
    }
    let free = candidates
        .iter()
        .filter(|candidate| candidate.excluded.is_none());
    // The most free memory decides between equals, then the lowest number.
    let best = free.min_by(|a, b| {
        a.busy
            .total_cmp(&b.busy)
            .then(b.free_bytes.cmp(&a.free_bytes))
    });
    best.map(|best| best.gpu).ok_or_else(|| match wanted {
        Some(wanted) => Failure::failed(format!(
            "no GPU has {} free; wait, ask for less, or lower a quota (gpushare pick --explain shows each)",
            human_size(wanted)
        )),
        None => Failure::failed(format!(
            "no GPU may be picked: {} lists none of those here; correct the list or set {}",
            allowed_path().display(),
            environment::ALLOWED_GPUS
        )),
    })
}

fn allowed_path() -> std::path::PathBuf {
    std::env::var_os(environment::ALLOWED_GPUS).map_or_else(|| ALLOWED.into(), Into::into)
}

/// The devices that may be chosen; `None` when there is no list.
fn allowed() -> Result<Option<Vec<Uuid>>, Failure> {
    let path = allowed_path();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::failed(format!(
                "the list of allowed GPUs {} cannot be read: {error}",
                path.display()
            )));
        }
    };
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty());
    let read = |line: &str| {
        uuids::parse(line).ok_or_else(|| {
            Failure::usage(format!(
                "{}: {line:?} is no UUID; write one a line, as nvidia-smi -L shows",
                path.display()
            ))
        })
    };
    lines.map(read).collect::<Result<Vec<_>, _>>().map(Some)
}

/// Waits for other picks to end; without rights to the directory there is no turn to take.
fn take_turn(dir: &Path) -> Option<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("pick.lock"))
        .ok()?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).ok()?;
    Some(file)
}

fn claim(dir: &SegmentDir, device: &DeviceSample) -> bool {
    let Some(uuid) = uuids::parse(&device.uuid) else {
        return false;
    };
    let now = clock::now();
    let until = now.saturating_add(u64::try_from(CLAIM.as_nanos()).unwrap_or(0));
    match Segments::open_operator(&dir.path) {
        Ok(operator) => operator.claim_pick(uuid, &device.name, device.total_bytes, until, now),
        Err(_) => false,
    }
}

fn write(
    args: &Args,
    candidates: &[Candidate],
    chosen: usize,
    claimed: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let uuid = &candidates[chosen].uuid;
    if args.json {
        let document = Document {
            schema_version: SCHEMA_VERSION,
            uuid,
            gpu: chosen,
            claimed,
            devices: candidates,
        };
        serde_json::to_writer_pretty(&mut *out, &document)?;
        writeln!(out)?;
        return Ok(());
    }
    if args.explain {
        explain(candidates, chosen).write(&mut std::io::stderr())?;
        if !claimed {
            note("no claim could be held on it, so a pick at the same moment may choose it too");
        }
    }
    writeln!(out, "{uuid}")?;
    Ok(())
}

fn explain(candidates: &[Candidate], chosen: usize) -> Table {
    let mut table = Table::new(&[
        ("", Side::Left),
        ("GPU", Side::Right),
        ("FREE", Side::Right),
        ("OF", Side::Right),
        ("UTIL", Side::Right),
        ("QUEUE", Side::Right),
        ("CLAIMS", Side::Right),
        ("BUSY", Side::Right),
        ("", Side::Left),
    ]);
    for candidate in candidates {
        table.row([
            if candidate.gpu == chosen {
                "*".into()
            } else {
                String::new()
            },
            candidate.gpu.to_string(),
            short_size(candidate.free_bytes),
            short_size(candidate.total_bytes),
            candidate
                .utilisation_percent
                .map_or_else(|| "-".into(), |percent| format!("{percent}%")),
            candidate.queue.to_string(),
            candidate.claims.to_string(),
            format!("{:.3}", candidate.busy),
            candidate
                .excluded
                .clone()
                .unwrap_or_else(|| candidate.name.clone()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(last: u8, picks: u32, used: u64, util: u32) -> DeviceSample {
        DeviceSample {
            uuid: uuids::format([last; 16], false),
            total_bytes: 16 << 30,
            used_bytes: Some(used),
            util_percent: Some(util),
            picks,
            ..DeviceSample::default()
        }
    }

    fn pick(
        devices: Vec<DeviceSample>,
        wanted: Option<u64>,
        allowed: Option<&[Uuid]>,
    ) -> Result<usize, Failure> {
        let sample = Sample {
            devices,
            ..Sample::default()
        };
        let candidates: Vec<Candidate> = sample
            .devices
            .iter()
            .enumerate()
            .map(|(gpu, device)| candidate(gpu, device, &sample, wanted, allowed))
            .collect();
        choose(&candidates, None, wanted)
    }

    #[test]
    fn the_idle_device_is_chosen_and_a_claim_turns_the_next_pick_away() {
        assert_eq!(
            pick(
                vec![device(0, 0, 8 << 30, 90), device(1, 0, 0, 0)],
                None,
                None
            ),
            Ok(1)
        );
        assert_eq!(
            pick(vec![device(0, 1, 0, 0), device(1, 0, 0, 0)], None, None),
            Ok(1)
        );
        assert_eq!(
            pick(vec![device(0, 0, 0, 0), device(1, 0, 0, 0)], None, None),
            Ok(0)
        );
    }

    #[test]
    fn a_device_without_the_memory_or_not_in_the_list_is_left_out() {
        let devices = || vec![device(0, 0, 12 << 30, 0), device(1, 3, 0, 50)];
        assert_eq!(pick(devices(), Some(8 << 30), None), Ok(1));
        assert!(pick(devices(), Some(17 << 30), None).is_err());
        assert_eq!(pick(devices(), None, Some(&[[0; 16]])), Ok(0));
        assert!(pick(devices(), None, Some(&[[7; 16]])).is_err());
    }
}
