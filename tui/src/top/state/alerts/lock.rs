//! Who has the lock, who has it too long, who never gets it.

use super::{Finding, NEWS_NS, about, each, name, some, some_of};
use crate::sample::Who;
use crate::sample::{LockState, ProcessSample, ProcessState};
use crate::text::units::short_time;
use crate::top::data::Data;

/// A process that has waited less does not starve.
const PATIENCE_NS: u64 = 1_000_000_000;

pub(super) fn starving(data: &Data, found: &mut Vec<Finding>) {
    let contenders: Vec<u32> = (0..data.sample.devices.len())
        .map(|gpu| contending_weight(data, gpu))
        .collect();
    each(data, |process, holding| {
        let waiting = data.sample.time_ns.saturating_sub(holding.lock.since_ns);
        let eligible = !process.share.paused
            && !matches!(process.state, ProcessState::Stuck | ProcessState::Stopped);
        if holding.lock.state != LockState::Wait || !eligible || waiting < PATIENCE_NS {
            return;
        }
        let spent = data.spent(Who::of(process), holding.gpu);
        let sum = contenders
            .get(holding.gpu)
            .copied()
            .unwrap_or(0)
            .max(process.share.weight)
            .max(1);
        let share = f64::from(process.share.weight) / f64::from(sum);
        let fair = process
            .share
            .cap
            .map_or(share, |cap| share.min(f64::from(cap) / 100.0));
        if f64::from(spent.hold) < 0.8 * fair && spent.wait > 0.5 {
            found.push(about(
                process,
                holding,
                format!(
                    "{} has waited {} and got {:.0}% of GPU{}'s lock; its fair share is {:.0}%",
                    name(data, process),
                    short_time(waiting),
                    spent.hold * 100.0,
                    holding.gpu,
                    fair * 100.0
                ),
            ));
        }
    });
}

/// The weights of all who wanted a device's lock lately, together.
fn contending_weight(data: &Data, gpu: usize) -> u32 {
    let wanted = |process: &ProcessSample| {
        let spent = data.spent(Who::of(process), gpu);
        process.is_managed() && !process.share.paused && spent.hold + spent.wait > 0.05
    };
    let contenders = data
        .sample
        .holdings(gpu)
        .filter(|(process, _)| wanted(process));
    let weights = contenders.map(|(process, _)| process.share.weight);
    weights.fold(0, u32::saturating_add)
}

pub(super) fn hog(data: &Data, found: &mut Vec<Finding>) {
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let held = data.sample.time_ns.saturating_sub(device.owner_since_ns);
        let Some(owner) = device.owner.and_then(|slot| data.sample.process(slot)) else {
            continue;
        };
        if device.waiters.is_empty() || held < PATIENCE_NS || !data.idle_for(gpu, PATIENCE_NS) {
            continue;
        }
        found.push(Finding {
            who: Some(Who::of(owner)),
            gpu: Some(gpu),
            sentence: format!(
                "{} has held GPU{gpu} for {} while it is idle and {} wait; set a time slice [p]",
                name(data, owner),
                short_time(held),
                device.waiters.len()
            ),
        });
    }
}

pub(super) fn forced(data: &Data, found: &mut Vec<Finding>) {
    let recent = data.log.forced(data.sample.time_ns.saturating_sub(NEWS_NS));
    each(data, |process, holding| {
        if let Some(count) = recent.get(&(Who::of(process), holding.gpu)) {
            found.push(about(
                process,
                holding,
                format!(
                    "{} did not yield GPU{} and lost its lock by force {} in 30 s",
                    name(data, process),
                    holding.gpu,
                    some(*count, "time")
                ),
            ));
        }
    });
}

/// Work that outlasts the grace runs on beside the next holder's: isolation is degraded, and that must be seen.
pub(super) fn late(data: &Data, found: &mut Vec<Finding>) {
    let since = data.sample.time_ns.saturating_sub(NEWS_NS);
    each(data, |process, holding| {
        let pulse = data.pulse(Who::of(process), holding.gpu);
        if pulse
            .and_then(|pulse| pulse.late_ns)
            .is_some_and(|at| at >= since)
        {
            found.push(about(
                process,
                holding,
                format!(
                    "{} released GPU{} while its work still ran beside the next holder's ({} so far); raise grace [p]",
                    name(data, process),
                    holding.gpu,
                    some_of(holding.counters.drain_timeouts, "time")
                ),
            ));
        }
    });
}

pub(super) fn violation(data: &Data, found: &mut Vec<Finding>) {
    for (gpu, device) in data
        .sample
        .devices
        .iter()
        .enumerate()
        .filter(|(_, d)| d.violations > 0)
    {
        found.push(Finding {
            who: None,
            gpu: Some(gpu),
            sentence: format!(
                "GPU{gpu}: two holders of its lock were seen {} times; please report it with a --record file",
                device.violations
            ),
        });
    }
}
