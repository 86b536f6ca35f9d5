//! [`Data`]: everything that is derived from the samples seen so far.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::between::bring_forward;
use crate::finding::Finding;
use advice::StableAdvice;
use before_after::BeforeAfter;
use demands::Demands;
use device::DevicePast;
use effects::{Effect, Work, of_measurements};
use fair_share::{contends, wants, worth_of_weight};
use gpushare_base::text::units::short_time;
use gpushare_control::measured::Measured;
use gpushare_sample::{
    EditLine, EventLine, Histogram, Holding, LockPolicy, LockState, PolicyKind, ProcessSample,
    Sample, Who, by_mps, ledger_bytes,
};
use history::{Efficiency, Moment};
use lanes::{Cell, Lanes, Span};
use log::Log;
use places::Places;
use rates::Rates;
use row_labels::{Present, RowLabels};
use timeline::{POINT_NS, Timeline};
use wait_attribution::{WaitAttribution, Waits};

pub mod advice;
pub mod before_after;
pub mod demands;
mod device;
pub mod effects;
mod fair_share;
pub mod history;
pub mod lanes;
mod lengths;
pub mod log;
mod places;
pub mod rates;
mod ring;
pub mod row_labels;
pub mod timeline;
pub mod wait_attribution;

const EDITS_KEPT: usize = 512;
/// Above this rate, in hand-offs a second, a hand-off is not reported one by one.
const STEADY_PER_S: f64 = 2.0;
/// Time between two measurements of rates: a number that changes more often is hard to read.
const MEASURE_NS: u64 = 1_000_000_000;
/// Maximum age of an event that the dashboard shows when it starts.
const EVENTS_NS: u64 = 600_000_000_000;

/// The state derived from all samples.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// The newest sample.
    pub sample: Sample,
    /// The lock lanes.
    pub lanes: Lanes,
    /// The recent work of each process.
    pub demands: Demands,
    /// The recent events.
    pub log: Log,
    /// The known edits, by generation.
    edits: std::collections::BTreeMap<u64, EditLine>,
    /// The current alerts, worst first.
    pub alerts: Vec<Finding>,
    /// Policies that would serve the jobs better.
    pub advice: StableAdvice,
    /// The past of each device, by UUID.
    devices: FxHashMap<String, DevicePast>,
    /// The figures that `gpushare tune` has measured on this machine, newest first.
    measured: Vec<Measured>,
    /// The comparison of the newest edit.
    before_after: BeforeAfter,
    /// Time of the first sample.
    began_ns: u64,
    labels: RowLabels,
    there: Places,
    wait_attribution: WaitAttribution,
    rates: FxHashMap<(Who, usize), Rates>,
    /// The processes that wanted the lock of each device recently, at the last measurement.
    contenders: Vec<Vec<Who>>,
    /// The span of each device at the last measurement.
    spans: Vec<Span>,
    /// Time of the last measurement.
    measured_ns: Option<u64>,
    samples: u64,
}

impl Data {
    /// Adds the next sample.
    pub fn update(&mut self, mut sample: Sample) {
        if sample.time_ns < self.sample.time_ns {
            self.forget_times();
        }
        if self.measured_ns.is_none() {
            self.began_ns = sample.time_ns;
        }
        let oldest = sample.time_ns.saturating_sub(EVENTS_NS);
        sample.events.retain(|event| event.time_ns >= oldest);
        self.lanes.update(&sample);
        self.demands.update(&sample);
        self.log.update(&mut sample);
        let present: Vec<Present> = sample.processes.iter().map(Present::of).collect();
        self.labels.update(&present);
        self.there = Places::of(&sample, &self.labels);
        for device in &sample.devices {
            let past = self.devices.entry(device.uuid.clone()).or_default();
            past.update(device, sample.time_ns);
        }
        let measured = self.measured_ns.map(|at| sample.time_ns.saturating_sub(at));
        let is_edited = self.is_edited(&sample);
        self.before_after
            .note(&sample.edits, sample.time_ns, &self.sample);
        if is_edited {
            self.wait_attribution.begin_span();
        }
        if measured.is_none_or(|ago| ago >= MEASURE_NS) || is_edited {
            self.measured_ns = Some(sample.time_ns);
            self.measure(&sample);
            self.remember(&sample);
            self.before_after.measure(&sample);
        }
        self.wait_attribution.update(&sample);
        if self.measured_ns == Some(sample.time_ns) {
            self.attribute(&sample);
        }
        self.samples += 1;
        for edit in sample.edits.drain(..) {
            self.edits.insert(edit.generation, edit);
        }
        while self.edits.len() > EDITS_KEPT {
            self.edits.pop_first();
        }
        self.sample = sample;
    }

