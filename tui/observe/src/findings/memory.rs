//! Findings about memory that is over quota, refused, promised twice or not counted.

use std::collections::HashMap;

use shm_layout::{Blocked, QuotaValue};

use super::{Found, NEWS_NS, listed, some};
use crate::data::Data;
use crate::data::log::Denials;
use crate::finding::{Edit, Finding};
use gpushare_base::text::units::{human_size, short_size, short_size_like};
use gpushare_sample::{Holding, ProcessSample, Who, memory};

/// Memory that the driver itself uses on a device and for each process on it.
const OVERHEAD_BYTES: u64 = 1 << 30;

/// Proposes a quota with which an allocation of `bytes` succeeds, if the device has room for it.
fn raise_quota(
    finding: &mut Finding,
    data: &Data,
    process: &ProcessSample,
    holding: &Holding,
    bytes: u64,
) {
    let (who, gpu) = (Who::of(process), holding.gpu);
    let (Some(quota), Some(device)) = (holding.quota.bytes, data.sample.devices.get(gpu)) else {
        return;
    };
    let free = device.total_bytes.saturating_sub(data.used_bytes(gpu));
    let more = quota.max(holding.used).saturating_add(bytes.max(quota / 4));
    let more = more.min(device.total_bytes);
    if free < bytes || more <= quota {
        return;
    }
    let edit = Edit::Quota {
        who,
        gpu,
        value: QuotaValue::Bytes(more),
    };
    let taken = short_size((more - quota).min(free));
    finding
        .propose(
            format!("raise its quota to {}", human_size(more)),
            format!("let it hold {} more", short_size(more - quota)),
            edit,
        )
        .costs(
            format!("room on GPU{gpu}"),
            listed(data, gpu, |other| Who::of(other) != who),
        )
        .measured(format!(
            "up to {taken} of the {} that are free",
            human_size(free)
        ));
}

pub(super) fn over_quota(found: &mut Found<'_>) {
    found.each(|found, process, holding| {
        let Some(quota) = holding.quota.bytes.filter(|quota| holding.used > *quota) else {
            return;
        };
        let what = format!(
            "holds {} of {} on GPU{}; new allocations are denied until it frees {}",
            short_size(holding.used),
            short_size_like(quota, holding.used),
            holding.gpu,
            short_size(holding.used - quota)
        );
        let data = found.data;
        raise_quota(
            found.about(process, holding, what),
            data,
            process,
            holding,
            1,
        );
    });
}

/// The part of its quota from which a process is near it.
pub const NEAR: f64 = 0.97;
/// Longest time to the quota that is forecast.
const SOON_NS: u64 = 600_000_000_000;

pub(super) fn near(found: &mut Found<'_>) {
    let data = found.data;
    let refused = data.log.denials(data.sample.time_ns, NEWS_NS);
    found.each(|found, process, holding| {
        let key = (Who::of(process), holding.gpu);
        let quota = holding.quota.bytes.unwrap_or(0);
        // A process over its quota, or that is refused memory, has an alert of its own.
        if quota == 0 || holding.used > quota || refused.contains_key(&key) {
            return;
        }
        let rates = data.rates(key.0, key.1);
        let left_ns = rates.and_then(|rates| rates.reaches_in_ns(quota));
        let left_ns = left_ns.filter(|left| *left <= SOON_NS);
        if left_ns.is_none() && (holding.used as f64) < NEAR * quota as f64 {
            return;
        }
        let forecast = left_ns.map_or(String::new(), |left| {
            format!(" and reaches it in about {}", about(left))
        });
        let what = format!(
            "holds {} of its {} on GPU{}{forecast}",
            short_size(holding.used),
            short_size_like(quota, holding.used),
            holding.gpu
        );
        let finding = found.about(process, holding, what);
        raise_quota(finding, data, process, holding, 1);
    });
}

