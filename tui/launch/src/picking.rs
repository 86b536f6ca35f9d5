//! The choice of the least busy device.
//!
//! A device is busier with more claims of other picks, a longer queue for the lock, more computation and less free memory.
//! The weight of each is a setting. The weights are rough, because the numbers that they weigh change from moment to
//! moment.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use shm_layout::text::PathText as _;
use shm_layout::{LaunchLimits, MemoryLimit, Reserve, SegmentDir, Uuid};

use crate::nvml_cache::Bounds;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::files;
use gpushare_base::text::units::{human_size, parse_duration};
use gpushare_base::text::uuids;
use gpushare_control::boot_settings;
use gpushare_control::manifest::Pick;
use gpushare_sample::keys::object;
use gpushare_sample::{DeviceSample, Holding, Nvml, ProcessSample, Sample};
use shm_layout::variables;

const ALLOWED: &str = "/usr/local/share/gpus/ids";

/// The weights of claims, waiters, utilisation and memory, and the limits of NVML's cache: `[pick]` of the boot settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Weight of each other pick that has just chosen the device.
    pub claims: f64,
    /// Weight of each process that holds or waits for the device's lock.
    pub queue: f64,
    /// Weight of full utilisation.
    pub utilisation: f64,
    /// Weight of full memory.
    pub memory: f64,
    /// Limits of the cache of NVML's answers.
    pub bounds: Bounds,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            claims: 0.5,
            queue: 0.25,
            utilisation: 1.0,
            memory: 1.0,
            bounds: Bounds::default(),
        }
    }
}

impl Choice {
    /// Reads the choice from the boot settings.
    pub fn standing(dir: &SegmentDir) -> Result<Self, Failure> {
        let found = boot_settings::read(dir)?;
        match found.and_then(|(manifest, _)| manifest.pick) {
            Some(pick) => Self::of(&pick),
            None => Ok(Self::default()),
        }
    }

    fn of(pick: &Pick) -> Result<Self, Failure> {
        let usual = Self::default();
        let worth = |key: &str, said: Option<f64>, usual: f64| match said {
            None => Ok(usual),
            Some(worth) if (0.0..=1000.0).contains(&worth) => Ok(worth),
            Some(worth) => Err(Failure::usage(format!(
                "[pick] {key}: {worth} is not between 0 and 1000"
            ))),
        };
        let age = pick.max_age.as_deref().map(parse_duration).transpose();
        let age = age.map_err(|error| Failure::usage(format!("[pick] max-age: {error}")))?;
        Ok(Self {
            claims: worth("claims", pick.claims, usual.claims)?,
            queue: worth("queue", pick.queue, usual.queue)?,
            utilisation: worth("utilisation", pick.utilisation, usual.utilisation)?,
            memory: worth("memory", pick.memory, usual.memory)?,
            bounds: Bounds {
                age: age.map_or(usual.bounds.age, Duration::from_nanos),
                uses: pick.max_uses.unwrap_or(usual.bounds.uses),
            },
        })
    }
}

/// The free memory that a device must have to be chosen: the larger of both.
#[derive(Debug, Default, Clone, Copy)]
pub struct Demand {
    bytes: Option<u64>,
    /// Part of the device's memory, below 100.
    percent: Option<u8>,
}

impl Demand {
    /// Returns the demand for so many bytes.
    pub fn bytes(bytes: Option<u64>) -> Self {
        Self {
            bytes,
            percent: None,
        }
    }

    /// Returns the demand of a program with these limits that sees one device. A quota of the whole device demands nothing,
    /// because the driver's own memory is never free.
    pub fn of(limits: &LaunchLimits) -> Self {
        let quota = match limits.memory[0] {
            MemoryLimit::Bytes(bytes) => (Some(bytes), None),
            MemoryLimit::Percent(percent) => (None, Some(percent)),
            MemoryLimit::Unset | MemoryLimit::None => (None, None),
        };
        let reserve = match limits.settings.reserve.unwrap_or_default() {
            Reserve::Nothing => (None, None),
            Reserve::Percent(percent) => (None, Some(percent)),
            size @ Reserve::Mib(_) => (Some(size.of_device(u64::MAX)), None),
        };
        Self {
            bytes: quota.0.max(reserve.0),
            percent: quota.1.max(reserve.1).filter(|percent| *percent < 100),
        }
    }

