//! The aim of a search.

use super::job::Job;
use crate::rhythm::{P99_CHANCE, RATE_CHANCE, Rhythm};
use gpushare_sample::Who;

/// The figure by which settings are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The 99th percentile of the time for which the device keeps these jobs waiting in a step.
    P99(Vec<Who>),
    /// The rate of these jobs.
    Rate(Vec<Who>),
    /// The rates of all jobs together, each in parts of its best.
    Throughput,
    /// The rate of the job that is furthest from its best.
    Fair,
}

impl Aim {
    /// Returns the usual aim: the percentile of the urgent job, else the throughput.
    pub fn usual(jobs: &[Job]) -> Self {
        let top = jobs.iter().map(|job| job.priority).max();
        let urgent: Vec<Who> = jobs
            .iter()
            .filter(|job| Some(job.priority) == top)
            .map(|job| job.who)
            .collect();
        match urgent.len() < jobs.len() {
            true => Aim::P99(urgent),
            false => Aim::Throughput,
        }
    }

    /// Returns the gain below which a setting is no better.
    pub(super) fn least_gain(&self) -> f64 {
        match self {
            Aim::P99(_) => P99_CHANCE,
            Aim::Rate(_) | Aim::Throughput | Aim::Fair => RATE_CHANCE,
        }
    }

    /// Describes the aim.
    pub fn about(&self, jobs: &[Job]) -> String {
        let names = |wanted: &[Who]| {
            let names = jobs.iter().filter(|job| wanted.contains(&job.who));
            let names: Vec<&str> = names.map(|job| job.name.as_str()).collect();
            names.join(", ")
        };
        match self {
            Aim::P99(wanted) => format!("the shortest p99 of {}", names(wanted)),
            Aim::Rate(wanted) => format!("the highest rate of {}", names(wanted)),
            Aim::Throughput => "the most work of all jobs together".into(),
            Aim::Fair => "the most work of the job that gets least".into(),
        }
    }

    /// Scores what the jobs did in one round; more is better.
    pub(super) fn score(&self, jobs: &[Job], done: &[Rhythm], best: &[f64]) -> f64 {
        let parts = || {
            let rates = done.iter().zip(best);
            rates.map(|(done, best)| done.launches_per_s() / best.max(1e-9))
        };
        let least = |scores: &mut dyn Iterator<Item = f64>| scores.fold(f64::INFINITY, f64::min);
        let of = |wanted: &[Who]| {
            jobs.iter()
                .map(|job| wanted.contains(&job.who))
                .collect::<Vec<_>>()
        };
        match self {
            Aim::P99(wanted) => {
                let wanted = of(wanted);
                let steps = done.iter().zip(wanted).filter(|(_, wanted)| *wanted);
                // A job that ended no step waited for longer than the measurement.
                let speed =
                    |done: &Rhythm| done.step_p99_ns().map_or(0.0, |ns| 1e9 / ns.max(1) as f64);
                least(&mut steps.map(|(done, _)| speed(done)))
            }
            Aim::Rate(wanted) => {
                let wanted = of(wanted);
                least(
                    &mut parts()
                        .zip(wanted)
                        .filter(|(_, wanted)| *wanted)
                        .map(|(part, _)| part),
                )
            }
            Aim::Throughput => parts().sum::<f64>() / done.len().max(1) as f64,
            Aim::Fair => least(&mut parts()),
        }
    }
}
