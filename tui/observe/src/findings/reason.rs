//! Reasons of slow jobs: one for each job of a device, from its waits, its limits and the device's policy.

use shm_layout::{Order, Set};

use super::{Found, NEWS_NS, continues, listed, lock, memory, rivals, some};
use crate::data::Data;
use crate::finding::{Edit, Finding};
use gpushare_base::text::policy::in_words;
use gpushare_base::text::units::short_time;
use gpushare_sample::{Holding, ProcessSample, ProcessState, Who};

/// A process that waits for less than this share of its time is not slowed by others.
const WAITS: f32 = 0.1;

pub(super) fn halted(found: &mut Found<'_>, process: &ProcessSample, _: &Holding) {
    match process.state {
        ProcessState::Paused => {
            let who = Who::of(process);
            found.of(process, "is paused by an operator").propose(
                "resume it",
                "",
                Edit::resume(who),
            );
        }
        ProcessState::Stopped => {
            found
                .of(process, "is stopped by a signal")
                .advise(continues(process));
        }
        ProcessState::Lost => {
            found
                .of(process, "has lost its context")
                .advise("start it again");
        }
        ProcessState::Evicting
        | ProcessState::Evicted
        | ProcessState::Returning
        | ProcessState::Restoring => {
            let what = "has its memory on the host, and continues when that is back";
            found.of(process, what);
        }
        _ => {}
    }
}

pub(super) fn denied(found: &mut Found<'_>, process: &ProcessSample, holding: &Holding) {
    let recent = found.data.log.denials(found.data.sample.time_ns, NEWS_NS);
    memory::denied(found, process, holding, &recent);
    memory::waits_for_memory(found, process, holding);
}

pub(super) fn capped(found: &mut Found<'_>, process: &ProcessSample, holding: &Holding) {
    let (data, gpu, who) = (found.data, holding.gpu, Who::of(process));
    let spent = data.spent(who, gpu);
    let Some(cap) = process.share.cap.filter(|cap| *cap < 100) else {
        return;
    };
    if spent.wait <= WAITS || spent.hold * 100.0 <= cap as f32 * 0.8 {
        return;
    }
    let more = (cap + cap.div_ceil(2)).min(100);
    found
        .about(
            process,
            holding,
            format!("has the {cap}% of GPU{gpu} that its cap allows"),
        )
        .propose(
            format!("raise its cap to {more}%"),
            format!("let it have up to {more}%"),
            Edit::share(who, |share| share.cap = Set::To(more)),
        )
        .costs("time", rivals(data, gpu, who));
}

/// Share of the time for which a process's memory moves before that is the reason of its speed.
const MOVES: f64 = 0.1;

pub(super) fn moved(found: &mut Found<'_>, process: &ProcessSample, holding: &Holding) {
    let (data, gpu, who) = (found.data, holding.gpu, Who::of(process));
    let moving = data.rates(who, gpu).map_or(0.0, |rates| rates.moving);
    let (Some(counters), Some([median, ..])) = (process.evictions(), process.wakes()) else {
        return;
    };
    if moving < MOVES || process.share.pinned {
        return;
    }
    let what = format!(
        "was evicted {} in the last hour; a request that finds its memory away waits {}, and it moves for {:.0}% of the time",
        some(counters.evictions_in_hour, "time"),
        short_time(median),
        moving * 100.0
    );
    let others = listed(data, gpu, |other| Who::of(other) != who);
    found
        .about(process, holding, what)
        .propose(
            "pin it",
            format!("keep its memory on GPU{gpu}"),
            Edit::share(who, |share| share.pinned = Set::To(true)),
        )
        .costs("room", others);
}