    /// Brings the newest sample forward to a later moment by the events between both, oldest first. Rates stay those of the
    /// sample.
    pub fn bring_forward(&mut self, events: Vec<EventLine>, at_ns: u64) {
        bring_forward(&mut self.sample, events, at_ns);
        self.lanes.update(&self.sample);
        self.log.update(&mut self.sample);
    }

    /// Returns data without a sample that knows what was measured on this machine, for another time of it.
    pub fn begin_anew(&self) -> Self {
        Self {
            measured: self.measured.clone(),
            ..Self::default()
        }
    }

    /// Discards everything that was measured on a clock that went back (another recording, a machine restored from an
    /// image).
    fn forget_times(&mut self) {
        *self = Self {
            sample: std::mem::take(&mut self.sample),
            alerts: std::mem::take(&mut self.alerts),
            labels: std::mem::take(&mut self.labels),
            samples: self.samples,
            ..self.begin_anew()
        };
    }

    /// Reports whether rates were measured with the newest sample. Rates are measured at most once a second.
    pub fn is_measured(&self) -> bool {
        self.measured_ns == Some(self.sample.time_ns)
    }

    /// Reports whether a span has begun since the last measurement.
    fn is_edited(&self, sample: &Sample) -> bool {
        let measured = |gpu: usize| self.spans.get(gpu).map_or(u64::MAX, |span| span.ns);
        sample
            .gpus()
            .any(|gpu| self.lanes.span_ns(gpu) < measured(gpu))
    }

    /// Measures the rates of each process on each device, and the sum of weights of those that want a device's lock.
    fn measure(&mut self, sample: &Sample) {
        let now_ns = sample.time_ns;
        self.spans.clear();
        self.contenders.clear();
        for gpu in sample.gpus() {
            let overlaps = overlaps(sample, gpu);
            let span_ns = self.lanes.span_ns(gpu);
            let there = self.there.at(sample, gpu);
            let together = overlaps.then(|| {
                let processes = there.clone().map(|(process, _)| Who::of(process));
                let holds = processes.map(|who| self.lanes.spent(who, gpu).hold);
                holds.sum::<f32>().max(1.0)
            });
            let (mut contenders, mut wanted) = (Vec::new(), Vec::new());
            let mut all_waits = Histogram::default();
            for (process, holding) in there {
                let who = Who::of(process);
                let rates = self.rates.entry((who, gpu)).or_default();
                rates.update(process, holding, || self.lanes.lately(who, gpu), now_ns);
                rates.spent = self.lanes.spent(who, gpu);
                rates.wants = wants(process, rates.spent);
                if let Some(together) = together {
                    let charged = rates.charged(holding.lock.held_ns, now_ns, span_ns);
                    rates.spent.hold = charged.unwrap_or(rates.spent.hold / together).min(1.0);
                }
                if let Some([holds, waits]) = self.lanes.measured(who, gpu) {
                    [rates.hold_p99_ns] = holds.quantiles([0.99]);
                    [rates.wait_p50_ns, rates.wait_p99_ns] = waits.quantiles([0.5, 0.99]);
                    waits.add_to(&mut all_waits);
                }
                rates.fair = None;
                if contends(process, rates.spent) {
                    contenders.push(who);
                    wanted.push((process.share.weight, rates.wants));
                }
            }
            let worth = worth_of_weight(wanted.clone());
            for (who, (weight, wants)) in contenders.iter().zip(wanted) {
                if let Some(rates) = self.rates.get_mut(&(*who, gpu)) {
                    rates.fair = Some((f64::from(weight) * worth).min(wants));
                }
            }
            self.contenders.push(contenders);
            self.spans.push(Span {
                ns: span_ns,
                since_edit: self.lanes.is_since_edit(gpu),
                wait_p99_ns: all_waits.quantile(0.99),
            });
        }
        if self.rates.len() > self.there.count() {
            let present: FxHashSet<Who> = sample.processes.iter().map(Who::of).collect();
            self.rates.retain(|(who, _), _| present.contains(who));
        }
    }

