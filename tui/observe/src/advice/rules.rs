//! The table of advice rules: the situation that each rule detects, where its effect was measured, and its test.

use shm_layout::{Order, PolicyKind, SlotId};

use super::evidence::{Evidence, Job};
use gpushare_base::text::units::short_time;

/// A rule that recognises one situation.
pub struct Rule {
    /// The rule's name in JSON.
    pub name: &'static str,
    /// The situation that the rule detects.
    pub about: &'static str,
    /// The document or benchmark in which the effect was measured.
    pub basis: &'static str,
    pub(super) find: fn(&Evidence) -> Option<Found>,
}

/// The result of a rule that matches.
pub(super) struct Found {
    pub(super) sentence: String,
    pub(super) policy: String,
    pub(super) first: Option<First>,
}

/// A job, and the priority that puts it before the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    /// The job's slot.
    pub slot: SlotId,
    /// The job's pid.
    pub pid: u32,
    /// Pid and name.
    pub title: String,
    /// The proposed priority.
    pub priority: i32,
}

impl Found {
    fn new(policy: impl Into<String>, sentence: String) -> Self {
        Self {
            sentence,
            policy: policy.into(),
            first: None,
        }
    }
}

macro_rules! rules {
    ($($name:literal $find:path: $about:literal, $basis:literal;)*) => {
        /// Every rule; the first that matches gives the advice.
        pub static RULES: &[Rule] = &[$(Rule {
            name: $name,
            about: $about,
            basis: $basis,
            find: $find,
        },)*];
    };
}

rules! {
    "turns_under_mps" turns_under_mps:
        "jobs under MPS take turns",
        "H100, 2026-11-22, an inference beside two trainings: 44.7 steps/s under MPS, 44.9 under MPS and overlap; at most 36.5 \
         in turns";
    "priorities" priorities:
        "jobs have different priorities, and the policy does not act on them",
        "H100, 2026-11-22, an inference beside two trainings: p50 4.89 ms under overlap=1ms, 7.77 ms without a policy, 26.1 ms in \
         turns of 20 ms; the trainings had 98.6 % of what they have without a policy";
    "urgent_waits" urgent_waits:
        "a job of higher priority waits for its turn",
        "H100, 2026-11-22, an inference beside two trainings: p99 10.6 ms and 37.6 steps/s under overlap=2ms order=priority, \
         12.5 ms and 31.6 under timeslice=2ms order=priority";
    "small_waits" small_waits:
        "a job that needs little waits for jobs that need much",
        "H100, 2026-11-22, an inference beside two trainings: p99 10.8 ms under overlap=1ms order=priority, 70.9 ms under \
         timeslice=20ms order=fair; the trainings had 98.6 % of what they have without a policy";
    "idle_holder" idle_holder:
        "holders keep a device that they do not use",
        "H100, a server that answers requests: under idle=5ms each request left the device empty for 5 ms";
    "short_turns" short_turns:
        "turns are so short that hand-offs cost much",
        "H200, 2026-11-20, an urgent task beside two others: their kernels/s were 162 under always, 187 under timeslice=5ms";
    "long_turns" long_turns:
        "equal jobs wait for long turns",
        "H100, 2026-11-22, two servers under timeslice=5ms order=fair: 95.7 % of the tokens/s without a policy, and 6.5 ms \
         between tokens in 99 of 100 cases";
    "weights" weights:
        "jobs have different weights, and no policy acts on them",
        "H200, 2026-11-20, timeslice=5ms order=fair: weights 1:2:4 had 14.3, 28.6 and 57.1 % of the time (14.3, 28.6 and 57.1 \
         wanted); H100, 2026-11-22: two servers had 95.7 % of the tokens/s without a policy";
    "equals" equals:
        "equal jobs keep a device busy without a policy",
        "H200, 2026-11-20, timeslice=5ms order=fair: two alike had 50 % each, within 0.2; H100, 2026-11-22: two servers had \
         95.7 % of the tokens/s without a policy";
}

/// A job that holds the device for less than this share of the time counts as small.
const SMALL: f64 = 0.25;
/// A job that waits for more than this share of the time counts as waiting too much.
const MUCH: f64 = 0.3;

