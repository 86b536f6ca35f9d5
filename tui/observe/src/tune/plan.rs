//! The plan of a search: which settings make sense for the jobs that run, and how long each is tried.

use rustc_hash::FxHashMap;
use shm_layout::{Order, PolicyKind};

use super::aim::Aim;
use super::job::Job;
use crate::evidence;
use gpushare_control::policy;
use gpushare_sample::{Holding, LockPolicy, LockState, ProcessSample, Sample, Who};

/// A job whose last submission is older than this does nothing.
const ACTIVE_NS: u64 = 10_000_000_000;
/// Time in which jobs get used to a setting, before the measurement begins.
const SETTLE_NS: u64 = 500_000_000;
/// Time after the end of a trial at which its setting reverts by itself, if the search has not gone on.
const MARGIN_NS: u64 = 3_000_000_000;

/// The mix of jobs, as far as it decides which settings make sense.
struct Mix {
    has_urgent: bool,
    has_weights: bool,
    is_mps: bool,
    /// All jobs would have slices of their own on the card.
    has_card_slices: bool,
}

/// A setting that may be tried: the words of the policy, and the mixes for which it makes sense.
type Row = (&'static str, fn(&Mix, &Aim) -> bool);

/// Every setting that may be tried. Turns under MPS cost what MPS gains; an order by priority needs priorities; only an order
/// that obeys weights is fair to jobs that have them; and slices of 2 ms are the card's default, unless weights change them.
const ROWS: &[Row] = &[
    ("off", |mix, aim| !(mix.has_weights && *aim == Aim::Fair)),
    ("overlap order=priority", |mix, aim| by_priority(mix, aim)),
    ("overlap=2ms order=priority", |mix, aim| {
        by_priority(mix, aim)
    }),
    ("timeslice=2ms order=priority", |mix, aim| {
        by_priority(mix, aim) && !mix.is_mps
    }),
    ("overlap order=fair", |_, _| true),
    ("timeslice=2ms order=fair", |mix, _| !mix.is_mps),
    ("timeslice=5ms order=fair", |mix, _| !mix.is_mps),
    ("hw-timeslice=2ms", |mix, _| {
        mix.has_card_slices && mix.has_weights
    }),
    ("hw-timeslice=8ms", |mix, _| mix.has_card_slices),
];

fn by_priority(mix: &Mix, aim: &Aim) -> bool {
    mix.has_urgent && *aim != Aim::Fair
}

/// A setting that is tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The policy.
    pub policy: LockPolicy,
    /// The words that set it, as they are typed.
    pub words: String,
}

impl Setting {
    /// Reports whether this is the policy of a device.
    pub fn is_in_force(&self, policy: Option<&LockPolicy>) -> bool {
        policy == Some(&self.policy)
    }
}

/// The settings that a search tries, its jobs and its length.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The device.
    pub gpu: usize,
    /// The aim.
    pub aim: Aim,
    /// The settings; the first is the one in force at the start.
    pub settings: Vec<Setting>,
    /// The jobs that are measured.
    pub jobs: Vec<Job>,
    /// The number of times that each setting is tried.
    pub rounds: usize,
    /// Time of each trial before the measurement begins.
    pub settle_ns: u64,
    /// Time of each measurement.
    pub trial_ns: u64,
}

impl Plan {
    /// Plans a search for the jobs that use a device now. `aim` chooses what to aim at. The error says why there is nothing to
    /// try.
    pub fn of(
        sample: &Sample,
        gpu: usize,
        aim: impl FnOnce(&[Job]) -> Result<Aim, String>,
        rounds: usize,
        trial_ns: u64,
    ) -> Result<Self, String> {
        let device = sample.devices.get(gpu).ok_or("there is no such GPU")?;
        let start = device.policy.0;
        if device.policy_until_ns.is_some() {
            return Err(format!(
                "the policy of GPU{gpu} is set for a while and would be lost; wait until it has reverted, or set it again without --for"
            ));
        }
        if start.swap {
            return Err(format!(
                "programs take turns with their memory on GPU{gpu} (swap=on); no other policy has room for them"
            ));
        }
        let active: Vec<(&ProcessSample, &Holding)> = active(sample, gpu).collect();
        let jobs = jobs(&active);
        match jobs.as_slice() {
            [] => {
                return Err(format!(
                    "no job of gpushare works on GPU{gpu} now; there is nothing to try"
                ));
            }
            [one] => {
                return Err(format!(
                    "{} works on GPU{gpu} alone, and a policy costs it nothing; there is nothing to try",
                    one.name
                ));
            }
            _ => {}
        }
        let aim = aim(&jobs)?;
        let mix = Mix {
            has_urgent: jobs.iter().any(|job| job.priority != jobs[0].priority),
            has_weights: jobs.iter().any(|job| job.weight != jobs[0].weight),
            is_mps: sample.is_mps(gpu),
            has_card_slices: active
                .iter()
                .all(|(_, holding)| holding.card_slice.is_possible()),
        };
        let present = followed(&active).unwrap_or(start);
        let rows = ROWS.iter().filter(|(_, fits)| fits(&mix, &aim));
        let settings = rows.filter_map(|(words, _)| {
            let policy = made(words, present).filter(|tried| !is_alike(&present, tried))?;
            let words = (*words).to_owned();
            Some(Setting { policy, words })
        });
        let first = Setting {
            policy: start,
            words: evidence::policy_words(&present),
        };
        let settings = std::iter::once(first).chain(settings).collect();
        Ok(Self {
            gpu,
            aim,
            settings,
            jobs,
            rounds,
            settle_ns: SETTLE_NS,
            trial_ns,
        })
    }