/// Writes a forecast time without digits that it does not have: `40 s`, `4 min`.
fn about(ns: u64) -> String {
    match ns / 1_000_000_000 {
        seconds @ ..10 => format!("{} s", seconds.max(1)),
        seconds @ ..60 => format!("{} s", seconds / 10 * 10),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

pub(super) fn denials(found: &mut Found<'_>) {
    let recent = found.data.log.denials(found.data.sample.time_ns, NEWS_NS);
    found.each(|found, process, holding| denied(found, process, holding, &recent));
}

/// Finds the refused allocations of one process among the recent ones.
pub(super) fn denied(
    found: &mut Found<'_>,
    process: &ProcessSample,
    holding: &Holding,
    recent: &HashMap<(Who, usize), Denials>,
) {
    let data = found.data;
    let Some(denials) = recent.get(&(Who::of(process), holding.gpu)) else {
        return;
    };
    // The current usage says little: a process frees its memory after a refusal.
    let limit = match (holding.quota.bytes, &process.group) {
        (Some(quota), _) => format!("over its quota of {}", short_size(quota)),
        (None, Some(group)) => format!("over the quota of group {group} or the limit of the GPU"),
        (None, None) => "over the limit of the GPU".into(),
    };
    let what = format!("was denied {} in 30 s", some(denials.count, "allocation"));
    let finding = found.about(process, holding, what);
    finding.evidence = format!("the last of {}, {limit}", short_size(denials.last_bytes));
    finding.since(denials.since_ns);
    raise_quota(finding, data, process, holding, denials.last_bytes);
}

pub(super) fn waits(found: &mut Found<'_>) {
    found.each(waits_for_memory);
}

/// Finds the wait of one process for memory.
pub(super) fn waits_for_memory(found: &mut Found<'_>, process: &ProcessSample, holding: &Holding) {
    let data = found.data;
    let named = |process: &ProcessSample| data.name(Who::of(process));
    let sentence = memory::sentence(&data.sample, process, holding, named);
    if let (Some(what), Some(wait)) = (sentence, holding.memory_wait) {
        let finding = found.about(process, holding, what);
        finding.since(wait.since_ns);
        if wait.limit == Blocked::Quota {
            raise_quota(finding, data, process, holding, wait.bytes);
        }
    }
}

/// Share of the time for which memory may move before a device thrashes.
const THRASHES: f64 = 0.2;
/// The proposed stay, in times that a move takes: memory then moves for at most a fifth of the time.
const LONGER: u64 = 4;

pub(super) fn thrashing(found: &mut Found<'_>) {
    let data = found.data;
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let ago = data.sample.time_ns.saturating_sub(device.crowded_ns);
        let is_crowded = device.crowded_ns != 0 && ago <= NEWS_NS;
        let moving = data.moving(gpu);
        if !is_crowded && moving < THRASHES {
            continue;
        }
        // A wait for a quota ends by itself or never, whatever the device has.
        let waits = |h: &Holding| {
            let is_own = |limit| matches!(limit, Blocked::Quota | Blocked::Group);
            h.memory_wait.filter(|wait| !is_own(wait.limit))
        };
        let takes_turns = |(p, h): &(&ProcessSample, &Holding)| moves(p) || waits(h).is_some();
        let movers: Vec<_> = data.there(gpu).filter(takes_turns).collect();
        let wanted = movers.iter().fold(0, |sum: u64, (p, h)| {
            // Memory that returns is in the process's own bytes already.
            let asks = waits(h).filter(|wait| !wait.is_return);
            let more = asks.map_or(0, |wait| wait.bytes);
            sum.saturating_add(p.own_bytes(h)).saturating_add(more)
        });
        let others = data.there(gpu).filter(|one| !takes_turns(one));
        let held = others.fold(0, |sum: u64, (_, h)| sum.saturating_add(h.used));
        let room = device.total_bytes.min(device.limit.unwrap_or(u64::MAX));
        let room = room.saturating_sub(held);
        if movers.len() < 2 || wanted <= room {
            continue;
        }
        let state = match moving >= THRASHES {
            true => format!(
                "moves memory for {:.0}% of the time",
                moving.min(1.0) * 100.0
            ),
            false => "has too little memory for its processes".to_owned(),
        };
        let what = format!(
            "GPU{gpu} {state}: {} processes with {} take turns on {}; fewer of them, a larger GPU, or gpushare pin for \
             the one that matters would end it",
            movers.len(),
            short_size(wanted),
            short_size(room),
        );
        let swap_ns = movers.iter().map(|(p, _)| p.residence.swap_ns).max();
        let stay_ms = swap_ns
            .unwrap_or(0)
            .saturating_mul(LONGER)
            .div_ceil(1_000_000);
        let longer = format!("stay={stay_ms}ms");
        let stays_ns = device.policy.0.stay_ns.unwrap_or(0);
        let waiting = listed(data, gpu, moves);
        let who = movers.iter().map(|(p, _)| Who::of(p)).collect();
        let finding = found.on(gpu, what);
        if stay_ms > 0 && stay_ms.saturating_mul(1_000_000) > stays_ns {
            let edit = Edit::Policy {
                gpu,
                words: longer.clone(),
            };
            finding
                .propose(longer, "move memory for at most a fifth of the time", edit)
                .for_jobs(who)
                .costs(
                    "longer waits for a request that finds its memory away",
                    waiting,
                );
        }
    }
}

/// Returns true if the memory of a process has been evicted in the last hour, or is away.
fn moves(process: &ProcessSample) -> bool {
    let evicted = process.evictions();
    evicted.is_some_and(|counters| counters.evictions_in_hour > 0) || process.evicted_bytes() > 0
}

pub(super) fn overcommit(found: &mut Found<'_>) {
    let data = found.data;
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
        let what = format!(
            "GPU{gpu}: quotas of {}{and} exceed its {}; not all can use theirs at once",
            short_size(quotas),
            short_size(device.total_bytes)
        );
        found.on(gpu, what);
    }
}

pub(super) fn of_unknown_size(found: &mut Found<'_>) {
    found.each(|found, process, holding| {
        let unknown = holding.counters.unaccounted;
        if unknown > 0 {
            let what = format!(
                "made {} on GPU{} of a size that gpushare does not know; its quota does not hold them",
                some(unknown, "allocation"),
                holding.gpu,
            );
            found.about(process, holding, what);
        }
    });
}

pub(super) fn unaccounted(found: &mut Found<'_>) {
    let data = found.data;
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let Some(nvml) = device.used_bytes else {
            continue;
        };
        let holdings = data.there(gpu).map(|(_, h)| h.used);
        let known = holdings.fold(0, u64::saturating_add);
        let processes = data.there(gpu).count() as u64;
        let unknown = nvml.saturating_sub(known);
        if unknown > OVERHEAD_BYTES + processes * (OVERHEAD_BYTES / 2) {
            let what = format!(
                "GPU{gpu}: NVML reports {} in use that gpushare did not count ({} of {})",
                short_size(unknown),
                short_size(known),
                short_size(nvml)
            );
            found.on(gpu, what);
        }
    }
}