    /// Returns the bytes on a device of `total_bytes`, if there is a demand. A part is at most what an idle device has free, beside
    /// the driver's own memory.
    fn of_device(self, total_bytes: u64) -> Option<u64> {
        const OF_DRIVER: u64 = 600 << 20;
        let most = total_bytes.saturating_sub(OF_DRIVER);
        let part = |percent| Reserve::Percent(percent).of_device(total_bytes).min(most);
        self.bytes.max(self.percent.map(part))
    }

    /// Returns the demand for a message, if there is one.
    fn shown(self) -> Option<String> {
        let part = self
            .percent
            .map(|percent| format!("{percent}% of its memory"));
        let both = self.bytes.map(human_size).into_iter().chain(part);
        Some(both.collect::<Vec<_>>().join(" and ")).filter(|text| !text.is_empty())
    }
}

/// The conditions that a device must meet to be chosen.
#[derive(Debug, Default)]
pub struct Wanted<'a> {
    /// Minimum free memory.
    pub memory: Demand,
    /// Devices that may be chosen; `None` for all.
    pub allowed: Option<&'a [Uuid]>,
    /// Only devices without a process or claim.
    pub free: bool,
    /// UUIDs of the devices that a program has reserved; they are left out.
    pub exclusive: Vec<String>,
}

impl Wanted<'_> {
    /// Returns true if the device is one of those that may be chosen.
    fn allows(&self, candidate: &Candidate) -> bool {
        let uuid = uuids::parse(&candidate.uuid);
        self.allowed
            .is_none_or(|allowed| uuid.is_some_and(|uuid| allowed.contains(&uuid)))
    }
}

object! {
    /// A device with its load.
    pub Candidate {
        gpu: usize, "The device's number, as --gpu takes it.";
        uuid: String, "Its UUID.";
        name: String, "The product name.";
        free_bytes: u64, "Memory that no process holds, was promised or has reserved.";
        total_bytes: u64, "Memory it has.";
        utilisation_percent: Option<u32>, "Share of time with a kernel running; null where NVML does not say.";
        queue: usize, "How many processes hold or wait for its lock.";
        claims: u32, "Other picks that have just chosen it.";
        mps: bool, "MPS runs kernels of several processes on it at once.";
        busy: f64, "All of that in one number; 0 is idle.";
        excluded: Option<String>, "Why it may not be picked; null if it may.";
    }
}

/// Returns every device of the sample. Those that do not meet `wanted` are marked as excluded.
pub fn candidates(sample: &Sample, wanted: &Wanted<'_>, choice: &Choice) -> Vec<Candidate> {
    let devices = sample.devices.iter().enumerate();
    devices
        .map(|(gpu, device)| candidate(gpu, device, sample, wanted, choice))
        .collect()
}