pub(super) fn unhindered(found: &mut Found<'_>, process: &ProcessSample, holding: &Holding) {
    let (data, gpu) = (found.data, holding.gpu);
    let spent = data.spent(Who::of(process), gpu);
    if spent.wait > WAITS {
        return;
    }
    let (hold, wait) = (spent.hold * 100.0, spent.wait * 100.0);
    let device = data.sample.devices.get(gpu);
    let slowed = device.and_then(|device| device.nvml.slowed_by);
    let what = match slowed.and_then(|slowed| slowed.warning()) {
        Some(warning) => format!("hardly waits ({wait:.0}%); GPU{gpu} is {warning}"),
        None if let Some((others, percent)) = used_beside(data, process, holding) => {
            let others = some(others, "other job");
            let what =
                format!("shares GPU{gpu} with {others}, and {percent}% of its use is theirs");
            let finding = found.about(process, holding, what);
            finding.evidence = "and without turns its waits for them are not measured".into();
            if !advised(finding, data, process, gpu) {
                finding.advise("gpushare tune tries what serves these jobs");
            }
            return;
        }
        None if spent.hold > 0.8 => {
            format!("has GPU{gpu} {hold:.0}% of the time: it is as fast as the GPU")
        }
        None => return elsewhere(found, process, holding),
    };
    found.about(process, holding, what);
}

/// A job with this share of a device's time, in per cent, uses it.
const USES: u32 = 5;

/// Returns how many other jobs use a device beside a process without turns, and their part of what all use, in per cent. A process that
/// hardly uses it itself is slowed by something else.
fn used_beside(data: &Data, process: &ProcessSample, holding: &Holding) -> Option<(usize, u32)> {
    if holding.policy.0.kind.is_gated() {
        return None;
    }
    let uses = |holding: &Holding| holding.nvml.util_percent.filter(|percent| *percent >= USES);
    let own = uses(holding)?;
    let others = data.there(holding.gpu);
    let others = others.filter(|(other, _)| Who::of(other) != Who::of(process));
    let others: Vec<u32> = others.filter_map(|(_, held)| uses(held)).collect();
    let theirs: u32 = others.iter().sum();
    (theirs > 0).then(|| (others.len(), theirs * 100 / (theirs + own)))
}

/// Returns true if what a process waits for others is not known, because there are no turns on a device that they use too.
pub fn shares_without_turns(data: &Data, process: &ProcessSample) -> bool {
    let mut devices = process.devices.iter();
    devices.any(|holding| used_beside(data, process, holding).is_some())
}

/// A thread with this share of a core, in per cent, has no more to get.
const WHOLE_CORE: u32 = 90;
/// A thread that waits for a processor for this share of its time, in per cent, is slowed by that.
const SHORT_OF_CORES: u32 = 10;

/// Explains a job that neither waits for others nor fills the device, by its threads on the host.
fn elsewhere(found: &mut Found<'_>, process: &ProcessSample, holding: &Holding) {
    let (data, gpu, threads) = (found.data, holding.gpu, process.threads);
    let spent = data.spent(Who::of(process), gpu);
    let leaves = match holding.policy.0.kind.is_gated() {
        true => Some((1.0 - spent.hold - spent.wait).max(0.0) * 100.0),
        // Without turns only NVML knows.
        false => holding
            .nvml
            .util_percent
            .map(|percent| 100.0 - percent.min(100) as f32),
    };
    let (Some(leaves), Some(busiest), Some(waits)) =
        (leaves, threads.busiest_percent, threads.waits_percent)
    else {
        let (hold, wait) = (spent.hold * 100.0, spent.wait * 100.0);
        let what = format!(
            "hardly waits ({wait:.0}%) and holds GPU{gpu} {hold:.0}% of the time: what slows it is elsewhere, not on the GPU"
        );
        let finding = found.about(process, holding, what);
        if threads.readable == Some(false) {
            finding.evidence = "and its threads are not readable from here".into();
        }
        return;
    };
    let leaves = format!("leaves GPU{gpu} alone {leaves:.0}% of its time");
    if waits >= SHORT_OF_CORES {
        let what = format!("{leaves}, and waits {waits}% of its time for a processor");
        let finding = found.about(process, holding, what);
        let machine = &data.sample.machine;
        if let (Some(count), Some(used)) = (machine.processors, machine.cpu_percent) {
            finding.evidence = format!(
                "on a host whose {} are used to {used}%",
                some(count, "processor")
            );
        }
        finding.advise("give it more processors, or run fewer programs beside it");
    } else if busiest >= WHOLE_CORE {
        let what = format!(
            "{leaves} with one core at {}%: its host code is the limit",
            busiest.min(100)
        );
        found.about(process, holding, what);
    } else {
        let what = format!("{leaves}, and waits there for neither the GPU nor a processor");
        found.about(process, holding, what).evidence =
            format!("its busiest thread uses {busiest}% of a core");
    }
}

