//! Advice: the policy that would serve the jobs of a device better, judged from what they did over some seconds.
//!
//! A row reads plain [`Evidence`] and changes nothing. The first that fits gives the advice.

use shm_layout::policy::TurnLimit;
use shm_layout::{Order, PolicyKind};

use super::{Evidence, Finding, Job, Kind};
use crate::finding::{Edit, Listed, Remedy};
use gpushare_base::text::policy::in_words;
use gpushare_base::text::units::short_time;
use gpushare_sample::{LONG_KERNEL_NS, Who};

/// Explains why no change would help.
pub fn content(evidence: &Evidence) -> String {
    let gpu = evidence.gpu;
    if !evidence.wait_for_memory.is_empty() {
        return format!(
            "GPU{gpu}: no policy helps {}: memory is what is waited for, and gpushare ps says whose",
            evidence.wait_for_memory.join(", ")
        );
    }
    match evidence.jobs.as_slice() {
        [] => format!("GPU{gpu}: no job of gpushare used it; nothing to change"),
        [one] => format!(
            "GPU{gpu}: {} runs alone, and a policy costs it nothing; nothing to change",
            one.title
        ),
        jobs => format!(
            "GPU{gpu}: {} serves its {} jobs well; nothing to change",
            in_words(&evidence.policy),
            jobs.len()
        ),
    }
}

/// Returns advice that gains more than any policy, for jobs that may share a crash.
pub fn also(evidence: &Evidence) -> Option<&'static str> {
    let one_user = |jobs: &[Job]| jobs.windows(2).all(|pair| pair[0].uid == pair[1].uid);
    let could = evidence.jobs.len() > 1 && one_user(&evidence.jobs) && !evidence.is_sim;
    (could && !evidence.under_mps()).then_some(
        "where a crash of one job may end the others, run gpushare mps start before they start: two trainings beside an \
         inference did 48.2 steps/s under overlap order=priority, in place of 40.2 without MPS, and the inference was about as fast \
         (H200, 2026-11-28)",
    )
}

/// Makes the finding that proposes a policy by which all jobs gain.
fn propose(
    kind: &'static Kind,
    evidence: &Evidence,
    what: String,
    words: &str,
    gain: String,
) -> Finding {
    let mut finding = Finding::new(kind, 0, what);
    let gpu = evidence.gpu;
    finding.gpu = Some(gpu);
    finding.evidence = format!("seen over {:.1} s", evidence.seconds);
    finding.remedy = Some(Remedy {
        text: words.to_owned(),
        gain,
        gainers: evidence
            .jobs
            .iter()
            .map(|job| Who::Slot(job.slot))
            .collect(),
        edits: vec![Edit::Policy {
            gpu,
            words: words.to_owned(),
        }],
    });
    finding
}

/// Splits the jobs into the identities of those that gain and the names of those that lose.
fn split(evidence: &Evidence, gains: impl Fn(&Job) -> bool) -> (Vec<Who>, Listed) {
    let (gainers, losers): (Vec<&Job>, Vec<&Job>) =
        evidence.jobs.iter().partition(|job| gains(job));
    (
        gainers.iter().map(|job| Who::Slot(job.slot)).collect(),
        titles(losers),
    )
}

/// Lists jobs.
fn titles<'j>(jobs: impl IntoIterator<Item = &'j Job>) -> Listed {
    Listed::of(jobs, |job| job.title.clone())
}

/// A job that holds the device for less than this share of the time counts as small.
const SMALL: f64 = 0.25;
/// A job that waits for more than this share of the time counts as waiting too much.
const MUCH: f64 = 0.3;

/// The slice of turns that are neither too long nor too short.
const SLICE_NS: u64 = 5_000_000;

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn several(evidence: &Evidence) -> Option<&[Job]> {
    Some(evidence.jobs.as_slice()).filter(|jobs| jobs.len() > 1)
}