fn others(evidence: &Evidence) -> String {
    match evidence.jobs.len() - 1 {
        1 => "the other job".to_owned(),
        count => format!("{count} other jobs"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn several(evidence: &Evidence) -> Option<&[Job]> {
    Some(evidence.jobs.as_slice()).filter(|jobs| jobs.len() > 1)
}

fn turns_under_mps(evidence: &Evidence) -> Option<Found> {
    let jobs = several(evidence)?;
    if !evidence.under_mps() || !evidence.policy.kind.has_turns() {
        return None;
    }
    let order = match evidence.urgent() {
        Some(_) => Order::Priority,
        None => Order::Fair,
    };
    let policy = format!("overlap order={}", order.word());
    let sentence = format!(
        "{} jobs run under MPS and {} lets them run one at a time; {policy} would let their kernels run at once again, and \
         would cost the exact shares that turns give",
        jobs.len(),
        evidence.policy_words(),
    );
    Some(Found::new(policy, sentence))
}

const BY_PRIORITY: &str = "overlap order=priority";

fn priorities(evidence: &Evidence) -> Option<Found> {
    several(evidence)?;
    let urgent = evidence.urgent()?;
    if evidence.by_priority() {
        return None;
    }
    let sentence = format!(
        "{} has priority {} and {} does not act on it; {BY_PRIORITY} would let it go first at once, and would cost {} \
         1 to 2 % of throughput",
        urgent.title,
        urgent.priority,
        evidence.policy_words(),
        others(evidence),
    );
    Some(Found::new(BY_PRIORITY, sentence))
}

fn urgent_waits(evidence: &Evidence) -> Option<Found> {
    several(evidence)?;
    let urgent = evidence.urgent()?;
    if !evidence.by_priority() || !evidence.policy.kind.has_turns() || urgent.waited < 0.05 {
        return None;
    }
    let sentence = format!(
        "{} has priority {} and waited {} of the time for its turns under {}; {BY_PRIORITY} would let it submit at once, and \
         would cost the certainty that no other kernel runs beside its own",
        urgent.title,
        urgent.priority,
        percent(urgent.waited),
        evidence.policy_words(),
    );
    Some(Found::new(BY_PRIORITY, sentence))
}

fn small_waits(evidence: &Evidence) -> Option<Found> {
    let jobs = several(evidence)?;
    if !evidence.policy.kind.has_turns() || evidence.urgent().is_some() {
        return None;
    }
    // A job with much work uses its turns up. A job that waits because of its low weight gets its intended share.
    let longest = jobs.iter().filter_map(|job| job.turn_p50_ns).max()?;
    let is_small = |job: &&Job| {
        let short = job.turn_p50_ns.is_some_and(|turn| turn <= longest / 4);
        let bigger: Vec<&Job> = jobs
            .iter()
            .filter(|other| other.held > 2.0 * job.held)
            .collect();
        let outweighed = bigger.iter().any(|other| other.weight > job.weight);
        let waits = job.held < SMALL && job.waited > MUCH && !job.limited;
        waits && short && !outweighed && !bigger.is_empty()
    };
    let small = jobs
        .iter()
        .filter(is_small)
        .min_by(|a, b| a.held.total_cmp(&b.held))?;
    let p99 = small
        .wait_p99_ns
        .map_or_else(String::new, |ns| format!(" (p99 {})", short_time(ns)));
    let sentence = format!(
        "{} used {} of the time and waited {}{p99} under {}; priority 5 for it and {BY_PRIORITY} would let it go first at once, \
         and would cost {} 1 to 2 % of throughput",
        small.title,
        percent(small.held),
        percent(small.waited),
        evidence.policy_words(),
        others(evidence),
    );
    Some(Found {
        first: Some(First {
            slot: small.slot,
            pid: small.pid,
            title: small.title.clone(),
            priority: 5,
        }),
        ..Found::new(BY_PRIORITY, sentence)
    })
}

fn idle_holder(evidence: &Evidence) -> Option<Found> {
    let jobs = several(evidence)?;
    let idle_ns = evidence
        .policy
        .idle_ns
        .filter(|_| evidence.policy.kind.has_turns())?;
    let ends: u64 = jobs.iter().map(|job| job.idle_ends).sum();
    let lost = ends as f64 * idle_ns as f64 / 1e9 / evidence.seconds.max(1e-9);
    if lost < 0.05 {
        return None;
    }
    let sentence = format!(
        "{ends} turns ended after {} without work, {} of the time; idle=auto would give the device on as soon as a job's pauses \
         have been seen, and would cost a hand-off where a pause is shorter than before",
        short_time(idle_ns),
        percent(lost.min(1.0)),
    );
    Some(Found::new("idle=auto", sentence))
}

fn short_turns(evidence: &Evidence) -> Option<Found> {
    /// Shorter slices than this are chosen on purpose and get no advice.
    const SHORT_NS: u64 = 1_000_000;
    let jobs = several(evidence)?;
    let short = match evidence.policy.kind {
        PolicyKind::Always | PolicyKind::Launches(_) => true,
        PolicyKind::Timeslice(ns) => ns < SHORT_NS,
        PolicyKind::Off | PolicyKind::Overlap(_) => false,
    };
    let turns: u64 = jobs.iter().map(|job| job.turns).sum();
    let length = jobs.iter().filter_map(|job| job.turn_p50_ns).min()?;
    let rate = turns as f64 / evidence.seconds.max(1e-9);
    let contended = jobs.iter().any(|job| job.waited > MUCH);
    if !short || !contended || length > 2 * SHORT_NS || rate < 100.0 {
        return None;
    }
    let policy = format!("timeslice=5ms order={}", evidence.policy.order.word());
    let sentence = format!(
        "there were {rate:.0} turns a second under {}, each with a drain and a hand-off, half of them shorter than {}; {policy} \
         would get about 15 % more done, and would cost waits of 5 ms for each of the other jobs",
        evidence.policy_words(),
        short_time(length),
    );
    Some(Found::new(policy, sentence))
}

fn long_turns(evidence: &Evidence) -> Option<Found> {
    const LONG_NS: u64 = 20_000_000;
    const SLICE_NS: u64 = 5_000_000;
    let jobs = several(evidence)?;
    let PolicyKind::Timeslice(slice) = evidence.policy.kind else {
        return None;
    };
    let all_wait = jobs.iter().all(|job| job.waited > 0.2 || job.limited);
    let p99 = jobs.iter().filter_map(|job| job.wait_p99_ns).max()?;
    if slice < LONG_NS || !all_wait || evidence.urgent().is_some() {
        return None;
    }
    let policy = format!("timeslice=5ms order={}", evidence.policy.order.word());
    let sentence = format!(
        "{} jobs wait for each other's turns of {}, up to {} in 99 of 100 cases; {policy} would make that about {}, and would \
         cost 2 to 4 % of throughput",
        jobs.len(),
        short_time(slice),
        short_time(p99),
        short_time(SLICE_NS * (jobs.len() as u64 - 1)),
    );
    Some(Found::new(policy, sentence))
}

const IN_TURNS: &str = "timeslice=5ms order=fair";

/// Returns the jobs of a device without a policy. Under MPS it returns `None`, because turns would cost what MPS gains.
fn unordered(evidence: &Evidence) -> Option<&[Job]> {
    let jobs = several(evidence)?;
    let off = evidence.policy.kind == PolicyKind::Off && !evidence.under_mps();
    (off && evidence.urgent().is_none()).then_some(jobs)
}

fn weights(evidence: &Evidence) -> Option<Found> {
    let jobs = unordered(evidence)?;
    if jobs.iter().all(|job| job.weight == jobs[0].weight) {
        return None;
    }
    let mut weights: Vec<u32> = jobs.iter().map(|job| job.weight).collect();
    weights.sort_unstable();
    let weights: Vec<String> = weights.iter().map(u32::to_string).collect();
    let sentence = format!(
        "{} jobs have the weights {} and no policy acts on them; {IN_TURNS} would give each its share of the time, and would \
         cost 2 to 4 % of throughput",
        jobs.len(),
        weights.join(":"),
    );
    Some(Found::new(IN_TURNS, sentence))
}

fn equals(evidence: &Evidence) -> Option<Found> {
    let jobs = unordered(evidence)?;
    // On a device with spare time the jobs hardly collide.
    if evidence.util_percent.is_some_and(|percent| percent < 80) {
        return None;
    }
    let sentence = format!(
        "{} equal jobs share it without a policy, and one's queue delays the others; {IN_TURNS} would give each {} of the time, \
         one at a time, and would cost 2 to 4 % of throughput",
        jobs.len(),
        percent(1.0 / jobs.len() as f64),
    );
    Some(Found::new(IN_TURNS, sentence))
}

#[cfg(test)]
mod tests;