    /// Finds the process for which each process recently waited most.
    fn attribute(&mut self, sample: &Sample) {
        for gpu in sample.gpus() {
            for (process, holding) in self.there.at(sample, gpu) {
                if let Some(rates) = self.rates.get_mut(&(Who::of(process), gpu)) {
                    rates.behind = self.wait_attribution.longest(sample, process, holding);
                }
            }
        }
    }

    /// Returns the share of a device's lock to which a process is entitled; `None` if the process did not want it.
    pub fn entitled(&self, process: &ProcessSample, gpu: usize) -> Option<f64> {
        self.rates(Who::of(process), gpu)?.fair
    }

    /// Returns the processes that wanted a device's lock recently.
    pub fn contenders(&self, gpu: usize) -> impl Iterator<Item = &ProcessSample> {
        let contenders = self.contenders.get(gpu).into_iter().flatten();
        contenders.filter_map(|who| self.process(*who))
    }

    /// Reports whether the processes of a device submit beside each other.
    pub fn overlaps(&self, gpu: usize) -> bool {
        overlaps(&self.sample, gpu)
    }

    /// Returns the number of processes that wait for a device's lock or are held back.
    pub fn waiting(&self, gpu: usize) -> usize {
        let waiters = self.sample.devices.get(gpu).map_or(0, |d| d.waiters.len());
        waiters + self.in_state(gpu, LockState::Back).count()
    }

    /// Returns the processes of a device that are in this state.
    pub fn in_state(
        &self,
        gpu: usize,
        state: LockState,
    ) -> impl Iterator<Item = (&ProcessSample, &Holding)> {
        let there = self.there(gpu);
        there.filter(move |(_, holding)| holding.lock.state == state)
    }

    /// Returns the number of processes that submit work to a device and have no lock to take, because its policy has none.
    pub fn without_lock(&self, gpu: usize) -> usize {
        let now_ns = self.sample.time_ns;
        let there = self.there(gpu);
        there.filter(|(_, holding)| holding.works(now_ns)).count()
    }

    /// Adds to the past of each device what its processes do.
    fn remember(&mut self, sample: &Sample) {
        for (gpu, device) in sample.devices.iter().enumerate() {
            let there = self.there.at(sample, gpu);
            let past = self.devices.entry(device.uuid.clone()).or_default();
            if past.history.is_due(sample.time_ns) {
                let cells = there
                    .clone()
                    .map(|(p, _)| self.lanes.lately(Who::of(p), gpu));
                let (held, waiting) = cells.fold((0.0_f32, 0.0_f32), |(held, waiting), cell| {
                    (held + cell.hold, waiting + cell.wait)
                });
                let used = device
                    .used_bytes
                    .unwrap_or_else(|| ledger_bytes(there.clone()));
                let moment = Moment {
                    held: held.min(1.0),
                    full: (used as f64 / device.total_bytes.max(1) as f64) as f32,
                    waiting,
                    ..Moment::default()
                };
                past.add_moment(moment, sample.time_ns);
            }
            let managed = there.filter(|(process, _)| process.is_managed());
            let work = managed.map(|(process, holding)| {
                let work = Work {
                    launches: holding.launches(),
                    waited_ns: holding.lock.waited_ns,
                };
                (Who::of(process), work)
            });
            let (policy, work) = (device.policy.0, work.collect());
            past.effects.update(sample.time_ns, policy, work);
        }
    }

    /// Returns the past of a device.
    fn past(&self, gpu: usize) -> Option<&DevicePast> {
        self.devices.get(&self.sample.devices.get(gpu)?.uuid)
    }