/// MPS interrupts no kernel, so no policy helps: the job has to stay out of MPS.
pub(super) fn long_kernels(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
    let clients = || evidence.jobs.iter().filter(|job| job.mps);
    let long = clients().max_by_key(|job| job.submission_ns)?;
    let waits = |job: &&Job| job.submission_ns < long.submission_ns / 2;
    let waiting: Vec<String> = clients()
        .filter(waits)
        .map(|job| job.title.clone())
        .collect();
    if long.submission_ns < LONG_KERNEL_NS || waiting.is_empty() {
        return None;
    }
    let what = format!(
        "{} runs kernels of {} under MPS, which interrupts none: {} {} up to that long for each",
        long.title,
        short_time(long.submission_ns),
        waiting.join(", "),
        if waiting.len() == 1 { "waits" } else { "wait" },
    );
    let mut finding = Finding::new(kind, 0, what);
    finding.gpu = Some(evidence.gpu);
    finding.evidence = format!("seen over {:.1} s", evidence.seconds);
    finding
        .advise("start it with gpushare run --no-mps, beside the others")
        .costs("what MPS gains for it", titles([long]));
    Some(finding)
}

pub(super) fn turns_under_mps(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
    let jobs = several(evidence)?;
    if !evidence.under_mps() || !evidence.policy.kind.has_turns() {
        return None;
    }
    let order = match evidence.urgent() {
        Some(_) => Order::Priority,
        None => Order::Fair,
    };
    let what = format!(
        "{} jobs run under MPS, and the policy ({}) lets them run one at a time",
        jobs.len(),
        in_words(&evidence.policy),
    );
    let words = format!("overlap order={}", order.word());
    let gain = "let their kernels run at once again".to_owned();
    let mut finding = propose(kind, evidence, what, &words, gain);
    finding.costs("the exact shares that turns give", titles(&evidence.jobs));
    Some(finding)
}

const BY_PRIORITY: &str = "overlap order=priority";

/// Proposes that the jobs that gain go first, at the cost of the others.
fn first_at_once(
    kind: &'static Kind,
    evidence: &Evidence,
    what: String,
    gains: impl Fn(&Job) -> bool,
) -> Finding {
    let (gainers, losers) = split(evidence, gains);
    let gain = "let it go first at once".into();
    let mut finding = propose(kind, evidence, what, BY_PRIORITY, gain);
    finding
        .for_jobs(gainers)
        .costs("launches while it works", losers);
    finding
}

pub(super) fn priorities(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
    several(evidence)?;
    let urgent = evidence.urgent()?;
    if evidence.by_priority() {
        return None;
    }
    let what = format!(
        "{} has priority {}, and the policy ({}) does not act on it",
        urgent.title,
        urgent.priority,
        in_words(&evidence.policy),
    );
    let gains = |job: &Job| job.priority == urgent.priority;
    Some(first_at_once(kind, evidence, what, gains))
}

pub(super) fn urgent_waits(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
    several(evidence)?;
    let urgent = evidence.urgent()?;
    if !evidence.by_priority() || !evidence.policy.kind.has_turns() || urgent.waited < 0.05 {
        return None;
    }
    let what = format!(
        "{} has priority {} and waited {} of the time for its turns under {}",
        urgent.title,
        urgent.priority,
        percent(urgent.waited),
        in_words(&evidence.policy),
    );
    let mut finding = propose(
        kind,
        evidence,
        what,
        BY_PRIORITY,
        "let it submit at once".into(),
    );
    finding.for_jobs(vec![Who::Slot(urgent.slot)]).costs(
        "the certainty that no other kernel runs beside its own",
        titles([urgent]),
    );
    Some(finding)
}

