//! What is wrong now, as sentences. Each rule is one function; [`RULES`] lists them all.

use crate::sample::{Holding, LockState, ProcessSample, ProcessState};
use crate::units::{short_size, short_time};

use super::{Data, Who};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Somebody suffers.
    Warning,
    /// Good to know.
    Note,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// How bad.
    pub severity: Severity,
    /// The rule's name, as in JSON.
    pub kind: &'static str,
    /// The word in front of the sentence on screen.
    pub word: &'static str,
    /// Whom it is about.
    pub who: Option<Who>,
    /// Which device it is about.
    pub gpu: Option<usize>,
    /// What is wrong, and what helps.
    pub sentence: String,
}

/// A rule: what it is called, what it looks for, and how it finds it.
pub struct Rule {
    /// Its name in JSON.
    pub kind: &'static str,
    /// The word on screen.
    pub word: &'static str,
    /// How bad a finding is.
    pub severity: Severity,
    /// What it looks for, for help.
    pub about: &'static str,
    find: fn(&Data, &mut Vec<Finding>),
}

struct Finding {
    who: Option<Who>,
    gpu: Option<usize>,
    sentence: String,
}

macro_rules! rules {
    ($($kind:literal $word:literal $severity:ident $find:ident $about:literal;)*) => {
        /// Every rule, the most urgent first.
        pub static RULES: &[Rule] = &[$(Rule {
            kind: $kind,
            word: $word,
            severity: Severity::$severity,
            about: $about,
            find: $find,
        },)*];
    };
}

rules! {
    "violation"    "BUG"     Warning violation    "two holders of one lock were seen";
    "stuck"        "STUCK"   Warning stuck        "a process shows no sign of life";
    "starving"     "STARVE"  Warning starving     "a process waits and gets less than 80% of its fair share";
    "hog"          "HOG"     Warning hog          "a process holds the lock of an idle GPU while others wait";
    "over_quota"   "OVER"    Warning over_quota   "a process holds more than its quota";
    "denials"      "DENIED"  Warning denials      "allocations were refused in the last 30 s";
    "forced"       "FORCED"  Warning forced       "the lock was taken from its holder in the last 30 s";
    "invalid"      "INVALID" Warning invalid      "a launch variable had a value that means nothing";
    "refused"      "FULL"    Warning refused      "processes run uncounted because all slots are taken";
    "unmanaged"    "NOSHIM"  Warning unmanaged    "NVML sees a process and no shim does";
    "unobeyed"     "WAITING" Note    unobeyed     "a process has not obeyed the latest edit";
    "overcommit"   "PROMISE" Note    overcommit   "quotas add up to more than the GPU has";
    "unaccounted"  "UNKNOWN" Note    unaccounted  "NVML counts memory that no ledger does";
    "lost"         "LOST"    Note    lost         "events were overwritten before they were read";
}

/// Every alert, worst first.
pub(super) fn find(data: &Data) -> Vec<Alert> {
    let mut alerts = Vec::new();
    let mut findings = Vec::new();
    for rule in RULES {
        (rule.find)(data, &mut findings);
        alerts.extend(findings.drain(..).map(|finding| Alert {
            severity: rule.severity,
            kind: rule.kind,
            word: rule.word,
            who: finding.who,
            gpu: finding.gpu,
            sentence: finding.sentence,
        }));
    }
    alerts.sort_by_key(|alert| alert.severity);
    alerts
}

/// How long ago a thing may be and still be news.
const NEWS_NS: u64 = 30_000_000_000;
/// Nobody starves who has waited less.
const PATIENCE_NS: u64 = 1_000_000_000;
/// What the driver itself takes on a device and for each process on it.
const OVERHEAD_BYTES: u64 = 1 << 30;

fn name(data: &Data, process: &ProcessSample) -> String {
    let letter = data.letter(Who::of(process));
    format!("{letter} {} {}", process.shown_pid(), process.name())
}

fn each(data: &Data, mut one: impl FnMut(&ProcessSample, &Holding)) {
    for process in &data.sample.processes {
        for holding in &process.devices {
            one(process, holding);
        }
    }
}

fn about(process: &ProcessSample, holding: &Holding, sentence: String) -> Finding {
    Finding {
        who: Some(Who::of(process)),
        gpu: Some(holding.gpu),
        sentence,
    }
}

fn violation(data: &Data, found: &mut Vec<Finding>) {
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

fn stuck(data: &Data, found: &mut Vec<Finding>) {
    for process in data
        .sample
        .processes
        .iter()
        .filter(|p| p.state == ProcessState::Stuck)
    {
        let silent = data.sample.time_ns.saturating_sub(process.heartbeat_ns);
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!(
                "{} shows no sign of life for {}; it may be stopped (kill -CONT {})",
                name(data, process),
                short_time(silent),
                process.shown_pid()
            ),
        });
    }
}

