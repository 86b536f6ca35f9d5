//! Evidence: the activity of the jobs of one device over some seconds.

use std::iter;

use shm_layout::{LockState, Order, Reason, What};

use gpushare_base::text::policy::settings;
use gpushare_control::targets;
use gpushare_sample::{ALL_REASONS, Holding, LockPolicy, ProcessSample, Sample, SlotId};

/// Maximum age of an event that counts as evidence.
pub const LOOK_BACK_NS: u64 = 60_000_000_000;

/// The activity of the jobs of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// The device's position in the sample.
    pub gpu: usize,
    /// The length of the time span, in seconds.
    pub seconds: f64,
    /// The policy in force.
    pub policy: LockPolicy,
    /// Set if the device belongs to the simulator.
    pub is_sim: bool,
    /// Share of the time in which a kernel ran, as NVML reports it.
    pub util_percent: Option<u32>,
    /// The median time of a hand-off.
    pub handoff_ns: Option<u64>,
    /// The jobs that used the device.
    pub jobs: Vec<Job>,
    /// The names of those that wait for memory of it, and so cannot use it.
    pub wait_for_memory: Vec<String>,
}

/// The activity of one job on the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// The job's slot.
    pub slot: SlotId,
    /// Its name in sentences: pid and name, in the dashboard letter and name.
    pub title: String,
    /// The user id of the job.
    pub uid: u32,
    /// The job's priority.
    pub priority: i32,
    /// The job's weight.
    pub weight: u32,
    /// Set if a cap or a pause keeps the job from the device, so that its waits are intended.
    pub limited: bool,
    /// Set if MPS runs the job's contexts.
    pub mps: bool,
    /// Set if the job's card and driver are known to obey a time slice of its own.
    pub has_card_slice: bool,
    /// The mean time of a kernel or graph of the job alone; 0 where it was not measured.
    pub submission_ns: u64,
    /// Number of times that the job got the lock, or began to submit beside others.
    pub turns: u64,
    /// Share of the time in which the job held the lock, or submitted beside others.
    pub held: f64,
    /// Share of the time in which the job waited or was held back.
    pub waited: f64,
    /// The 99th percentile of the waits.
    pub wait_p99_ns: Option<u64>,
    /// The median length of the turns.
    pub turn_p50_ns: Option<u64>,
    /// Number of turns that ended because the job had no more work.
    pub idle_ends: u64,
}

impl Evidence {
    /// Returns the activity between two samples, for each device of the later sample.
    pub fn between(first: &Sample, last: &Sample) -> Vec<Self> {
        let seconds = last.time_ns.saturating_sub(first.time_ns) as f64 / 1e9;
        (0..last.devices.len())
            .map(|gpu| {
                let uuid = &last.devices[gpu].uuid;
                let before = first.devices.iter().position(|device| device.uuid == *uuid);
                let jobs = last.holdings(gpu).filter_map(|(process, now)| {
                    let then = first.process(process.slot()?);
                    let then = then.and_then(|then| then.on(before?));
                    // A process that attached after the first sample starts from zero.
                    let nothing = Holding::default();
                    Job::between(process, then.unwrap_or(&nothing), now, seconds)
                });
                Self {
                    seconds,
                    jobs: jobs.collect(),
                    ..Self::of(last, gpu)
                }
            })
            .collect()
    }

    /// Returns the activity that the ring of events records for the last minute, or for the time since the last edit.
    /// Returns `None` if the ring holds too few events; without a lock no event is written.
    pub fn of_ring(sample: &Sample, gpu: usize) -> Option<Self> {
        let now = sample.time_ns;
        let about = |gpu: usize| {
            let events = sample.events.iter();
            events.filter(move |event| event.gpu.is_none_or(|of| of == gpu))
        };
        let edited = about(gpu).filter(|event| matches!(event.what, What::Edit { .. }));
        let edited = edited.map(|event| event.time_ns).max().unwrap_or(0);
        // The ring no longer holds events before its oldest record.
        let oldest = sample.events.first().map_or(now, |event| event.time_ns);
        let from = now.saturating_sub(LOOK_BACK_NS).max(edited).max(oldest);
        let seconds = now.saturating_sub(from) as f64 / 1e9;
        let mut evidence = Self {
            seconds,
            ..Self::of(sample, gpu)
        };
        for (process, holding) in sample.holdings(gpu) {
            let Some(slot) = process.slot() else { continue };
            let own = about(gpu).filter(|event| event.slot == Some(slot) && event.time_ns >= from);
            let span = now.saturating_sub(from.max(process.registered_ns));
            let turns = Turns::of(own.map(|event| event.what), holding, now, from);
            evidence
                .jobs
                .extend(turns.job(process, holding, span as f64 / 1e9));
        }
        (!evidence.jobs.is_empty()).then_some(evidence)
    }

    fn of(sample: &Sample, gpu: usize) -> Self {
        let device = &sample.devices[gpu];
        let waits = sample.holdings(gpu);
        let waits = waits.filter(|(_, holding)| holding.memory_wait.is_some());
        Self {
            gpu,
            wait_for_memory: waits.map(|(process, _)| targets::title(process)).collect(),
            policy: device.policy.0,
            is_sim: device.is_sim(),
            util_percent: device.nvml.util_percent,
            handoff_ns: device.handoff_times.quantile(0.5),
            ..Self::default()
        }
    }

