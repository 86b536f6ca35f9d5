//! Advice: the policy that would serve the jobs of a device better, judged from their recent behaviour.
//!
//! [`Evidence`] is what the segments and NVML report about one device over some seconds: between two samples, or over
//! the recent events of the ring. The table of [`rules`] turns it into one sentence, which states the observation, the
//! better policy and its cost, together with the place where both were measured. A rule reads plain data and changes
//! nothing. The first rule that matches gives the advice.

mod evidence;
pub mod rules;

pub use evidence::{Evidence, Job, LOOK_BACK_NS};
pub use rules::First;

/// A policy that would serve the jobs of a device better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The rule's name.
    pub rule: &'static str,
    /// The observation, the better policy, and its cost.
    pub sentence: String,
    /// The document or benchmark in which the effect was measured.
    pub basis: &'static str,
    /// The policy, as it is typed after `gpushare policy set GPU`.
    pub policy: String,
    /// The job that should get a higher priority than the others.
    pub first: Option<First>,
}

/// Returns the advice for a device; `None` if no change would help.
pub fn advise(evidence: &Evidence) -> Option<Advice> {
    rules::RULES.iter().find_map(|rule| {
        let found = (rule.find)(evidence)?;
        Some(Advice {
            rule: rule.name,
            sentence: format!("GPU{}: {}", evidence.gpu, found.sentence),
            basis: rule.basis,
            policy: found.policy,
            first: found.first,
        })
    })
}

/// Explains why no change would help.
pub fn content(evidence: &Evidence) -> String {
    let gpu = evidence.gpu;
    match evidence.jobs.as_slice() {
        [] => format!("GPU{gpu}: no job of gpushare used it; nothing to change"),
        [one] => format!(
            "GPU{gpu}: {} runs alone, and a policy costs it nothing; nothing to change",
            one.title
        ),
        jobs => format!(
            "GPU{gpu}: {} serves its {} jobs well; nothing to change",
            evidence.policy_words(),
            jobs.len()
        ),
    }
}

/// Returns advice that gains more than any policy, for jobs that may share a crash.
pub fn also(evidence: &Evidence) -> Option<&'static str> {
    let one_user = |jobs: &[Job]| jobs.windows(2).all(|pair| pair[0].uid == pair[1].uid);
    let could = evidence.jobs.len() > 1 && one_user(&evidence.jobs) && !evidence.is_sim;
    (could && !evidence.under_mps()).then_some(
        "where a crash of one job may end the others, run gpushare mps start before they start: an inference beside two \
         trainings had a p50 of 3.99 ms and the trainings 44.9 steps/s, in place of 6.52 ms and 37.7 (H100, 2026-11-22)",
    )
}