    /// Compares what the jobs of a device do now with what they did while another policy was in force there; `None` if
    /// that was not measured on this machine.
    pub fn effect_of(&self, gpu: usize, policy: &LockPolicy) -> Option<Vec<Effect>> {
        let device = self.sample.devices.get(gpu)?;
        let past = self.past(gpu);
        let seen = past.and_then(|past| past.effects.compare(&device.policy.0, policy));
        seen.or_else(|| of_measurements(&self.measured, &self.sample, gpu, policy))
    }

    /// Uses what `gpushare tune` has measured on this machine, newest first.
    pub fn use_measurements(&mut self, lines: Vec<Measured>) {
        self.measured = lines;
    }

    /// Adds figures that were measured just now.
    pub fn add_measurement(&mut self, measured: Measured) {
        self.measured.insert(0, measured);
    }

    /// Takes the figures of a comparison that has ended, without their time, and the generation of its edit.
    pub fn take_compared(&mut self) -> Option<(u64, Measured)> {
        self.before_after.take_ended()
    }

    /// Returns the comparison of what jobs did before the newest edit with what they do since.
    pub fn before_after(&self) -> &BeforeAfter {
        &self.before_after
    }

    /// Returns the time of the first sample.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// Returns the history of a device.
    pub fn history(&self, gpu: usize) -> Option<&Timeline<Moment>> {
        Some(&self.past(gpu)?.history)
    }

    /// Returns how a device spent its span; `None` if NVML reports no utilisation, or none of the span yet.
    pub fn efficiency(&self, gpu: usize) -> Option<Efficiency> {
        let span = self.span(gpu);
        let points = usize::try_from(span.ns / POINT_NS).unwrap_or(0);
        let least = if span.since_edit { 0 } else { 1 };
        Efficiency::of(self.history(gpu)?.last(points.max(least)))
    }

    /// Returns how often a device's lock was violated since the dashboard started, and the time of the last violation.
    pub fn violated(&self, gpu: usize) -> Option<(u64, u64)> {
        self.past(gpu)?.violated()
    }

    /// Returns the span that the shares and percentiles of a device cover.
    pub fn span(&self, gpu: usize) -> Span {
        self.spans.get(gpu).copied().unwrap_or_default()
    }

    /// Returns the hand-offs of a device's lock per second.
    pub fn handoffs_per_s(&self, gpu: usize) -> f64 {
        self.past(gpu).map_or(0.0, |past| past.handoffs_per_s)
    }

    /// Reports whether a device's lock stays with its holder long enough to name the holder. Otherwise the shares are
    /// shown.
    pub fn holder_is_steady(&self, gpu: usize) -> bool {
        self.handoffs_per_s(gpu) <= STEADY_PER_S
    }

    /// Returns the edit that made a generation, if the audit log has it.
    pub fn edit(&self, generation: u64) -> Option<&EditLine> {
        self.edits.get(&generation)
    }

    /// Returns the known edits, oldest first.
    pub fn edits(&self) -> impl Iterator<Item = &EditLine> + Clone {
        self.edits.values()
    }

    /// Returns the number of samples added so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Finds a process by its identity.
    pub fn process(&self, who: Who) -> Option<&ProcessSample> {
        match who {
            Who::Slot(slot) => self.sample.process(slot),
            Who::Pid(_) => self.sample.processes.iter().find(|p| Who::of(p) == who),
        }
    }

    /// Returns a process's letter.
    pub fn letter(&self, who: Who) -> char {
        self.labels.letter(who)
    }

    /// Returns a process's colour, as a number.
    pub fn hue(&self, who: Who) -> usize {
        self.labels.hue(who)
    }

    /// Returns the share of the recent time for which memory of a device's processes moved. It exceeds 1 where several move at
    /// once.
    pub fn moving(&self, gpu: usize) -> f64 {
        let rates = self
            .there(gpu)
            .filter_map(|(process, _)| self.rates(Who::of(process), gpu));
        rates.map(|rates| rates.moving).sum()
    }

