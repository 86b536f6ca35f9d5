//! Findings about locks: held for too long, never granted, or changed from outside.

use super::{Found, NEWS_NS, continues, listed, rivals, some};
use crate::data::Data;
use crate::finding::{Edit, Finding, Listed};
use gpushare_base::text::units::{format_duration, short_time};
use gpushare_sample::{Holding, LockState, Order, PolicyKind, ProcessSample, ProcessState, Who};
use shm_layout::Set;

/// A process that has waited for less time than this does not starve.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Minimum time for which a device's lock must have been observed before its shares are judged.
const SEEN_NS: u64 = 3_000_000_000;
/// A process that waits for more than this share of its time is blocked most of the time.
const CROWDED: f32 = 0.8;
/// Share of its fair share below which a process starves.
pub(super) const ENOUGH: f64 = 0.8;
/// The greatest weight.
const HEAVIEST: f64 = 1000.0;

/// Returns the share of the lock that a process gets by its weight and cap, if it may have the lock and waits most of
/// its time.
fn entitled(data: &Data, process: &ProcessSample, gpu: usize) -> Option<f64> {
    let eligible = !matches!(process.state, ProcessState::Stuck | ProcessState::Stopped)
        && data.span(gpu).ns >= SEEN_NS
        && data.spent(Who::of(process), gpu).wait > 0.5;
    data.entitled(process, gpu).filter(|_| eligible)
}

/// Returns the fair share of a process that waits most of its time and gets much less than that.
fn starves(data: &Data, process: &ProcessSample, gpu: usize) -> Option<f64> {
    let held = f64::from(data.spent(Who::of(process), gpu).hold);
    entitled(data, process, gpu).filter(|fair| held < ENOUGH * fair)
}

pub(super) fn starving(found: &mut Found<'_>) {
    found.each(|found, process, holding| {
        let (data, gpu) = (found.data, holding.gpu);
        let Some(fair) = starves(data, process, gpu) else {
            return;
        };
        let spent = data.spent(Who::of(process), gpu);
        let waiting = data.sample.time_ns.saturating_sub(holding.lock.since_ns);
        let now = match holding.lock.state {
            LockState::Wait | LockState::Back if waiting >= PATIENCE_NS => {
                format!(" (now {})", short_time(waiting))
            }
            _ => String::new(),
        };
        let what = format!("waits {:.0}% of its time{now}", spent.wait * 100.0);
        let finding = found.about(process, holding, what);
        finding.evidence = format!(
            "gets {:.0}% of GPU{gpu}, fair is {:.0}%",
            spent.hold * 100.0,
            fair * 100.0
        );
        feed(finding, data, process, holding);
    });
}

/// Proposes what gives a starving process its share: the fair order, a time slice, or a higher weight.
pub(super) fn feed(finding: &mut Finding, data: &Data, process: &ProcessSample, holding: &Holding) {
    let gpu = holding.gpu;
    let Some(fair) = starves(data, process, gpu) else {
        return;
    };
    // The process's own policy, which may differ from the device's.
    let words = match holding.policy.0 {
        policy if policy.order != Order::Fair => "order=fair",
        policy if !matches!(policy.kind, PolicyKind::Timeslice(_)) => "timeslice=5ms",
        _ => return weigh_more(finding, data, process, gpu, fair),
    };
    let gain = format!("bring it towards its fair {:.0}% of GPU{gpu}", fair * 100.0);
    let has_more = |other: &ProcessSample| {
        let held = f64::from(data.spent(Who::of(other), gpu).hold);
        data.entitled(other, gpu).is_some_and(|share| held > share)
    };
    let words = words.to_owned();
    finding
        .propose(format!("set {words}"), gain, Edit::Policy { gpu, words })
        .costs(
            "what they have above their share",
            listed(data, gpu, has_more),
        );
}

fn weigh_more(finding: &mut Finding, data: &Data, process: &ProcessSample, gpu: usize, fair: f64) {
    let who = Who::of(process);
    // A cap that is no greater than the share limits the process, whatever its weight.
    if process
        .share
        .cap
        .is_some_and(|cap| f64::from(cap) / 100.0 <= fair)
    {
        return;
    }
    let held = f64::from(data.spent(who, gpu).hold).max(fair / 4.0);
    let weight = f64::from(process.share.weight);
    let more = (weight * fair / held).ceil().min(HEAVIEST);
    if more <= weight {
        return;
    }
    // The fair share is the weight's part of the sum, so the sum follows from it.
    let sum = weight / fair;
    let after = sum + more - weight;
    finding
        .propose(
            format!("raise its weight to {more}"),
            format!("raise its fair share to {:.0}%", more / after * 100.0),
            Edit::share(who, |share| share.weight = Set::To(more as u32)),
        )
        .costs("time", rivals(data, gpu, who))
        .measured(format!(
            "{:.0}% of their fair shares",
            (1.0 - sum / after) * 100.0
        ));
}