/// Returns true if a process waits for a device and has much less of it than its share.
pub fn has_too_little(data: &Data, process: &ProcessSample) -> bool {
    process.devices.iter().any(|holding| {
        let spent = data.spent(Who::of(process), holding.gpu);
        let fair = data.entitled(process, holding.gpu);
        spent.wait > WAITS && fair.is_some_and(|fair| is_too_little(spent.hold, fair))
    })
}

fn is_too_little(hold: f32, fair: f64) -> bool {
    f64::from(hold) < lock::ENOUGH * fair
}

pub(super) fn waits(found: &mut Found<'_>, process: &ProcessSample, holding: &Holding) {
    let (data, gpu) = (found.data, holding.gpu);
    let spent = data.spent(Who::of(process), gpu);
    let behind = match data.behind(process, holding) {
        Some((letter, _, share)) => format!(", {:.0}% of it for {letter}", share * 100.0),
        None => String::new(),
    };
    let device = data.sample.devices.get(gpu);
    let policy = device.map(|device| device.policy.0).unwrap_or_default();
    let gets = f64::from(spent.hold);
    let fair = data.entitled(process, gpu).unwrap_or(gets);
    let (verdict, though) = match (is_too_little(spent.hold, fair), policy.order) {
        (false, _) => ("nothing wrong", "though"),
        (true, Order::Fair) => ("too little", "because"),
        (true, _) => ("the policy puts others first", "so"),
    };
    let what = format!(
        "gets {:.0}%, its fair share is {:.0}%: {verdict}",
        gets * 100.0,
        fair * 100.0
    );
    let finding = found.about(process, holding, what);
    finding.evidence = format!(
        "{though} it waits {:.0}% of its time{behind}, under {}",
        spent.wait * 100.0,
        in_words(&policy)
    );
    if let Some(waits) = process
        .threads
        .waits_percent
        .filter(|waits| *waits >= SHORT_OF_CORES)
    {
        finding.evidence += &format!("; it also waits {waits}% of its time for a processor");
    }
    match advised(finding, data, process, gpu) {
        true => {}
        false if policy.kind.is_gated() && policy.order == Order::Priority => {
            go_first(finding, data, process, gpu);
        }
        false => lock::feed(finding, data, process, holding),
    }
}

/// Proposes what is advised for a device, if the process gains by it. Returns false if nothing is.
fn advised(finding: &mut Finding, data: &Data, process: &ProcessSample, gpu: usize) -> bool {
    let helps = |advice: &&Finding| {
        let remedy = advice.remedy.as_ref();
        remedy.is_some_and(|remedy| remedy.gainers.contains(&Who::of(process)))
    };
    let advice = data.advice.of(gpu).filter(helps);
    if let Some(advice) = advice {
        (finding.remedy, finding.cost) = (advice.remedy.clone(), advice.cost.clone());
    }
    advice.is_some()
}

/// Proposes a higher priority than that of every other job, unless the job has the highest already.
fn go_first(finding: &mut Finding, data: &Data, process: &ProcessSample, gpu: usize) {
    let who = Who::of(process);
    let there = data.there(gpu).filter(|(other, _)| Who::of(other) != who);
    let highest = there.map(|(other, _)| other.share.priority).max();
    let Some(highest) = highest.filter(|highest| *highest >= process.share.priority) else {
        return;
    };
    let priority = highest.saturating_add(1).min(19);
    if priority > process.share.priority {
        finding
            .propose(
                format!("priority {priority}"),
                "put it first whenever it wants the GPU",
                Edit::priority(who, priority),
            )
            .costs("turns while it works", rivals(data, gpu, who));
    }
}
