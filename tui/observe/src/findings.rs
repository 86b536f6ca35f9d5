//! The table of findings: what gpushare knows to be wrong, slow or better done otherwise, and the function that finds it.
//!
//! Four readers use the table. [`update`] finds the faults of this moment, which are the alerts. [`explain`] finds the
//! reason of each job's speed. [`advise`] finds the policy that would serve the jobs of a device better. The rules of the
//! settings file look at the alerts and are alerts themselves. All of them print a [`Finding`].

use crate::data::Data;
use crate::data::effects::Effect;
use crate::evidence::{Evidence, Job};
use crate::finding::{Cost, Finding, Kind, Listed, OWN, Severity, settled};
use gpushare_base::text::units::some;
use gpushare_sample::{Holding, ProcessSample, Sample, Who};

mod device;
mod lock;
mod memory;
mod policy;
mod process;
mod reason;

/// A row of the table.
pub struct Rule {
    /// The facts that its findings have in common.
    pub kind: Kind,
    condition: Condition,
}

/// The function that finds what a row is about.
enum Condition {
    /// A fault of this moment: an alert.
    Fault(fn(&mut Found<'_>)),
    /// The reason of one job's speed; the first that holds is given.
    Reason(fn(&mut Found<'_>, &ProcessSample, &Holding)),
    /// A policy that would serve the jobs of a device better; the first that fits is given.
    Advice(fn(&'static Kind, &Evidence) -> Option<Finding>),
    /// A rule of the settings file, which the dashboard checks.
    Settings,
}

use Condition::{Advice, Fault, Reason, Settings};

macro_rules! rules {
    ($($id:literal $word:literal $severity:ident $about:literal $condition:expr $(, $basis:literal)?;)*) => {
        /// Every row; of alerts, the most urgent first.
        pub static RULES: &[Rule] = &[$(Rule {
            kind: Kind {
                id: $id,
                word: $word,
                severity: Severity::$severity,
                about: $about,
                basis: concat!($($basis)?),
            },
            condition: $condition,
        },)*];
    };
}

rules! {
    "violation"    "BUG"     Warning "two holders of one lock were seen, where no broker serves"     Fault(lock::violation);
    "tampered"     "TAMPER"  Warning "where a broker serves, a program writes over the state that all users share"  Fault(lock::tampered);
    "crash"        "CRASH"   Warning "a kernel failed and ended its context, under MPS those of all clients"  Fault(process::crash);
    "xid"          "XID"     Warning "the driver reported an error of a GPU (Xid) in the last ten minutes" Fault(device::xid);
    "evict_lost"   "LOST"    Warning "the memory of a process was lost when it was evicted or brought back"   Fault(process::lost_memory);
    "stuck"        "STUCK"   Warning "a process shows no sign of life"                              Fault(process::stuck);
    "starving"     "STARVE"  Warning "a process waits and gets less than 80% of its fair share"     Fault(lock::starving);
    "crowded"      "CROWDED" Note    "processes wait for most of their time, each with its fair share"  Fault(lock::crowded);
    "hog"          "HOG"     Warning "a process holds the lock of an idle GPU while others wait"    Fault(lock::hog);
    "over_quota"   "OVER"    Warning "a process holds more than its quota"                          Fault(memory::over_quota);
    "near"         "NEAR"    Note    "a process holds 97% of its quota, or will reach it within ten minutes"  Fault(memory::near);
    "denials"      "DENIED"  Warning "allocations were refused in the last 30 s"                    Fault(memory::denials);
    "memwait"      "MEMWAIT" Note    "an allocation waits for memory"                               Fault(memory::waits);
    "unevicted"    "STAYS"   Note    "a process that is to be evicted stays on its GPU"             Fault(process::unevicted);
    "thrashing"    "THRASH"  Warning "memory moves between a GPU and the host for more than a fifth of the time, or who wants some finds only processes that just came back"  Fault(memory::thrashing);
    "slowed"       "SLOWED"  Warning "heat, the power supply or the hardware keeps a GPU's clocks low" Fault(device::slowed);
    "link"         "LINK"    Warning "the PCIe link of a GPU runs with fewer lanes, or of a busy one slower, than it could"  Fault(device::link);
    "forced"       "FORCED"  Warning "the lock was taken from its holder in the last 30 s"          Fault(lock::forced);
    "late"         "LATE"    Warning "a process released the lock while its work still ran"         Fault(lock::late);
    "invalid"      "INVALID" Warning "a launch variable had an invalid value"                       Fault(process::invalid);
    "refused"      "FULL"    Warning "processes run uncounted because all slots are taken"          Fault(process::refused);
    "faults"       "FAULT"   Warning "the shim had an internal fault: a call ran unmanaged"         Fault(process::faults);
    "unsized"      "UNSIZED" Warning "a process holds memory of unknown size that is not charged"   Fault(memory::of_unknown_size);
    "unmanaged"    "NOSHIM"  Warning "NVML sees a process that runs without the shim"               Fault(process::unmanaged);
    "elsewhere"    "ASTRAY"  Warning "a process runs with the library, on other segments than these"  Fault(process::elsewhere);
    "unobeyed"     "WAITING" Note    "a process has not applied the latest edit"                    Fault(process::unobeyed);
    "unsliced"     "SLICES"  Warning "a process does not follow hw-timeslice, because its card or driver is not known to obey"  Fault(process::unsliced);
    "traced"       "TRACED"  Note    "a process's calls are recorded, marked t; each takes longer"  Fault(process::traced);
    "overcommit"   "PROMISE" Note    "quotas add up to more than the GPU has"                       Fault(memory::overcommit);
    "unaccounted"  "UNKNOWN" Note    "NVML reports memory that gpushare did not count"              Fault(memory::unaccounted);
    "parked"       "PARKED"  Note    "a GPU that has done nothing for a minute rests, and its memory is held"  Fault(device::parked);
    "advice"       "ADVICE"  Note    "another policy would serve the jobs of the last minute better" Fault(advice);
    "silent"       "SILENT"  Warning "a card of this machine does not answer NVML"                  Fault(device::silent);
    "lost"         "LOST"    Note    "events were overwritten before they were read"                Fault(process::lost);
    "rule"         "RULE"    Warning "a rule of the settings file holds"                            Settings;

    "halted"       "WHY"     Note    "a process is paused, stopped, or without its memory or its context"  Reason(reason::halted);
    "denied"       "WHY"     Note    "a process cannot allocate, and cannot go on without"          Reason(reason::denied);
    "capped"       "WHY"     Note    "a process has all the time that its cap allows"               Reason(reason::capped);
    "moved"        "WHY"     Note    "a process waits for its memory, which comes and goes"         Reason(reason::moved);
    "unhindered"   "WHY"     Note    "a process hardly waits: the GPU or its own host code is the limit"  Reason(reason::unhindered);
    "waits"        "WHY"     Note    "a process waits for others"                                   Reason(reason::waits);

    "long_kernels" "ADVICE" Note     "a client of MPS has long kernels, and the other clients wait for them"  Advice(policy::long_kernels),
        "H200, 2026-11-28, an inference under MPS and its client priority: p50 172 times that alone beside kernels of 90 ms, 1 077 times \
         beside kernels of 40 ms that fill the card; by time slicing 1.3 and 1.2 times";
    "turns_under_mps" "ADVICE" Note  "jobs under MPS take turns"                                    Advice(policy::turns_under_mps),
        "H200, 2026-11-26, an inference beside two trainings: 47.5 steps/s under MPS, 47.2 under MPS and overlap; at most 38.6 \
         in turns";
    "priorities"   "ADVICE"  Note    "jobs have different priorities, and the policy does not act on them"  Advice(policy::priorities),
        "H200, 2026-11-28, an inference beside two trainings: p50 5.43 ms under overlap order=priority, 7.25 ms without a policy, \
         4.82 ms alone; the trainings did as much as without a policy";
    "urgent_waits" "ADVICE"  Note    "a job of higher priority waits for its turn"                  Advice(policy::urgent_waits),
        "H200, 2026-11-26, an inference beside two trainings: p99 10.6 ms and 39.3 steps/s under overlap order=priority, 14.8 ms \
         and 32.4 under timeslice=2ms order=priority";
    "small_waits"  "ADVICE"  Note    "a job that needs little waits for jobs that need much"        Advice(policy::small_waits),
        "H200, 2026-11-26, an inference beside two trainings: p99 10.6 ms under overlap order=priority, 55.3 ms under \
         timeslice=20ms order=fair; the trainings had 97 % of what they have without a policy";
    "idle_holder"  "ADVICE"  Note    "holders keep a device that they do not use"                   Advice(policy::idle_holder),
        "H100, a server that answers requests: under idle=5ms each request left the device empty for 5 ms";
    "spare_time"   "ADVICE"  Note    "jobs are held back for the shares of others, and the device is often empty"  Advice(policy::spare_time),
        "H200, 2026-11-27, two trainings that wait for their processor, weights 3:1: the second did 5.4 steps/s under \
         timeslice=5ms order=fair and 8.5 over MPS under overlap order=fair; 25.8 under hw-timeslice=4ms, 26.1 without a policy";
    "short_turns"  "ADVICE"  Note    "turns are so short that hand-offs cost much"                  Advice(policy::short_turns),
        "H200, 2026-11-26, an urgent task beside two others: their kernels/s were 188 under always, 210 under timeslice=5ms";
    "long_turns"   "ADVICE"  Note    "equal jobs wait for long turns"                               Advice(policy::long_turns),
        "H200, 2026-11-26, two servers under timeslice=5ms order=fair: 102 % of the tokens/s of one alone, 99 % without a policy, \
         and at most 7.7 ms between tokens in 99 of 100 cases";
    "weights"      "ADVICE"  Note    "jobs have different weights, and no policy acts on them"      Advice(policy::weights),
        "H200, 2026-11-20, timeslice=5ms order=fair: weights 1:2:4 had 14.3, 28.6 and 57.1 % of the time (14.3, 28.6 and 57.1 \
         wanted); 2026-11-26: two servers had 102 % of the tokens/s of one alone, 99 % without a policy";
    "equals"       "ADVICE"  Note    "equal jobs keep a device busy without a policy"               Advice(policy::equals),
        "H200, 2026-11-20, timeslice=5ms order=fair: two alike had 50 % each, within 0.2; 2026-11-28, four frameworks did 100 % of \
         one alone together under hw-timeslice=5ms, 94 % under timeslice=5ms order=fair, 94 % without a policy";
}

/// Returns the kinds of findings that are alerts, the most urgent first.
pub fn alerts() -> impl Iterator<Item = &'static Kind> {
    let alerts = RULES
        .iter()
        .filter(|rule| matches!(rule.condition, Fault(_) | Settings));
    alerts.map(|rule| &rule.kind)
}

/// Returns the kind of findings that rules of the settings make.
pub fn own() -> &'static Kind {
    let own = RULES.iter().find(|rule| matches!(rule.condition, Settings));
    &own.expect("the table has a row for the settings").kind
}

/// Maximum age of an occurrence that is still reported.
const NEWS_NS: u64 = 30_000_000_000;
/// A fact that is found within this time after the first sample may be older than that.
const START_NS: u64 = 5_000_000_000;

/// Updates the advice and the alerts, worst first. Alerts that were not found this time stay for a short time.
pub fn update(data: &mut Data) {
    let mut standing = std::mem::take(&mut data.advice);
    for mut evidence in standing.evidence(&data.sample) {
        for job in &mut evidence.jobs {
            job.title = data.name(Who::Slot(job.slot));
        }
        standing.hear(evidence.gpu, advise(&evidence));
    }
    data.advice = standing;
    let mut before = std::mem::take(&mut data.alerts);
    before.retain(|alert| alert.kind.id != OWN);
    let lives = |who| data.process(who).is_some();
    let mut alerts = settled(faults(data), &before, data.sample.time_ns, lives);
    alerts.sort_by_key(rank);
    data.alerts = alerts;
}

/// Returns the sort key of an alert: the worst come first.
pub fn rank(alert: &Finding) -> (Severity, Option<usize>) {
    let place = RULES.iter().position(|rule| rule.kind.id == alert.kind.id);
    (alert.kind.severity, place)
}

fn faults(data: &Data) -> Vec<Finding> {
    let mut all = Vec::new();
    for rule in RULES {
        if let Fault(find) = rule.condition {
            let mut found = Found::new(data, &rule.kind);
            find(&mut found);
            all.append(&mut found.list);
        }
    }
    all.iter_mut().for_each(|finding| weigh(data, finding));
    all.retain(|finding| finding.kind.id != "advice" || finding.remedy.is_some());
    all
}

/// Returns the findings that memory moves too much on a device, by one sample.
pub fn thrashing(sample: &Sample) -> Vec<Finding> {
    let mut data = Data::default();
    data.update(sample.clone());
    let rule = RULES.iter().find(|rule| rule.kind.id == "thrashing");
    let Some(rule) = rule else {
        return Vec::new();
    };
    let mut found = Found::new(&data, &rule.kind);
    memory::thrashing(&mut found);
    found.list
}

/// Explains every managed job of a device, the one that waits most first.
pub fn explain(data: &Data, gpu: usize) -> Vec<Finding> {
    let managed = data.there(gpu).filter(|(p, _)| p.is_managed());
    let mut jobs: Vec<_> = managed.collect();
    let wait = |process: &ProcessSample| data.spent(Who::of(process), gpu).wait;
    jobs.sort_by(|a, b| wait(b.0).total_cmp(&wait(a.0)));
    let reason = |(process, holding): (&ProcessSample, &Holding)| {
        let mut reasons = RULES.iter().filter_map(|rule| {
            let Reason(find) = rule.condition else {
                return None;
            };
            let mut found = Found::new(data, &rule.kind);
            find(&mut found, process, holding);
            found.list.pop()
        });
        reasons.next()
    };
    let mut all: Vec<Finding> = jobs.into_iter().filter_map(reason).collect();
    all.iter_mut().for_each(|finding| weigh(data, finding));
    all
}

/// Returns the advice for a device; `None` if no change would help.
pub fn advise(evidence: &Evidence) -> Option<Finding> {
    RULES.iter().find_map(|rule| match rule.condition {
        Advice(find) => find(&rule.kind, evidence),
        _ => None,
    })
}

pub use memory::NEAR as NEAR_QUOTA;
pub use policy::{also, content};
pub use reason::{has_too_little, shares_without_turns};

/// Copies the advice that has lasted.
fn advice(found: &mut Found<'_>) {
    for gpu in found.data.sample.gpus() {
        if let Some(advice) = found.data.advice.of(gpu) {
            let new = found.on(gpu, format!("GPU{gpu}: {}", advice.what));
            (new.remedy, new.cost) = (advice.remedy.clone(), advice.cost.clone());
        }
    }
}

/// Withdraws a remedy that is in force, that was tried and undone, or by which no job gained when its policy was in force. Where the
/// effect of a policy was measured on this machine, the cost is the measured one.
fn weigh(data: &Data, finding: &mut Finding) {
    let Some(remedy) = &finding.remedy else {
        return;
    };
    let sample = &data.sample;
    let mut policies = remedy.edits.iter().filter_map(|edit| edit.policy(sample));
    let effects = match policies.next() {
        Some((gpu, new)) if new == sample.devices[gpu].policy.0 => return finding.withdraw(),
        Some((gpu, new)) => data.effect_of(gpu, &new),
        None => None,
    };
    if remedy.was_undone(sample, data.edits()) {
        return finding.withdraw();
    }
    if let Some(effects) = effects {
        weigh_by(&effects, finding, |who| data.name(who));
    }
}

/// Withdraws a remedy by which no job gained that should, and gives it the measured cost. `name` names a job.
pub fn weigh_by(effects: &[Effect], finding: &mut Finding, name: impl Fn(Who) -> String) {
    let gained = |who: &Who| {
        effects
            .iter()
            .any(|effect| effect.who == *who && effect.is_gain())
    };
    let remedy = finding.remedy.as_ref();
    if remedy.is_none_or(|remedy| !remedy.gainers.iter().any(gained)) {
        return finding.withdraw();
    }
    let lost = effects.iter().filter(|effect| effect.is_loss());
    let rates: Vec<_> = lost.clone().map(Effect::rates).collect();
    finding.cost = (!rates.is_empty()).then(|| Cost {
        what: "launches".into(),
        losers: Listed::of(lost, |effect| name(effect.who)),
        measured: Some(format!("{} a second, measured here", rates.join(", "))),
    });
}

/// The findings of one row.
struct Found<'a> {
    data: &'a Data,
    kind: &'static Kind,
    list: Vec<Finding>,
}

impl<'a> Found<'a> {
    fn new(data: &'a Data, kind: &'static Kind) -> Self {
        Self {
            data,
            kind,
            list: Vec::new(),
        }
    }

    /// Adds a finding about no process.
    fn add(&mut self, what: String) -> &mut Finding {
        let now_ns = self.data.sample.time_ns;
        let mut finding = Finding::new(self.kind, now_ns, what);
        finding.is_older = now_ns.saturating_sub(self.data.began_ns()) < START_NS;
        self.list.push(finding);
        self.list.last_mut().expect("it was just added")
    }

    /// Adds a finding about a device.
    fn on(&mut self, gpu: usize, what: String) -> &mut Finding {
        let finding = self.add(what);
        finding.gpu = Some(gpu);
        finding
    }

    /// Adds a finding about a process. The sentence begins with its name.
    fn of(&mut self, process: &ProcessSample, what: impl AsRef<str>) -> &mut Finding {
        let who = Who::of(process);
        let finding = self.add(format!("{} {}", self.data.name(who), what.as_ref()));
        finding.who = Some(who);
        finding
    }

    /// Adds a finding about a process on a device.
    fn about(
        &mut self,
        process: &ProcessSample,
        holding: &Holding,
        what: impl AsRef<str>,
    ) -> &mut Finding {
        let finding = self.of(process, what);
        finding.gpu = Some(holding.gpu);
        finding
    }

    /// Calls a function for every process on every device.
    fn each(&mut self, mut one: impl FnMut(&mut Self, &'a ProcessSample, &'a Holding)) {
        for process in &self.data.sample.processes {
            for holding in &process.devices {
                one(self, process, holding);
            }
        }
    }
}

/// Returns the remedy for a stopped process.
fn continues(process: &ProcessSample) -> String {
    let pid = process.shown_pid();
    format!("gpushare kill {pid} --signal CONT resumes it")
}

/// Lists the managed processes of a device that a condition holds for.
fn listed(data: &Data, gpu: usize, holds: impl Fn(&ProcessSample) -> bool) -> Listed {
    let processes = data.there(gpu).map(|(process, _)| process);
    let chosen = processes.filter(|process| process.is_managed() && holds(process));
    Listed::of(chosen, |process| data.name(Who::of(process)))
}

/// Lists every other process that wanted a device's lock recently.
fn rivals(data: &Data, gpu: usize, of: Who) -> Listed {
    let contenders = data.contenders(gpu).map(Who::of);
    Listed::of(contenders.filter(|who| *who != of), |who| data.name(who))
}