/// Finds devices under `order=fair` whose processes spend nearly all of their time waiting: they want more than the
/// device can serve.
pub(super) fn crowded(found: &mut Found<'_>) {
    let data = found.data;
    for gpu in data.sample.gpus() {
        let waits = data.there(gpu).filter(|(process, _)| {
            let spent = data.spent(Who::of(process), gpu);
            if spent.wait <= CROWDED || process.share.cap.is_some() {
                return false;
            }
            let fair = entitled(data, process, gpu);
            fair.is_some_and(|fair| f64::from(spent.hold) >= ENOUGH * fair)
        });
        let waits: Vec<Who> = waits.map(|(process, _)| Who::of(process)).collect();
        let more = match waits.len() {
            0 => continue,
            1..=4 => String::new(),
            n => format!(" and {} more", n - 4),
        };
        let told = waits.iter().take(4).map(|who| {
            let wait = data.spent(*who, gpu).wait * 100.0;
            format!("{} {wait:.0}%", data.name(*who))
        });
        let told = told.collect::<Vec<_>>().join(", ");
        found
            .on(
                gpu,
                format!("GPU{gpu} has more to do than it can: {told}{more} of their time wait"),
            )
            .advise("move one to another GPU");
    }
}

pub(super) fn hog(found: &mut Found<'_>) {
    let data = found.data;
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let held = data.sample.time_ns.saturating_sub(device.owner_since_ns);
        let Some(owner) = device.owner.and_then(|slot| data.sample.process(slot)) else {
            continue;
        };
        if device.waiters.is_empty() || held < PATIENCE_NS || !data.idle_for(gpu, PATIENCE_NS) {
            continue;
        }
        let what = format!(
            "has held GPU{gpu} for {} while it is idle and {} wait",
            short_time(held),
            device.waiters.len()
        );
        let waiters = device.waiters.iter().map(|slot| Who::Slot(*slot)).collect();
        let words = "timeslice=5ms".to_owned();
        let finding = found.of(owner, what);
        finding.gpu = Some(gpu);
        finding
            .since(device.owner_since_ns)
            .propose(
                format!("set {words}"),
                "pass the GPU on",
                Edit::Policy { gpu, words },
            )
            .for_jobs(waiters)
            .costs(
                "its undisturbed hold",
                Listed::of([Who::of(owner)], |who| data.name(who)),
            );
    }
}

/// Proposes twice the time after which the lock is taken by force, or which a holder has for work that still runs.
fn more_grace(finding: &mut Finding, data: &Data, process: &ProcessSample, holding: &Holding) {
    let (who, gpu) = (Who::of(process), holding.gpu);
    let grace_ns = holding.policy.0.grace_ns.saturating_mul(2);
    let words = format!("grace={}", format_duration(grace_ns));
    finding
        .propose(
            format!("raise {words}"),
            "let its work end",
            Edit::Policy { gpu, words },
        )
        .costs("up to that time at a hand-off", rivals(data, gpu, who));
}

pub(super) fn forced(found: &mut Found<'_>) {
    let data = found.data;
    let recent = data.log.forced(data.sample.time_ns.saturating_sub(NEWS_NS));
    found.each(|found, process, holding| {
        let Some(count) = recent.get(&(Who::of(process), holding.gpu)) else {
            return;
        };
        let (gpu, times) = (holding.gpu, some(*count, "time"));
        // A longer grace would let a stopped process block the others for longer.
        if process.state == ProcessState::Stopped {
            let what = format!(
                "is stopped by a signal or a debugger and lost the lock of GPU{gpu} by force {times} in 30 s"
            );
            found
                .about(process, holding, what)
                .advise(continues(process));
            return;
        }
        let what = format!("did not yield GPU{gpu} and lost its lock by force {times} in 30 s");
        more_grace(found.about(process, holding, what), data, process, holding);
    });
}

/// Finds work that outlasts the grace and runs on beside the next holder's work: isolation is degraded.
pub(super) fn late(found: &mut Found<'_>) {
    let data = found.data;
    let since = data.sample.time_ns.saturating_sub(NEWS_NS);
    found.each(|found, process, holding| {
        let rates = data.rates(Who::of(process), holding.gpu);
        if rates
            .and_then(|rates| rates.late_ns)
            .is_some_and(|at| at >= since)
        {
            let what = format!(
                "released GPU{} while its work still ran beside the next holder's ({} so far)",
                holding.gpu,
                some(holding.counters.drain_timeouts, "time")
            );
            more_grace(found.about(process, holding, what), data, process, holding);
        }
    });
}

/// Finds signs of tampering: on a machine shared by users, two holders of one lock, or slots that contradict their
/// processes, are the work of another user.
pub(super) fn tampered(found: &mut Found<'_>) {
    let (data, sample) = (found.data, &found.data.sample);
    if !sample.is_brokered() {
        return;
    }
    if let Some(damage) = sample.damage() {
        found.add(damage).advise(sample.damage_remedy());
    }
    let since = sample.time_ns.saturating_sub(NEWS_NS);
    for gpu in sample.gpus() {
        if let Some((times, at_ns)) = data.violated(gpu)
            && at_ns >= since
        {
            let times = some(times, "time");
            let what = format!(
                "GPU{gpu}: a program writes over whose turn it is; processes that were passed over went without turns {times}"
            );
            found.on(gpu, what).advise(sample.damage_remedy());
        }
    }
}

pub(super) fn violation(found: &mut Found<'_>) {
    let sample = &found.data.sample;
    if sample.is_brokered() {
        return;
    }
    for (gpu, device) in sample
        .devices
        .iter()
        .enumerate()
        .filter(|(_, d)| d.violations > 0)
    {
        let what = format!(
            "GPU{gpu}: two holders of its lock were seen {} times",
            device.violations
        );
        found
            .on(gpu, what)
            .advise("please report it with a --record file");
    }
}
