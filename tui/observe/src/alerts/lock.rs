//! Alerts about locks: held for too long, never granted, or changed from outside.

use super::{Finding, NEWS_NS, about, each, name, some, some_of};
use crate::data::Data;
use crate::data::alert::Remedy;
use gpushare_base::text::units::short_time;
use gpushare_sample::Who;
use gpushare_sample::{LockState, Order, PolicyKind, ProcessSample, ProcessState};

/// A process that has waited for less time than this does not starve.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Minimum time for which a device's lock must have been observed before its shares are judged.
const SEEN_NS: u64 = 3_000_000_000;
/// A process that waits for more than this share of its time is blocked most of the time.
const CROWDED: f32 = 0.8;

/// Returns the share of the lock that a process gets by its weight and cap, if it may have the lock and waits most of
/// its time.
fn entitled(data: &Data, process: &ProcessSample, gpu: usize) -> Option<f64> {
    let eligible = !matches!(process.state, ProcessState::Stuck | ProcessState::Stopped)
        && data.seen_ns() >= SEEN_NS
        && data.spent(Who::of(process), gpu).wait > 0.5;
    data.entitled(process, gpu).filter(|_| eligible)
}

pub(super) fn starving(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        let spent = data.spent(Who::of(process), holding.gpu);
        let Some(fair) = entitled(data, process, holding.gpu) else {
            return;
        };
        if f64::from(spent.hold) >= 0.8 * fair {
            return;
        }
        let waiting = data.sample.time_ns.saturating_sub(holding.lock.since_ns);
        let now = match holding.lock.state {
            LockState::Wait | LockState::Back if waiting >= PATIENCE_NS => {
                format!(" (now {})", short_time(waiting))
            }
            _ => String::new(),
        };
        // The process's own policy, which may differ from the device's.
        let remedy = match holding.policy.0 {
            policy if policy.order != Order::Fair => Remedy::key('p', "set order=fair"),
            policy if !matches!(policy.kind, PolicyKind::Timeslice(_)) => {
                Remedy::key('p', "set a time slice")
            }
            _ => Remedy::key('w', "raise its weight"),
        };
        found.push(about(
            process,
            holding,
            format!(
                "{} waits {:.0}% of its time{now}, gets {:.0}% of GPU{}, fair is {:.0}%",
                name(data, process),
                spent.wait * 100.0,
                spent.hold * 100.0,
                holding.gpu,
                fair * 100.0
            ),
            remedy,
        ));
    });
}

/// Finds devices under `order=fair` whose processes spend nearly all of their time waiting: they want more than the
/// device can serve.
pub(super) fn crowded(data: &Data, found: &mut Vec<Finding>) {
    for gpu in data.sample.gpus() {
        let waits = data.there(gpu).filter(|(process, _)| {
            let spent = data.spent(Who::of(process), gpu);
            if spent.wait <= CROWDED || process.share.cap.is_some() {
                return false;
            }
            let fair = entitled(data, process, gpu);
            fair.is_some_and(|fair| f64::from(spent.hold) >= 0.8 * fair)
        });
        let waits: Vec<&ProcessSample> = waits.map(|(process, _)| process).collect();
        let more = match waits.len() {
            0 => continue,
            1..=4 => String::new(),
            n => format!(" and {} more", n - 4),
        };
        let told = waits.iter().take(4).map(|process| {
            let who = Who::of(process);
            let wait = data.spent(who, gpu).wait * 100.0;
            format!("{} {} {wait:.0}%", data.letter(who), process.name())
        });
        found.push(Finding {
            who: None,
            gpu: Some(gpu),
            sentence: format!(
                "GPU{gpu} has more to do than it can: {}{more} of their time wait",
                told.collect::<Vec<_>>().join(", ")
            ),
            remedy: Remedy::advice("move one to another GPU"),
        });
    }
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
                "{} has held GPU{gpu} for {} while it is idle and {} wait",
                name(data, owner),
                short_time(held),
                device.waiters.len()
            ),
            remedy: Remedy::key('p', "set a time slice"),
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
                Remedy::key('p', "raise grace or max-hold"),
            ));
        }
    });
}

/// Finds work that outlasts the grace and runs on beside the next holder's work: isolation is degraded.
pub(super) fn late(data: &Data, found: &mut Vec<Finding>) {
    let since = data.sample.time_ns.saturating_sub(NEWS_NS);
    each(data, |process, holding| {
        let rates = data.rates(Who::of(process), holding.gpu);
        if rates
            .and_then(|rates| rates.late_ns)
            .is_some_and(|at| at >= since)
        {
            found.push(about(
                process,
                holding,
                format!(
                    "{} released GPU{} while its work still ran beside the next holder's ({} so far)",
                    name(data, process),
                    holding.gpu,
                    some_of(holding.counters.drain_timeouts, "time")
                ),
                Remedy::key('p', "raise grace"),
            ));
        }
    });
}

/// Finds signs of tampering: on a machine shared by users, two holders of one lock, or slots that contradict their
/// processes, are the work of another user.
pub(super) fn tampered(data: &Data, found: &mut Vec<Finding>) {
    let sample = &data.sample;
    if !sample.is_brokered() {
        return;
    }
    let mut tell = |gpu, sentence| {
        let (who, remedy) = (None, Remedy::advice(sample.damage_remedy()));
        found.push(Finding {
            who,
            gpu,
            sentence,
            remedy,
        });
    };
    if let Some(damage) = sample.damage() {
        tell(None, damage);
    }
    let since = sample.time_ns.saturating_sub(NEWS_NS);
    for gpu in sample.gpus() {
        if let Some((times, at_ns)) = data.violated(gpu)
            && at_ns >= since
        {
            let times = some_of(times, "time");
            let what = format!(
                "GPU{gpu}: a program writes over whose turn it is; processes that were passed over went without turns {times}"
            );
            tell(Some(gpu), what);
        }
    }
}

pub(super) fn violation(data: &Data, found: &mut Vec<Finding>) {
    if data.sample.is_brokered() {
        return;
    }
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
                "GPU{gpu}: two holders of its lock were seen {} times",
                device.violations
            ),
            remedy: Remedy::advice("please report it with a --record file"),
        });
    }
}
