//! The choice of the setting that serves the aim best, or of the one at the start.

use super::aim::Aim;
use super::plan::Plan;
use crate::rhythm::Rhythm;
use gpushare_base::median;

/// Of all pairs of a round of a setting and a round of the start, the part in which the setting must be better. With three rounds
/// each, one of nine pairs may be otherwise.
const CERTAIN: f64 = 0.85;
/// Settings whose scores differ by less than this serve the aim equally well. The one with the most throughput is chosen.
const ALIKE: f64 = 0.05;

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
    median::median(&sorted).unwrap_or_default()
}