pub(super) fn small_waits(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
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
    let what = format!(
        "{} used {} of the time and waited {}{p99} under {}",
        small.title,
        percent(small.held),
        percent(small.waited),
        in_words(&evidence.policy),
    );
    let mut finding = first_at_once(kind, evidence, what, |job| job.slot == small.slot);
    if let Some(remedy) = &mut finding.remedy {
        remedy.text = format!("priority 5 for it and {BY_PRIORITY}");
        remedy
            .edits
            .insert(0, Edit::priority(Who::Slot(small.slot), 5));
    }
    Some(finding)
}

pub(super) fn idle_holder(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
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
    let what = format!(
        "{ends} turns ended after {} without work, {} of the time",
        short_time(idle_ns),
        percent(lost.min(1.0)),
    );
    let gain = "give the device on as soon as a job's pauses have been seen".to_owned();
    let mut finding = propose(kind, evidence, what, "idle=auto", gain);
    let (_, idle) = split(evidence, |job| job.idle_ends == 0);
    finding.costs("a hand-off where a pause is shorter than before", idle);
    if let Some(ns) = evidence.handoff_ns {
        finding.measured(format!("{} each", short_time(ns)));
    }
    Some(finding)
}

/// A device on which a kernel runs for less than this share of the time, in percent, has time to spare.
const SPARE: u32 = 60;

pub(super) fn spare_time(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
    let jobs = several(evidence)?;
    let is_fair = evidence.policy.kind.is_gated() && evidence.policy.order == Order::Fair;
    let busy = evidence
        .util_percent
        .filter(|busy| is_fair && *busy < SPARE)?;
    let waits = |job: &&Job| job.waited > MUCH && !job.limited;
    let held_back = jobs.iter().filter(waits);
    let held_back = held_back.max_by(|a, b| a.waited.total_cmp(&b.waited))?;
    let what = format!(
        "{} is held back for the shares of others {} of the time, and the GPU is empty {} % of it",
        held_back.title,
        percent(held_back.waited),
        100 - busy,
    );
    let words = match evidence.has_card_slices() {
        true => BY_CARD,
        false => "off",
    };
    let gain = "let it have the time that the others leave".to_owned();
    let mut finding = propose(kind, evidence, what, words, gain);
    let least = held_back.waited / 2.0;
    let (gainers, losers) = split(evidence, |job| job.waited >= least && !job.limited);
    finding
        .for_jobs(gainers)
        .costs("the certainty of their shares", losers);
    Some(finding)
}

pub(super) fn short_turns(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
    /// Shorter slices than this are chosen on purpose and get no advice.
    const SHORT_NS: u64 = 1_000_000;
    let jobs = several(evidence)?;
    let short = match evidence.policy.kind.turn_limit() {
        Some(TurnLimit::Calls(_)) => true,
        Some(TurnLimit::Time(ns)) => ns < SHORT_NS,
        None => false,
    };
    let turns: u64 = jobs.iter().map(|job| job.turns).sum();
    let length = jobs.iter().filter_map(|job| job.turn_p50_ns).min()?;
    let rate = turns as f64 / evidence.seconds.max(1e-9);
    let contended = jobs.iter().any(|job| job.waited > MUCH);
    if !short || !contended || length > 2 * SHORT_NS || rate < 100.0 {
        return None;
    }
    let spent = evidence.handoff_ns.map(|ns| ns as f64 / 1e9 * rate);
    let what = format!(
        "there were {rate:.0} turns a second under {}, each with a drain and a hand-off, half of them shorter than {}",
        in_words(&evidence.policy),
        short_time(length),
    );
    let gain = match spent {
        Some(share) => format!(
            "save most of the {} of the time that hand-offs take",
            percent(share.min(1.0))
        ),
        None => "save most hand-offs".to_owned(),
    };
    let words = format!("timeslice=5ms order={}", evidence.policy.order.word());
    let mut finding = propose(kind, evidence, what, &words, gain);
    let longest = short_time(SLICE_NS * (jobs.len() as u64 - 1));
    finding.costs(format!("waits of up to {longest}"), titles(&evidence.jobs));
    Some(finding)
}

