//! Which device is the least busy: what counts, and how much against the rest.
//!
//! A device is the busier the more claims of other picks it has, the longer its queue for the lock,
//! the more it computes and the less memory is free. The worth of each is a constant below; the
//! weights are rough on purpose, for the numbers they weigh are of a moment.

use std::path::PathBuf;

use shm_layout::Uuid;
use shm_layout::text::PathText as _;

use crate::sample::keys::object;
use crate::sample::{DeviceSample, Nvml, Sample};
use crate::text::exit::Failure;
use crate::text::files;
use crate::text::units::human_size;
use crate::text::uuids;
use shm_layout::variables;

const ALLOWED: &str = "/usr/local/share/gpus/ids";

/// What one claim, one waiter, full utilisation and full memory are worth against each other.
const CLAIM_WORTH: f64 = 0.5;
const QUEUE_WORTH: f64 = 0.25;
const UTILISATION_WORTH: f64 = 1.0;
const MEMORY_WORTH: f64 = 1.0;

object! {
    /// A device and how busy it is.
    pub Candidate {
        gpu: usize, "The device's number, as --gpu takes it.";
        uuid: String, "Its UUID.";
        name: String, "The product name.";
        free_bytes: u64, "Memory that no process holds or was promised.";
        total_bytes: u64, "Memory it has.";
        utilisation_percent: Option<u32>, "Share of time with a kernel running; null where NVML does not say.";
        queue: usize, "How many processes hold or wait for its lock.";
        claims: u32, "Other picks that have just chosen it.";
        mps: bool, "MPS runs kernels of several processes on it at once.";
        busy: f64, "All of that in one number; 0 is idle.";
        excluded: Option<String>, "Why it may not be picked; null if it may.";
    }
}

/// Every device of the sample, with those excluded that have less than `wanted` bytes free or are
/// not in the list of `allowed` ones.
pub fn candidates(
    sample: &Sample,
    wanted: Option<u64>,
    allowed: Option<&[Uuid]>,
) -> Vec<Candidate> {
    let devices = sample.devices.iter().enumerate();
    devices
        .map(|(gpu, device)| candidate(gpu, device, sample, wanted, allowed))
        .collect()
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
        .map(|held| held.used)
        .sum();
    // NVML knows of processes without gpushare, the ledger of memory promised but not yet touched.
    let used = device.used_bytes.unwrap_or(0).max(ledger);
    let free_bytes = device.total_bytes.saturating_sub(used);
    let queue = device.waiters.len() + usize::from(device.owner.is_some());
    let fraction = used as f64 / device.total_bytes.max(1) as f64;
    let utilisation = f64::from(device.nvml.util_percent.unwrap_or(0)) / 100.0;
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
        utilisation_percent: device.nvml.util_percent,
        queue,
        claims: device.picks,
        mps: sample.is_mps(gpu),
        busy: (busy * 1000.0).round() / 1000.0,
        excluded,
    }
}

/// The device named, or else the least busy one, if it may be chosen.
pub fn choose(
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
            "no GPU may be picked: {} lists none of the GPUs here; correct the list or set {}",
            allowed_path().shown(),
            variables::ALLOWED_GPUS
        )),
    })
}

/// The most devices that a program sees where `CUDA_VISIBLE_DEVICES` holds `list`, if NVML tells; none where it sees
/// no device at all, for then no limit is lost.
pub fn visible(sample: &Sample, list: Option<&str>) -> Option<usize> {
    let all = sample.devices.len();
    if !matches!(sample.nvml, Nvml::Ready(_)) || all == 0 {
        return None;
    }
    let Some(list) = list else {
        return Some(all);
    };
    // CUDA takes the list up to the first entry that names no device. Which UUIDs there are is CUDA's to say.
    let is_device = |entry: &&str| match entry.trim().parse::<usize>() {
        Ok(ordinal) => ordinal < all,
        Err(_) => entry.trim().starts_with(['G', 'M']),
    };
    let count = list.split(',').take_while(is_device).count();
    (count > 0).then_some(count)
}

fn allowed_path() -> PathBuf {
    std::env::var_os(variables::ALLOWED_GPUS).map_or_else(|| ALLOWED.into(), Into::into)
}

/// The devices that may be chosen; `None` when there is no list.
pub fn allowed() -> Result<Option<Vec<Uuid>>, Failure> {
    let path = allowed_path();
    let text = match files::read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::failed(format!(
                "the list of allowed GPUs {} cannot be read: {error}",
                path.shown()
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
                "{}: {line:?} is not a UUID; write one per line, as nvidia-smi -L shows",
                path.shown()
            ))
        })
    };
    lines.map(read).collect::<Result<Vec<_>, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(last: u8, picks: u32, used: u64, util: u32) -> DeviceSample {
        let mut device = DeviceSample {
            uuid: uuids::format([last; 16], false),
            used_bytes: Some(used),
            ..DeviceSample::default()
        };
        device.total_bytes = 16 << 30;
        device.nvml.util_percent = Some(util);
        device.picks = picks;
        device
    }

    fn pick(
        devices: Vec<DeviceSample>,
        wanted: Option<u64>,
        allowed: Option<&[Uuid]>,
    ) -> Result<usize, Failure> {
        let mut sample = Sample::default();
        sample.snapshot.devices = devices;
        let candidates = candidates(&sample, wanted, allowed);
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
    fn a_program_sees_the_devices_up_to_the_first_entry_that_names_none() {
        let sample = |nvml| {
            let mut sample = Sample {
                nvml,
                ..Sample::default()
            };
            sample.devices = vec![device(0, 0, 0, 0), device(1, 0, 0, 0)];
            sample
        };
        for (list, count) in [
            (None, Some(2)),
            (Some("1"), Some(1)),
            (Some("1, 0"), Some(2)),
            (Some("0,5,1"), Some(1)),
            (Some("0,-1,1"), Some(1)),
            (Some("GPU-01"), Some(1)),
            (Some("MIG-a,MIG-b,MIG-c"), Some(3)),
            (Some(""), None),
            (Some("-1"), None),
        ] {
            assert_eq!(
                visible(&sample(Nvml::Ready(String::new())), list),
                count,
                "{list:?}"
            );
        }
        let missing = Nvml::Missing("no driver".into());
        assert_eq!(visible(&sample(missing), None), None);
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
