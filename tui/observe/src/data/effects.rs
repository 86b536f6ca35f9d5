//! The measured effects of policies: how much each job of a device did under each policy that was in force there.
//!
//! Figures are compared only between spans in which the same jobs were present.

use gpushare_control::measured::{Measured, compare};
use gpushare_sample::{LockPolicy, Sample, Who};

use crate::{
    rhythm::{P99_CHANCE, RATE_CHANCE},
    tune::plan::working,
};

/// A shorter time under a policy says too little about it.
const LEAST_S: f64 = 5.0;

/// The work of one job on a device since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Kernels and graphs launched.
    pub launches: u64,
    /// Time spent waiting.
    pub waited_ns: u64,
}

/// The work of the jobs of one device under each policy.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    jobs: Vec<Who>,
    /// Time, policy and work of the last sample.
    last: Option<(u64, LockPolicy, Vec<Work>)>,
    /// Seconds and work under each policy.
    under: Vec<(LockPolicy, f64, Vec<Work>)>,
}

/// The figures of one job under the present policy and under another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The job.
    pub who: Who,
    /// Launches in a second: under the present policy, and under the other one.
    launches: (f64, f64),
    /// Share of the time spent waiting, likewise.
    waited: (f64, f64),
    /// The 99th percentile of the times for which the device kept it waiting in a step, likewise.
    p99_ns: (Option<u64>, Option<u64>),
}

impl Effect {
    /// Reports whether the job did more under the other policy, or waited less without doing less.
    pub fn is_gain(&self) -> bool {
        let waits_less = self.waited.1 < self.waited.0 - RATE_CHANCE;
        let is_shorter = match self.p99_ns {
            (Some(now), Some(then)) => (then as f64) < now as f64 * (1.0 - P99_CHANCE),
            _ => false,
        };
        self.change() > RATE_CHANCE || (waits_less || is_shorter) && !self.is_loss()
    }

    /// Reports whether the job did less under the other policy.
    pub fn is_loss(&self) -> bool {
        self.change() < -RATE_CHANCE
    }

    fn change(&self) -> f64 {
        let (now, then) = self.launches;
        (then - now) / now.max(1e-9)
    }

    /// Writes the launches in a second under both policies: `24.6 to 4.8`.
    pub fn rates(&self) -> String {
        format!("{:.1} to {:.1}", self.launches.0, self.launches.1)
    }
}

impl Effects {
    /// Adds the work of the jobs up to now.
    pub fn update(&mut self, now_ns: u64, policy: LockPolicy, jobs: Vec<(Who, Work)>) {
        let (jobs, work): (Vec<Who>, Vec<Work>) = jobs.into_iter().unzip();
        if jobs != self.jobs {
            *self = Self {
                jobs,
                ..Self::default()
            };
        }
        if let Some((then_ns, then, before)) = &self.last
            && *then == policy
        {
            let seconds = now_ns.saturating_sub(*then_ns) as f64 / 1e9;
            let at = self.under.iter().position(|(of, ..)| *of == policy);
            let at = at.unwrap_or_else(|| {
                self.under
                    .push((policy, 0.0, vec![Work::default(); work.len()]));
                self.under.len() - 1
            });
            let (_, span, sums) = &mut self.under[at];
            *span += seconds;
            for ((sum, now), before) in sums.iter_mut().zip(&work).zip(before) {
                sum.launches += now.launches.saturating_sub(before.launches);
                sum.waited_ns += now.waited_ns.saturating_sub(before.waited_ns);
            }
        }
        self.last = Some((now_ns, policy, work));
    }

    /// Compares the present policy with another one; `None` until each was in force for some seconds.
    pub fn compare(&self, now: &LockPolicy, other: &LockPolicy) -> Option<Vec<Effect>> {
        let under = |policy: &LockPolicy| {
            let mut spans = self.under.iter();
            spans.find(|(of, seconds, _)| of == policy && *seconds >= LEAST_S)
        };
        let ((_, now_s, now), (_, then_s, then)) = (under(now)?, under(other)?);
        let jobs = self.jobs.iter().zip(now.iter().zip(then));
        Some(
            jobs.map(|(who, (now, then))| Effect {
                who: *who,
                launches: (now.launches as f64 / now_s, then.launches as f64 / then_s),
                waited: (
                    now.waited_ns as f64 / 1e9 / now_s,
                    then.waited_ns as f64 / 1e9 / then_s,
                ),
                p99_ns: (None, None),
            })
            .collect(),
        )
    }
}

/// Compares what the jobs that work on a device now did under its policy with what they did under another one, by what
/// `gpushare tune` has measured; `None` if it has not measured both for jobs of these names.
pub fn of_measurements(
    lines: &[Measured],
    sample: &Sample,
    gpu: usize,
    other: &LockPolicy,
) -> Option<Vec<Effect>> {
    let device = sample.devices.get(gpu)?;
    lines.iter().find(|line| line.uuid == device.uuid)?;
    let jobs = working(sample, gpu);
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    let compared = compare(lines, &device.uuid, &names, &device.policy.0, other)?;
    let effects = compared.into_iter().map(|compared| Effect {
        who: jobs[compared.job].who,
        launches: compared.rates,
        waited: (0.0, 0.0),
        p99_ns: compared.p99_ns,
    });
    Some(effects.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm_layout::Order;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_policy_is_judged_by_what_each_job_did_under_it() {
        let fair = LockPolicy::default();
        let urgent = LockPolicy {
            order: Order::Priority,
            ..fair
        };
        let (serve, batch) = (Who::Pid(1), Who::Pid(2));
        let mut effects = Effects::default();
        let (mut one, mut two) = (Work::default(), Work::default());
        for second in 0..20 {
            let policy = if second < 10 { fair } else { urgent };
            effects.update(second * S, policy, vec![(serve, one), (batch, two)]);
            one.launches += 100;
            one.waited_ns += if second < 10 { S / 2 } else { 0 };
            two.launches += if second < 10 { 50 } else { 10 };
            let compared = effects.compare(&fair, &urgent);
            assert_eq!(compared.is_some(), second >= 15, "{second}");
        }
        let compared = effects.compare(&fair, &urgent).expect("both were in force");
        assert!(
            compared[0].is_gain() && !compared[0].is_loss(),
            "it waits less"
        );
        assert!(compared[1].is_loss() && !compared[1].is_gain());
        assert_eq!(compared[1].rates(), "50.0 to 10.0");
        let back = effects.compare(&urgent, &fair).expect("both were in force");
        assert!(back[1].is_gain() && !back[0].is_gain());

        effects.update(20 * S, urgent, vec![(serve, one)]);
        assert_eq!(
            effects.compare(&fair, &urgent),
            None,
            "another job is missing now"
        );
    }
}