    /// Reports whether a process is one of the jobs.
    pub fn has(&self, who: Who) -> bool {
        self.jobs.iter().any(|job| job.who == who)
    }

    /// Returns the number of trials.
    pub fn trials(&self) -> usize {
        self.settings.len() * self.rounds
    }

    /// Returns the time that all trials take.
    pub fn takes_ns(&self) -> u64 {
        (self.settle_ns + self.trial_ns) * self.trials() as u64
    }

    /// Returns the time after which a setting that is tried reverts by itself.
    pub fn reverts_after_ns(&self) -> u64 {
        self.settle_ns + self.trial_ns + MARGIN_NS
    }

    /// Returns the setting of a trial: in order in the first round, backwards in the second, and so on.
    pub(super) fn setting_of(&self, trial: usize) -> usize {
        let (round, at) = (trial / self.settings.len(), trial % self.settings.len());
        match round % 2 {
            0 => at,
            _ => self.settings.len() - 1 - at,
        }
    }
}

/// Returns the policy that all jobs follow, which their launch may have set; `None` if they follow several.
fn followed(active: &[(&ProcessSample, &Holding)]) -> Option<LockPolicy> {
    let mut policies = active.iter().map(|(_, holding)| holding.policy.0);
    let first = policies.next()?;
    policies.all(|policy| policy == first).then_some(first)
}

/// Makes a policy of words, with the other settings of the policy in force.
fn made(words: &str, base: LockPolicy) -> Option<LockPolicy> {
    let edit = policy::parse(&[words.to_owned()]).ok()??;
    edit.apply(base).ok()
}

/// Reports whether two policies do the same.
fn is_alike(one: &LockPolicy, other: &LockPolicy) -> bool {
    let without_order = |policy: &LockPolicy| LockPolicy {
        order: Order::default(),
        ..*policy
    };
    match (one.kind, other.kind) {
        (PolicyKind::Off, PolicyKind::Off) => without_order(one) == without_order(other),
        _ => one == other,
    }
}

/// Returns the jobs that work on a device now.
pub fn working(sample: &Sample, gpu: usize) -> Vec<Job> {
    jobs(&active(sample, gpu).collect::<Vec<_>>())
}

fn active(sample: &Sample, gpu: usize) -> impl Iterator<Item = (&ProcessSample, &Holding)> {
    let there = sample.holdings(gpu);
    there.filter(|(process, holding)| is_active(process, holding, sample.time_ns))
}

fn is_active(process: &ProcessSample, holding: &Holding, now_ns: u64) -> bool {
    let last = holding.counters.last_submit_ns;
    let lately = last > 0 && now_ns.saturating_sub(last) < ACTIVE_NS;
    let state = holding.lock.state;
    process.is_managed() && (lately || matches!(state, LockState::Wait | LockState::Back))
}

fn jobs(active: &[(&ProcessSample, &Holding)]) -> Vec<Job> {
    let mut named: FxHashMap<&str, usize> = FxHashMap::default();
    for (process, _) in active {
        *named.entry(process.name()).or_default() += 1;
    }
    let jobs = active.iter().map(|(process, _)| Job {
        who: Who::of(process),
        name: match named[process.name()] {
            1 => process.name().to_owned(),
            _ => process.pid_and_name(),
        },
        pid: process.shown_pid(),
        priority: process.share.priority,
        weight: process.share.weight,
    });
    jobs.collect()
}
