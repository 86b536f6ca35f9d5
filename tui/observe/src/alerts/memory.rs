//! Alerts about memory that is over quota, refused, promised twice or not counted.

use shm_layout::Blocked;

use super::{Finding, NEWS_NS, about, each, name, some, some_of};
use crate::data::Data;
use crate::data::alert::Remedy;
use gpushare_base::text::units::short_size;
use gpushare_sample::{ProcessSample, Who, memory};

/// Memory that the driver itself uses on a device and for each process on it.
const OVERHEAD_BYTES: u64 = 1 << 30;

pub(super) fn over_quota(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        let Some(quota) = holding.quota.bytes.filter(|quota| holding.used > *quota) else {
            return;
        };
        found.push(about(
            process,
            holding,
            format!(
                "{} holds {} of {} on GPU{}; new allocations are denied until it frees {}",
                name(data, process),
                short_size(holding.used),
                short_size(quota),
                holding.gpu,
                short_size(holding.used - quota)
            ),
            Remedy::key('e', "raise its quota"),
        ));
    });
}

pub(super) fn denials(data: &Data, found: &mut Vec<Finding>) {
    let recent = data
        .log
        .denials(data.sample.time_ns.saturating_sub(NEWS_NS));
    each(data, |process, holding| {
        let Some((count, last)) = recent.get(&(Who::of(process), holding.gpu)) else {
            return;
        };
        // The current usage says little: a process frees its memory after a refusal.
        let limit = match (holding.quota.bytes, &process.group) {
            (Some(quota), _) => {
                format!("over its quota of {}", short_size(quota))
            }
            (None, Some(group)) => {
                format!("over the quota of group {group} or the limit of the GPU")
            }
            (None, None) => "over the limit of the GPU".into(),
        };
        found.push(about(
            process,
            holding,
            format!(
                "{} was denied {} in 30 s, the last of {}, {limit}",
                name(data, process),
                some(*count, "allocation"),
                short_size(*last),
            ),
            holding
                .quota
                .bytes
                .and_then(|_| Remedy::key('e', "raise its quota")),
        ));
    });
}

pub(super) fn waits(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        let named = |process: &ProcessSample| name(data, process);
        if let Some(what) = memory::sentence(&data.sample, process, holding, named) {
            found.push(about(
                process,
                holding,
                format!("{} {what}", name(data, process)),
                holding
                    .memory_wait
                    .filter(|wait| wait.limit == Blocked::Quota)
                    .and_then(|_| Remedy::key('e', "raise its quota")),
            ));
        }
    });
}

pub(super) fn thrashing(data: &Data, found: &mut Vec<Finding>) {
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let ago = data.sample.time_ns.saturating_sub(device.crowded_ns);
        if device.crowded_ns == 0 || ago > NEWS_NS {
            continue;
        }
        let waiting = data.there(gpu);
        let waiting = waiting.filter(|(_, h)| h.memory_wait.is_some()).count();
        found.push(Finding {
            who: None,
            gpu: Some(gpu),
            sentence: format!(
                "GPU{gpu} has too little memory for its processes: {} for some, and those that came back stay ten times as \
                 long as moving them took",
                match waiting {
                    1 => "1 process waits".to_owned(),
                    count => format!("{count} processes wait"),
                }
            ),
            remedy: None,
        });
    }
}

pub(super) fn overcommit(data: &Data, found: &mut Vec<Finding>) {
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let managed = || data.there(gpu).filter(|(p, _)| p.is_managed());
        let quotas = managed()
            .filter_map(|(_, h)| h.quota.bytes)
            .fold(0, u64::saturating_add);
        let unlimited = managed().filter(|(_, h)| h.quota.bytes.is_none()).count();
        if device.total_bytes == 0 || quotas <= device.total_bytes {
            continue;
        }
        let and = match unlimited {
            0 => String::new(),
            n => format!(" and {n} without a quota"),
        };
        found.push(Finding {
            who: None,
            gpu: Some(gpu),
            sentence: format!(
                "GPU{gpu}: quotas of {}{and} exceed its {}; not all can use theirs at once",
                short_size(quotas),
                short_size(device.total_bytes)
            ),
            remedy: None,
        });
    }
}

pub(super) fn of_unknown_size(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        let unknown = holding.counters.unaccounted;
        if unknown > 0 {
            found.push(about(
                process,
                holding,
                format!(
                    "{} made {} on GPU{} of a size that gpushare does not know; its quota does not hold them",
                    name(data, process),
                    some_of(unknown, "allocation"),
                    holding.gpu,
                ),
                None,
            ));
        }
    });
}

pub(super) fn unaccounted(data: &Data, found: &mut Vec<Finding>) {
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let Some(nvml) = device.used_bytes else {
            continue;
        };
        let holdings = data.there(gpu).map(|(_, h)| h.used);
        let known = holdings.fold(0, u64::saturating_add);
        let processes = data.there(gpu).count() as u64;
        let unknown = nvml.saturating_sub(known);
        if unknown > OVERHEAD_BYTES + processes * (OVERHEAD_BYTES / 2) {
            found.push(Finding {
                who: None,
                gpu: Some(gpu),
                sentence: format!(
                    "GPU{gpu}: NVML reports {} in use that gpushare did not count ({} of {})",
                    short_size(unknown),
                    short_size(known),
                    short_size(nvml)
                ),
                remedy: None,
            });
        }
    }
}