    /// Returns a process's rates on one device.
    pub fn rates(&self, who: Who, gpu: usize) -> Option<&Rates> {
        self.rates.get(&(who, gpu))
    }

    /// Returns the shares of its recent time that a process spent on one device's lock.
    pub fn spent(&self, who: Who, gpu: usize) -> Cell {
        let measured = self.rates(who, gpu).map(|rates| rates.spent);
        measured.unwrap_or_else(|| self.lanes.spent(who, gpu))
    }

    /// Describes the pair in which one process waited longest for the other; `None` if no process waited.
    pub fn longest_wait(&self, waits: &Waits) -> Option<String> {
        let pair = waits.worst()?;
        let of = match waits.seconds() {
            Some(seconds) => format!("{} of the last {seconds} s", short_time(pair.ns)),
            None => short_time(pair.ns),
        };
        Some(format!(
            "{} waited {of} for {}: {:.0}% of its waiting",
            self.title(pair.who),
            self.title(pair.behind),
            pair.share * 100.0
        ))
    }

    /// Returns the waits and blockers on a device: those of the last seconds if `lately`, else those since the
    /// processes began.
    pub fn waits(&self, gpu: usize, lately: bool) -> Waits {
        self.wait_attribution.waits(&self.sample, gpu, lately)
    }

    /// Returns the process that a process recently waited for most: letter, pid and share of its waits; `None` if it
    /// has gone.
    pub fn behind(&self, process: &ProcessSample, holding: &Holding) -> Option<(char, u32, f64)> {
        let rates = self.rates(Who::of(process), holding.gpu)?;
        let (slot, share) = rates.behind?;
        let pid = self.sample.process(slot)?.shown_pid();
        Some((self.letter(Who::Slot(slot)), pid, share))
    }

    /// Names a process as in a sentence: letter, pid, name.
    pub fn title(&self, who: Who) -> String {
        match self.process(who) {
            Some(process) => format!("{} {}", self.letter(who), process.pid_and_name()),
            None => "a process that has ended".into(),
        }
    }

    /// Names a process briefly: letter and name.
    pub fn name(&self, who: Who) -> String {
        match self.process(who) {
            Some(process) => format!("{} {}", self.letter(who), process.name()),
            None => "a process that has ended".into(),
        }
    }

    /// Returns a device's highest utilisation in a span of time; without a value inside, the last one before it.
    pub fn utilisation(&self, gpu: usize, from_ns: u64, to_ns: u64) -> Option<u8> {
        self.past(gpu)?.utilisation(from_ns, to_ns)
    }

    /// Reports whether the device has been idle for `ns` or longer.
    pub fn idle_for(&self, gpu: usize, ns: u64) -> bool {
        let since_ns = self.sample.time_ns.saturating_sub(ns);
        let past = self.past(gpu);
        past.is_some_and(|past| past.is_idle_since(since_ns))
    }

    /// Returns every process that uses a device, in the order of their letters, without those that only could use it.
    pub fn there(&self, gpu: usize) -> impl Iterator<Item = (&ProcessSample, &Holding)> + Clone {
        self.there.at(&self.sample, gpu)
    }

    /// Returns the bytes in use on a device: NVML's count, else gpushare's own.
    pub fn used_bytes(&self, gpu: usize) -> u64 {
        let device = self.sample.devices.get(gpu);
        let used = device.and_then(|device| device.used_bytes);
        used.unwrap_or_else(|| ledger_bytes(self.there(gpu)))
    }

    /// Reports whether MPS runs kernels on a device.
    pub fn is_mps(&self, gpu: usize) -> bool {
        self.there(gpu).any(by_mps)
    }

    /// Returns the processes on a device in the order of their letters.
    pub fn on(&self, gpu: usize) -> Vec<Who> {
        self.there(gpu)
            .map(|(process, _)| Who::of(process))
            .collect()
    }
}

/// Reports whether the processes of a device submit beside each other.
fn overlaps(sample: &Sample, gpu: usize) -> bool {
    let device = sample.devices.get(gpu);
    device.is_some_and(|device| matches!(device.policy.0.kind, PolicyKind::Overlap(_)))
}
