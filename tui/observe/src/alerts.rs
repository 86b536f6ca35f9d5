//! Alerts: the current faults of a machine, as sentences. Each rule is one function; [`RULES`] lists them all.

use crate::data::Data;
use crate::data::alert::{Alert, OWN, Remedy, Severity, settled};
use gpushare_sample::{Holding, ProcessSample, Who};

mod advice;
mod lock;
mod memory;
mod process;

/// A rule that detects one fault.
pub struct Rule {
    /// The rule's name in JSON.
    pub kind: &'static str,
    /// The rule's word on screen.
    pub word: &'static str,
    /// The severity of a finding.
    pub severity: Severity,
    /// The fault that the rule detects, for help.
    pub about: &'static str,
    find: fn(&Data, &mut Vec<Finding>),
}

struct Finding {
    who: Option<Who>,
    gpu: Option<usize>,
    sentence: String,
    remedy: Option<Remedy>,
}

macro_rules! rules {
    ($($kind:literal $word:literal $severity:ident $about:literal $find:path;)*) => {
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
    "violation"    "BUG"     Warning "two holders of one lock were seen, where no broker serves"     lock::violation;
    "tampered"     "TAMPER"  Warning "where a broker serves, a program writes over the state that all users share"  lock::tampered;
    "crash"        "CRASH"   Warning "a kernel failed and ended its context, under MPS those of all clients"  process::crash;
    "evict_lost"   "LOST"    Warning "the memory of a process was lost when it was evicted or brought back"   process::lost_memory;
    "stuck"        "STUCK"   Warning "a process shows no sign of life"                              process::stuck;
    "starving"     "STARVE"  Warning "a process waits and gets less than 80% of its fair share"     lock::starving;
    "crowded"      "CROWDED" Note    "processes wait for most of their time, each with its fair share"  lock::crowded;
    "hog"          "HOG"     Warning "a process holds the lock of an idle GPU while others wait"    lock::hog;
    "over_quota"   "OVER"    Warning "a process holds more than its quota"                          memory::over_quota;
    "denials"      "DENIED"  Warning "allocations were refused in the last 30 s"                    memory::denials;
    "memwait"      "MEMWAIT" Note    "an allocation waits for memory"                               memory::waits;
    "unevicted"    "STAYS"   Note    "a process that is to be evicted stays on its GPU"             process::unevicted;
    "thrashing"    "THRASH"  Warning "who wants memory of an overcommitted GPU finds only processes that just came back"  memory::thrashing;
    "forced"       "FORCED"  Warning "the lock was taken from its holder in the last 30 s"          lock::forced;
    "late"         "LATE"    Warning "a process released the lock while its work still ran"         lock::late;
    "invalid"      "INVALID" Warning "a launch variable had an invalid value"                       process::invalid;
    "refused"      "FULL"    Warning "processes run uncounted because all slots are taken"          process::refused;
    "faults"       "FAULT"   Warning "the shim had an internal fault: a call ran unmanaged"         process::faults;
    "unsized"      "UNSIZED" Warning "a process holds memory of unknown size that is not charged"   memory::of_unknown_size;
    "unmanaged"    "NOSHIM"  Warning "NVML sees a process that runs without the shim"               process::unmanaged;
    "elsewhere"    "ASTRAY"  Warning "a process runs with the library, on other segments than these"  process::elsewhere;
    "unobeyed"     "WAITING" Note    "a process has not applied the latest edit"                    process::unobeyed;
    "traced"       "TRACED"  Note    "a process's calls are recorded, marked t; each takes longer"  process::traced;
    "overcommit"   "PROMISE" Note    "quotas add up to more than the GPU has"                       memory::overcommit;
    "unaccounted"  "UNKNOWN" Note    "NVML reports memory that gpushare did not count"              memory::unaccounted;
    "advice"       "ADVICE"  Note    "another policy would serve the jobs of the last minute better" advice::advice;
    "lost"         "LOST"    Note    "events were overwritten before they were read"                process::lost;
    "rule"         "RULE"    Warning "a rule of the settings file holds"                            by_settings;
}

/// Rules of the settings use the findings of the other rules, so they run after them.
fn by_settings(_: &Data, _: &mut Vec<Finding>) {}

/// Returns every alert, worst first. Alerts of the previous call that were not found this time stay for a short time.
pub fn find(data: &Data, before: &[Alert]) -> Vec<Alert> {
    let now_ns = data.sample.time_ns;
    let found = found(data);
    let before: Vec<Alert> = before
        .iter()
        .filter(|alert| alert.kind != OWN)
        .cloned()
        .collect();
    let mut alerts = settled(found, &before, now_ns, |who| data.process(who).is_some());
    alerts.sort_by_key(rank);
    alerts
}

/// Returns the sort key of an alert: the worst come first.
pub fn rank(alert: &Alert) -> (Severity, Option<usize>) {
    let rule = RULES.iter().position(|rule| rule.kind == alert.kind);
    (alert.severity, rule)
}

fn found(data: &Data) -> Vec<Alert> {
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
            remedy: finding.remedy,
            since_ns: data.sample.time_ns,
            seen_ns: data.sample.time_ns,
        }));
    }
    alerts
}

/// Maximum age of an occurrence that is still reported.
const NEWS_NS: u64 = 30_000_000_000;

fn name(data: &Data, process: &ProcessSample) -> String {
    let letter = data.letter(Who::of(process));
    format!("{letter} {}", process.name())
}

fn each(data: &Data, mut one: impl FnMut(&ProcessSample, &Holding)) {
    for process in &data.sample.processes {
        for holding in &process.devices {
            one(process, holding);
        }
    }
}

fn about(
    process: &ProcessSample,
    holding: &Holding,
    sentence: String,
    remedy: Option<Remedy>,
) -> Finding {
    Finding {
        who: Some(Who::of(process)),
        gpu: Some(holding.gpu),
        sentence,
        remedy,
    }
}

/// Writes a counter with its noun, as [`some`] does.
fn some_of(count: u64, noun: &str) -> String {
    some(usize::try_from(count).unwrap_or(usize::MAX), noun)
}

/// Writes a count with its noun: `1 time`, `3 times`.
fn some(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}