fn starving(data: &Data, found: &mut Vec<Finding>) {
    let contenders: Vec<u32> = (0..data.sample.devices.len())
        .map(|gpu| contending_weight(data, gpu))
        .collect();
    each(data, |process, holding| {
        let waiting = data.sample.time_ns.saturating_sub(holding.lock.since_ns);
        let eligible = !process.paused && process.state != ProcessState::Stuck;
        if holding.lock.state != LockState::Wait || !eligible || waiting < PATIENCE_NS {
            return;
        }
        let spent = data.spent(Who::of(process), holding.gpu);
        let sum = contenders
            .get(holding.gpu)
            .copied()
            .unwrap_or(0)
            .max(process.weight)
            .max(1);
        let share = f64::from(process.weight) / f64::from(sum);
        let fair = process
            .cap_percent
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
        process.slot.is_some() && !process.paused && spent.hold + spent.wait > 0.05
    };
    let contenders = data
        .sample
        .holdings(gpu)
        .filter(|(process, _)| wanted(process));
    contenders.map(|(process, _)| process.weight).sum()
}

fn hog(data: &Data, found: &mut Vec<Finding>) {
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

fn over_quota(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        let Some(quota) = holding
            .quota_bytes
            .filter(|quota| holding.used_bytes > *quota)
        else {
            return;
        };
        found.push(about(
            process,
            holding,
            format!(
                "{} holds {} of {} on GPU{}; new allocations are denied until it frees {}",
                name(data, process),
                short_size(holding.used_bytes),
                short_size(quota),
                holding.gpu,
                short_size(holding.used_bytes - quota)
            ),
        ));
    });
}

fn denials(data: &Data, found: &mut Vec<Finding>) {
    let recent = data
        .log
        .denials(data.sample.time_ns.saturating_sub(NEWS_NS));
    each(data, |process, holding| {
        let Some((count, last)) = recent.get(&(Who::of(process), holding.gpu)) else {
            return;
        };
        let limit = holding
            .quota_bytes
            .map_or("no quota of its own".into(), short_size);
        found.push(about(
            process,
            holding,
            format!(
                "{} was denied {} in 30 s, the last of {}, at {} of {limit}; raise it with [e]",
                name(data, process),
                some(*count, "allocation"),
                short_size(*last),
                short_size(holding.used_bytes),
            ),
        ));
    });
}

fn forced(data: &Data, found: &mut Vec<Finding>) {
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

/// `1 time`, `3 times`.
fn some(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

fn invalid(data: &Data, found: &mut Vec<Finding>) {
    for process in data.sample.processes.iter().filter(|p| p.invalid) {
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!(
                "{} was started with a GPUSHARE_ value that means nothing and runs without it; its stderr says which",
                name(data, process)
            ),
        });
    }
}

fn refused(data: &Data, found: &mut Vec<Finding>) {
    if data.sample.refused > 0 {
        found.push(Finding {
            who: None,
            gpu: None,
            sentence: format!(
                "{} processes found no free slot of {} and ran uncounted",
                data.sample.refused,
                shm_layout::MAX_PROCESSES
            ),
        });
    }
}

fn unmanaged(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        if process.slot.is_none() {
            found.push(about(
                process,
                holding,
                format!(
                    "{} uses {} on GPU{} without gpushare; start it with gpushare run",
                    name(data, process),
                    short_size(holding.used_bytes),
                    holding.gpu
                ),
            ));
        }
    });
}

fn unobeyed(data: &Data, found: &mut Vec<Finding>) {
    let generation = data.sample.generation;
    for process in data
        .sample
        .processes
        .iter()
        .filter(|p| p.slot.is_some() && p.acknowledged < generation)
    {
        if process.state == ProcessState::Gone {
            continue;
        }
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!(
                "{} obeys edit {} and not yet edit {generation}",
                name(data, process),
                process.acknowledged
            ),
        });
    }
}

fn overcommit(data: &Data, found: &mut Vec<Finding>) {
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let managed = || data.sample.holdings(gpu).filter(|(p, _)| p.slot.is_some());
        let quotas: u64 = managed().filter_map(|(_, h)| h.quota_bytes).sum();
        let unlimited = managed().filter(|(_, h)| h.quota_bytes.is_none()).count();
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
        });
    }
}

fn unaccounted(data: &Data, found: &mut Vec<Finding>) {
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let Some(nvml) = device.used_bytes else {
            continue;
        };
        let known: u64 = data.sample.holdings(gpu).map(|(_, h)| h.used_bytes).sum();
        let processes = data.sample.holdings(gpu).count() as u64;
        let unknown = nvml.saturating_sub(known);
        if unknown > OVERHEAD_BYTES + processes * (OVERHEAD_BYTES / 2) {
            found.push(Finding {
                who: None,
                gpu: Some(gpu),
                sentence: format!(
                    "GPU{gpu}: {} in use by NVML's count are in no ledger ({} of {})",
                    short_size(unknown),
                    short_size(known),
                    short_size(nvml)
                ),
            });
        }
    }
}

fn lost(data: &Data, found: &mut Vec<Finding>) {
    if data.log.lost > 0 {
        found.push(Finding {
            who: None,
            gpu: None,
            sentence: format!(
                "{} events came faster than they were read; lanes may have gaps",
                data.log.lost
            ),
        });
    }
}
