//! What the jobs of one device did over some seconds.

use shm_layout::text::format_policy;
use shm_layout::{Histogram, LockState, Order, PolicyKind, Reason, What};

use gpushare_control::targets;
use gpushare_sample::{ALL_REASONS, Holding, LockPolicy, ProcessSample, Sample, SlotId, quantile};

/// How far the ring is looked back through.
pub const LOOK_BACK_NS: u64 = 60_000_000_000;

/// What is known of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Its position in the sample.
    pub gpu: usize,
    /// The time it is about.
    pub seconds: f64,
    /// The policy in force.
    pub policy: LockPolicy,
    /// The device is the simulator's.
    pub is_sim: bool,
    /// Share of the time with a kernel running, by NVML.
    pub util_percent: Option<u32>,
    /// The jobs that used it.
    pub jobs: Vec<Job>,
}

/// What one job did on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// Its slot.
    pub slot: SlotId,
    /// Its pid.
    pub pid: u32,
    /// Pid and name.
    pub title: String,
    /// Its user.
    pub uid: u32,
    /// Its priority.
    pub priority: i32,
    /// Its weight.
    pub weight: u32,
    /// A cap or a pause keeps it from the device: its waits are as they should be.
    pub limited: bool,
    /// Whether its contexts are MPS's.
    pub mps: bool,
    /// Times it got the lock, or began to submit beside others.
    pub turns: u64,
    /// Share of the time in which it held the lock, or submitted beside others.
    pub held: f64,
    /// Share of the time in which it waited, or was held back.
    pub waited: f64,
    /// Ninety-nine of a hundred waits were no longer.
    pub wait_p99_ns: Option<u64>,
    /// Half of its turns were no longer.
    pub turn_p50_ns: Option<u64>,
    /// Turns that ended because it had nothing to do.
    pub idle_ends: u64,
}

impl Evidence {
    /// What happened from one sample to a later one, for each device of the later.
    pub fn between(first: &Sample, last: &Sample) -> Vec<Self> {
        let seconds = last.time_ns.saturating_sub(first.time_ns) as f64 / 1e9;
        (0..last.devices.len())
            .map(|gpu| {
                let uuid = &last.devices[gpu].uuid;
                let before = first.devices.iter().position(|device| device.uuid == *uuid);
                let jobs = last.holdings(gpu).filter_map(|(process, now)| {
                    let then = first.process(process.slot()?);
                    let then = then.and_then(|then| then.on(before?));
                    // One that came meanwhile began at nothing.
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

    /// What the ring of events tells of the last minute, or of the time since the last edit. `None` where it tells
    /// too little: without a lock nothing is written into it.
    pub fn of_ring(sample: &Sample, gpu: usize) -> Option<Self> {
        let now = sample.time_ns;
        let about = |gpu: usize| {
            let events = sample.events.iter();
            events.filter(move |event| event.gpu.is_none_or(|of| of == gpu))
        };
        let edited = about(gpu).filter(|event| matches!(event.what, What::Edit { .. }));
        let edited = edited.map(|event| event.time_ns).max().unwrap_or(0);
        // What came before the ring's oldest record is gone.
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
        Self {
            gpu,
            policy: device.policy.0,
            is_sim: device.is_sim(),
            util_percent: device.nvml.util_percent,
            ..Self::default()
        }
    }

    /// The policy as it is typed, without what is default.
    pub fn policy_words(&self) -> String {
        let words = format_policy(&self.policy);
        let defaults = format_policy(&LockPolicy {
            kind: self.policy.kind,
            order: self.policy.order,
            ..LockPolicy::default()
        });
        let kept = words.split(' ').zip(defaults.split(' ')).enumerate();
        let kept = kept.filter(|(at, (word, default))| *at < 2 || word != default);
        let words: Vec<&str> = kept.map(|(_, (word, _))| word).collect();
        match self.policy.kind {
            PolicyKind::Off => words[0].to_owned(),
            _ => words.join(" "),
        }
    }

    /// Whether the jobs run under MPS.
    pub fn under_mps(&self) -> bool {
        self.jobs.iter().filter(|job| job.mps).count() > 1
    }

    /// Whether the policy acts on priorities.
    pub fn by_priority(&self) -> bool {
        self.policy.kind != PolicyKind::Off && self.policy.order == Order::Priority
    }

    /// The job of the highest priority, where another has a lower one.
    pub fn urgent(&self) -> Option<&Job> {
        let least = self.jobs.iter().map(|job| job.priority).min()?;
        let top = self.jobs.iter().max_by_key(|job| job.priority)?;
        (top.priority > least).then_some(top)
    }
}

impl Job {
    fn between(
        process: &ProcessSample,
        then: &Holding,
        now: &Holding,
        seconds: f64,
    ) -> Option<Self> {
        let lock = (&then.lock, &now.lock);
        let mut waits = Histogram::default();
        let mut holds = Histogram::default();
        let buckets = waits.iter_mut().zip(holds.iter_mut()).enumerate();
        for (at, (wait, hold)) in buckets {
            *wait = lock.1.wait_hist[at].saturating_sub(lock.0.wait_hist[at]);
            *hold = lock.1.hold_hist[at].saturating_sub(lock.0.hold_hist[at]);
        }
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
            wait_p99_ns: quantile(&waits, 0.99),
            turn_p50_ns: quantile(&holds, 0.5),
            idle_ends: lock.1.releases[idle].saturating_sub(lock.0.releases[idle]),
            ..Self::of(process, now)
        })
    }

    fn of(process: &ProcessSample, holding: &Holding) -> Self {
        Self {
            slot: process.view.slot,
            pid: process.shown_pid(),
            title: targets::title(process),
            uid: process.identity.uid,
            priority: process.share.priority,
            weight: process.share.weight,
            limited: process.share.cap.is_some_and(|cap| cap < 100) || process.share.paused,
            mps: holding.mps == Some(true),
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
        // What has not ended yet is in no event.
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