    /// Returns the policy as it is typed, without the default settings.
    pub fn policy_words(&self) -> String {
        policy_words(&self.policy)
    }

    /// Reports whether the jobs run under MPS.
    pub fn under_mps(&self) -> bool {
        self.jobs.iter().filter(|job| job.mps).count() > 1
    }

    /// Reports whether each job can have a time slice of its own on the card.
    pub fn has_card_slices(&self) -> bool {
        self.jobs.iter().all(|job| job.has_card_slice)
    }

    /// Reports whether the policy acts on priorities.
    pub fn by_priority(&self) -> bool {
        self.policy.kind.is_gated() && self.policy.order == Order::Priority
    }

    /// Returns the job of the highest priority, if another job has a lower priority.
    pub fn urgent(&self) -> Option<&Job> {
        let least = self.jobs.iter().map(|job| job.priority).min()?;
        let top = self.jobs.iter().max_by_key(|job| job.priority)?;
        (top.priority > least).then_some(top)
    }
}

/// Returns a policy as it is typed, without the default settings except the order.
pub fn policy_words(policy: &LockPolicy) -> String {
    let kind = policy.kind.to_string();
    if !policy.kind.is_gated() {
        return kind;
    }
    let words: Vec<String> = iter::once(kind).chain(settings(policy)).collect();
    words.join(" ")
}

impl Job {
    fn between(
        process: &ProcessSample,
        then: &Holding,
        now: &Holding,
        seconds: f64,
    ) -> Option<Self> {
        let lock = (&then.lock, &now.lock);
        let waits = lock.1.waits.since(&lock.0.waits);
        let holds = lock.1.holds.since(&lock.0.holds);
        let share = |now: u64, then: u64| {
            (now.saturating_sub(then) as f64 / 1e9 / seconds.max(1e-9)).min(1.0)
        };
        let idle = ALL_REASONS
            .iter()
            .position(|reason| *reason == Reason::Idle)?;
        let turns = lock.1.acquisitions.saturating_sub(lock.0.acquisitions);
        let waited = share(lock.1.waited_ns, lock.0.waited_ns);
        if now.launches() <= then.launches() && turns == 0 && waited == 0.0 {
            return None;
        }
        Some(Self {
            turns,
            held: share(lock.1.held_ns, lock.0.held_ns),
            waited,
            wait_p99_ns: waits.quantile(0.99),
            turn_p50_ns: holds.quantile(0.5),
            idle_ends: lock.1.releases[idle].saturating_sub(lock.0.releases[idle]),
            ..Self::of(process, now)
        })
    }

    fn of(process: &ProcessSample, holding: &Holding) -> Self {
        Self {
            slot: process.view.slot,
            title: targets::title(process),
            uid: process.identity.uid,
            priority: process.share.priority,
            weight: process.share.weight,
            limited: process.share.cap.is_some_and(|cap| cap < 100) || process.share.paused,
            mps: holding.mps == Some(true),
            has_card_slice: holding.card_slice.is_possible(),
            submission_ns: holding.submission_ns,
            ..Self::default()
        }
    }
}

/// A job's turns, summed up from events.
#[derive(Default)]
struct Turns {
    held_ns: u64,
    waited_ns: u64,
    holds: Vec<u64>,
    waits: Vec<u64>,
    idle_ends: u64,
}

impl Turns {
    fn of(events: impl Iterator<Item = What>, holding: &Holding, now: u64, from: u64) -> Self {
        let mut turns = Self::default();
        for what in events {
            match what {
                What::Hold { waited_ns } | What::Active { waited_ns } => {
                    turns.waits.push(waited_ns);
                }
                What::Release { held_ns, reason } => {
                    turns.holds.push(held_ns);
                    turns.idle_ends += u64::from(reason == Reason::Idle);
                }
                What::Forced { held_ns } => turns.holds.push(held_ns),
                What::Rest { active_ns } | What::Back { active_ns } => turns.holds.push(active_ns),
                _ => {}
            }
        }
        turns.held_ns = turns.holds.iter().sum();
        turns.waited_ns = turns.waits.iter().sum();
        // A hold or wait that is still in progress has no event yet.
        let open = now.saturating_sub(holding.lock.since_ns.max(from));
        match holding.lock.state {
            LockState::Hold | LockState::Active => turns.held_ns += open,
            LockState::Wait | LockState::Back => turns.waited_ns += open,
            LockState::Idle | LockState::Paused => {}
        }
        turns.holds.sort_unstable();
        turns.waits.sort_unstable();
        turns
    }

    fn job(&self, process: &ProcessSample, holding: &Holding, seconds: f64) -> Option<Job> {
        let at = |sorted: &[u64], share: f64| {
            let place = (sorted.len() as f64 * share).ceil() as usize;
            sorted.get(place.saturating_sub(1)).copied()
        };
        let share = |ns: u64| (ns as f64 / 1e9 / seconds.max(1e-9)).min(1.0);
        if self.held_ns == 0 && self.waited_ns == 0 {
            return None;
        }
        Some(Job {
            turns: self.waits.len() as u64,
            held: share(self.held_ns),
            waited: share(self.waited_ns),
            wait_p99_ns: at(&self.waits, 0.99),
            turn_p50_ns: at(&self.holds, 0.5),
            idle_ends: self.idle_ends,
            ..Job::of(process, holding)
        })
    }
}