fn candidate(
    gpu: usize,
    device: &DeviceSample,
    sample: &Sample,
    wanted: &Wanted<'_>,
    choice: &Choice,
) -> Candidate {
    let free_bytes = sample.unclaimed_bytes(gpu);
    let used = device.total_bytes.saturating_sub(free_bytes);
    let queue = device.waiters.len() + usize::from(device.owner.is_some());
    let fraction = used as f64 / device.total_bytes.max(1) as f64;
    let utilisation = f64::from(device.nvml.util_percent.unwrap_or(0)) / 100.0;
    let busy = f64::from(device.picks) * choice.claims
        + queue as f64 * choice.queue
        + utilisation * choice.utilisation
        + fraction.min(1.0) * choice.memory;
    let uuid = uuids::parse(&device.uuid);
    let used = |process: &&ProcessSample| process.on(gpu).is_some_and(Holding::is_used);
    let users = sample.processes.iter().filter(used).count();
    let needed = wanted.memory.of_device(device.total_bytes);
    let excluded = match (wanted.allowed, uuid, needed) {
        (Some(allowed), Some(uuid), _) if !allowed.contains(&uuid) => {
            Some("not in the list of allowed devices".into())
        }
        _ if wanted.exclusive.contains(&device.uuid) => {
            Some("a program has it for itself (run --exclusive)".into())
        }
        _ if wanted.free && users > 0 => Some(match users {
            1 => "a process uses it".into(),
            users => format!("{users} processes use it"),
        }),
        _ if wanted.free && device.picks > 0 => Some("another pick has just chosen it".into()),
        (_, _, Some(needed)) if device.total_bytes < needed => {
            Some(format!("it has {} in all", human_size(device.total_bytes)))
        }
        (_, _, Some(needed)) if free_bytes < needed => {
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

/// Returns the failure if the named device, or every allowed one, has less memory than is wanted. Waiting does not help then.
fn too_small(
    candidates: &[Candidate],
    named: Option<usize>,
    wanted: &Wanted<'_>,
) -> Option<Failure> {
    let bytes = wanted.memory.bytes?;
    let is_meant = |candidate: &&Candidate| match named {
        Some(gpu) => candidate.gpu == gpu,
        None => wanted.allows(candidate),
    };
    let meant = candidates.iter().filter(is_meant);
    let largest = meant.max_by_key(|candidate| candidate.total_bytes)?;
    (largest.total_bytes < bytes).then(|| {
        let size = human_size(largest.total_bytes);
        let which = match named {
            Some(gpu) => format!("gpu{gpu} has {size}"),
            None => format!("the largest GPU has {size}"),
        };
        Failure::no_such_target(format!("{which}, not {}; ask for less", human_size(bytes)))
    })
}

/// Returns the device that is named, else the least busy one, or any of them if `random` is set. Fails if none may be chosen.
pub fn choose(
    candidates: &[Candidate],
    named: Option<usize>,
    wanted: &Wanted<'_>,
    random: bool,
) -> Result<usize, Failure> {
    if let Some(failure) = too_small(candidates, named, wanted) {
        return Err(failure);
    }
    if let Some(candidate) = named.and_then(|gpu| candidates.get(gpu)) {
        let sentence = |why| format!("gpu{} cannot be picked: {why}", candidate.gpu);
        return match &candidate.excluded {
            None => Ok(candidate.gpu),
            // The list does not change while a run waits.
            Some(why) if !wanted.allows(candidate) => Err(Failure::usage(sentence(why))),
            Some(why) => Err(Failure::failed(sentence(why))),
        };
    }
    let mut open: Vec<&Candidate> = candidates
        .iter()
        .filter(|candidate| candidate.excluded.is_none())
        .collect();
    if random && !open.is_empty() {
        let any = RandomState::new().build_hasher().finish();
        let any = usize::try_from(any % open.len() as u64).unwrap_or(0);
        open = vec![open[any]];
    }
    // The device with the most free memory wins among equals, then the one with the lowest number.
    let best = open.into_iter().min_by(|a, b| {
        a.busy
            .total_cmp(&b.busy)
            .then(b.free_bytes.cmp(&a.free_bytes))
    });
    best.map(|best| best.gpu).ok_or_else(|| {
        if !candidates.iter().any(|candidate| wanted.allows(candidate)) {
            return Failure::usage(format!(
                "no GPU may be picked: {} lists none of the GPUs here; correct the list or set {}",
                allowed_path().shown(),
                variables::ALLOWED_GPUS
            ));
        }
        match wanted.memory.shown() {
            Some(memory) if !wanted.free => Failure::failed(format!(
                "no GPU has {memory} free; wait, ask for less, or lower a quota (gpushare pick --explain shows each)",
            )),
            _ => Failure::failed(
                "no GPU is free; gpushare run --wait waits for one, and gpushare pick --explain shows each",
            ),
        }
    })
}

/// Returns the maximum number of devices that a program sees if `CUDA_VISIBLE_DEVICES` is `list`. Returns `None` if NVML
/// does not answer or if the program sees no device, because then no limit is lost.
pub fn visible(sample: &Sample, list: Option<&str>) -> Option<usize> {
    let all = sample.devices.len();
    if !matches!(sample.nvml, Nvml::Ready(_)) || all == 0 {
        return None;
    }
    let Some(list) = list else {
        return Some(all);
    };
    // CUDA reads the list up to the first entry that names no device. Only CUDA knows which UUIDs are valid.
    let is_device = |entry: &&str| match entry.trim().parse::<usize>() {
        Ok(ordinal) => ordinal < all,
        Err(_) => entry.trim().starts_with(['G', 'M']),
    };
    let count = list.split(',').take_while(is_device).count();
    (count > 0).then_some(count)
}

/// Checks that the devices that a program would see can give the memory that it wants reserved on each.
pub fn check_reserve(
    sample: &Sample,
    list: Option<&str>,
    limits: &LaunchLimits,
) -> Result<(), Failure> {
    let reserve = limits.settings.reserve.unwrap_or_default();
    let all = candidates(sample, &Wanted::default(), &Choice::default());
    for (ordinal, device) in seen(&all, |device| &device.uuid, list)
        .into_iter()
        .enumerate()
    {
        let wanted = reserve.of_device(device.total_bytes);
        let quota = match limits.memory.get(ordinal) {
            Some(MemoryLimit::Bytes(bytes)) => *bytes,
            Some(MemoryLimit::Percent(percent)) => {
                Reserve::Percent(*percent).of_device(device.total_bytes)
            }
            _ => u64::MAX,
        };
        if wanted > quota {
            return Err(Failure::usage(format!(
                "reserves {} on gpu{}, which is more than its quota there, {}; raise the quota or reserve less",
                human_size(wanted),
                device.gpu,
                human_size(quota)
            )));
        }
        if wanted > device.total_bytes {
            return Err(Failure::usage(format!(
                "gpu{} has {} and cannot reserve {}; reserve less",
                device.gpu,
                human_size(device.total_bytes),
                human_size(wanted)
            )));
        }
        if wanted > device.free_bytes {
            return Err(Failure::failed(format!(
                "gpu{} cannot reserve {}: {} of {} are neither used nor reserved; reserve less, or wait with --on-full wait \
                 (gpushare ps shows what is used and reserved)",
                device.gpu,
                human_size(wanted),
                human_size(device.free_bytes),
                human_size(device.total_bytes)
            )));
        }
    }
    Ok(())
}

/// Returns the devices that a program sees if `CUDA_VISIBLE_DEVICES` is `list`, in its order.
pub fn seen<'d, D>(all: &'d [D], uuid: impl Fn(&D) -> &str, list: Option<&str>) -> Vec<&'d D> {
    let Some(list) = list else {
        return all.iter().collect();
    };
    let named = |entry: &str| match (entry.trim(), entry.trim().parse::<usize>()) {
        (_, Ok(ordinal)) => all.get(ordinal),
        ("", _) => None,
        (start, _) => all.iter().find(|device| uuid(device).starts_with(start)),
    };
    list.split(',').map_while(named).collect()
}

/// Returns those of the `allowed` devices that a program sees if `CUDA_VISIBLE_DEVICES` is `list`. Fails if the program sees none,
/// or not the `named` one: another device may belong to another job.
pub fn within(
    devices: &[DeviceSample],
    list: &str,
    named: Option<usize>,
    allowed: Option<Vec<Uuid>>,
) -> Result<Vec<Uuid>, Failure> {
    let seen = seen(devices, |device| &device.uuid, Some(list));
    if seen.is_empty() {
        return Err(Failure::no_such_target(format!(
            "CUDA_VISIBLE_DEVICES={list:?} names none of the GPUs here, so the program may use none; correct or unset it"
        )));
    }
    if let Some(gpu) = named
        && !seen.iter().any(|device| device.uuid == devices[gpu].uuid)
    {
        return Err(Failure::usage(format!(
            "CUDA_VISIBLE_DEVICES={list:?} does not name gpu{gpu}, so the program may not use it; choose one that it names, or \
             unset it"
        )));
    }
    let uuids = seen.iter().filter_map(|device| uuids::parse(&device.uuid));
    let is_allowed = |uuid: &Uuid| allowed.as_ref().is_none_or(|list| list.contains(uuid));
    Ok(uuids.filter(is_allowed).collect())
}

fn allowed_path() -> PathBuf {
    std::env::var_os(variables::ALLOWED_GPUS).map_or_else(|| ALLOWED.into(), Into::into)
}

/// Reads the list of devices that may be chosen. Returns `None` if there is no list.
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

    #[test]
    fn a_part_is_no_more_than_an_idle_device_has_free() {
        let of = |percent| Demand {
            bytes: None,
            percent: Some(percent),
        };
        let all = 16_u64 << 30;
        let free = all - (600 << 20);
        assert_eq!(of(50).of_device(all), Some(all / 2));
        assert!(of(99).of_device(all).is_some_and(|bytes| bytes <= free));
    }

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
        let wanted = Wanted {
            memory: Demand::bytes(wanted),
            allowed,
            ..Wanted::default()
        };
        let candidates = candidates(&sample, &wanted, &Choice::default());
        choose(&candidates, None, &wanted, false)
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
