//! What the best setting is best at, and the choice by it.

use super::{Job, Plan};
use crate::rhythm::Rhythm;
use gpushare_sample::Who;

/// What the best setting is best at.
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

/// Of all pairs of a round of a setting and a round of the start, the part in which the setting must be better. With three rounds
/// each, one of nine pairs may be otherwise.
const CERTAIN: f64 = 0.85;
/// Settings whose scores differ by less than this serve the aim equally well. The one with the most throughput is chosen.
const ALIKE: f64 = 0.05;

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

    /// Returns the gain below which a setting is no better: a percentile is known to a part of a fourth of an octave.
    fn least_gain(&self) -> f64 {
        match self {
            Aim::P99(_) => 0.1,
            Aim::Rate(_) | Aim::Throughput | Aim::Fair => 0.02,
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
    fn score(&self, jobs: &[Job], done: &[Rhythm], best: &[f64]) -> f64 {
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

/// Returns the setting that serves the aim of the plan best: one that was certainly better than the start, or the start.
/// `measured` has a list of rounds for each setting, with a rhythm for each job.
pub fn choose(plan: &Plan, measured: &[Vec<Vec<Rhythm>>]) -> usize {
    let best: Vec<f64> = (0..plan.jobs.len())
        .map(|job| best_rate(measured, job))
        .collect();
    let scores = |aim: &Aim, at: usize| -> Vec<f64> {
        let rounds = measured[at].iter();
        rounds
            .map(|done| aim.score(&plan.jobs, done, &best))
            .collect()
    };
    let start = scores(&plan.aim, 0);
    let better = (1..measured.len()).filter_map(|at| {
        let scores = scores(&plan.aim, at);
        is_better(&scores, &start, plan.aim.least_gain()).then(|| (at, median(&scores)))
    });
    let better: Vec<(usize, f64)> = better.collect();
    let top = better.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    let good = better
        .iter()
        .filter(|(_, score)| *score >= top * (1.0 - ALIKE));
    let together = |at: usize| median(&scores(&Aim::Throughput, at));
    let chosen = good.max_by(|(one, _), (other, _)| together(*one).total_cmp(&together(*other)));
    chosen.map_or(0, |(at, _)| *at)
}

/// Reports whether the rounds of a setting were better than those of the start, by more than chance explains.
fn is_better(scores: &[f64], start: &[f64], least_gain: f64) -> bool {
    let pairs = scores
        .iter()
        .flat_map(|score| start.iter().map(move |start| score > start));
    let (won, all) = pairs.fold((0, 0), |(won, all), is_won| {
        (won + u32::from(is_won), all + 1)
    });
    let gains = median(scores) > median(start) * (1.0 + least_gain);
    gains && f64::from(won) >= CERTAIN * f64::from(all)
}

/// Returns the highest rate that a job had under any setting.
fn best_rate(measured: &[Vec<Vec<Rhythm>>], job: usize) -> f64 {
    let rates = measured.iter().map(|rounds| {
        let rates: Vec<f64> = rounds
            .iter()
            .map(|done| done[job].launches_per_s())
            .collect();
        median(&rates)
    });
    rates.fold(0.0, f64::max)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        even if even % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}