pub(super) fn long_turns(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
    const LONG_NS: u64 = 20_000_000;
    let jobs = several(evidence)?;
    let PolicyKind::Timeslice(slice) = evidence.policy.kind else {
        return None;
    };
    let all_wait = jobs.iter().all(|job| job.waited > 0.2 || job.limited);
    let p99 = jobs.iter().filter_map(|job| job.wait_p99_ns).max()?;
    if slice < LONG_NS || !all_wait || evidence.urgent().is_some() {
        return None;
    }
    let what = format!(
        "{} jobs wait for each other's turns of {}, up to {} in 99 of 100 cases",
        jobs.len(),
        short_time(slice),
        short_time(p99),
    );
    let gain = format!(
        "make that about {}",
        short_time(SLICE_NS * (jobs.len() as u64 - 1))
    );
    let words = format!("timeslice=5ms order={}", evidence.policy.order.word());
    let mut finding = propose(kind, evidence, what, &words, gain);
    finding.costs("throughput", titles(&evidence.jobs));
    if let Some(ns) = evidence.handoff_ns {
        let part = |slice: u64| ns as f64 / (slice + ns) as f64;
        let more = (part(SLICE_NS) - part(slice)) * 100.0;
        finding.measured(format!(
            "{more:.2} % of the time in hand-offs of {}",
            short_time(ns)
        ));
    }
    Some(finding)
}

const IN_TURNS: &str = "timeslice=5ms order=fair";
/// Shares by the card's own slices: no job waits while the card is empty. Jobs that wait after each step share equally.
const BY_CARD: &str = "hw-timeslice=5ms";

/// Returns the jobs of a device without a policy. Under MPS it returns `None`, because turns would cost what MPS gains.
fn unordered(evidence: &Evidence) -> Option<&[Job]> {
    let jobs = several(evidence)?;
    let off = evidence.policy.kind == PolicyKind::Off && !evidence.under_mps();
    (off && evidence.urgent().is_none()).then_some(jobs)
}

pub(super) fn weights(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
    let jobs = unordered(evidence)?;
    if jobs.iter().all(|job| job.weight == jobs[0].weight) {
        return None;
    }
    let mut weights: Vec<u32> = jobs.iter().map(|job| job.weight).collect();
    weights.sort_unstable();
    let sum: u32 = weights
        .iter()
        .fold(0, |sum, weight| sum.saturating_add(*weight));
    let weights: Vec<String> = weights.iter().map(u32::to_string).collect();
    let what = format!(
        "{} jobs have the weights {} and no policy acts on them",
        jobs.len(),
        weights.join(":"),
    );
    let gain = "give each its share of the time".to_owned();
    let mut finding = propose(kind, evidence, what, IN_TURNS, gain);
    let heavy = |job: &Job| u64::from(job.weight) * jobs.len() as u64 > u64::from(sum);
    let (gainers, losers) = split(evidence, heavy);
    finding
        .for_jobs(gainers)
        .costs("what they do above their share, and hand-offs", losers);
    Some(finding)
}

pub(super) fn equals(kind: &'static Kind, evidence: &Evidence) -> Option<Finding> {
    let jobs = unordered(evidence)?;
    // On a device with spare time the jobs hardly collide.
    if evidence.util_percent.is_some_and(|percent| percent < 80) {
        return None;
    }
    let what = format!(
        "{} equal jobs share it without a policy, and one's queue delays the others",
        jobs.len()
    );
    let share = percent(1.0 / jobs.len() as f64);
    let gain = format!("give each {share} of the time, one at a time");
    let (words, cost) = match evidence.has_card_slices() {
        true => (BY_CARD, "waits for longer slices of the others"),
        false => (IN_TURNS, "throughput in hand-offs"),
    };
    let mut finding = propose(kind, evidence, what, words, gain);
    finding.costs(cost, titles(&evidence.jobs));
    Some(finding)
}

#[cfg(test)]
mod tests;
