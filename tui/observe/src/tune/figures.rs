//! The figures of a search: what each job did under each setting, beside what it did under the one in force at the start.

use crate::rhythm::Rhythm;

/// One figure of a job under a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// The figure over all rounds; `None` if there is none.
    pub value: Option<f64>,
    /// The figure over the one under the setting of the start.
    pub relative: Option<f64>,
    /// Half of the range between the rounds, in parts of the figure.
    pub spread: Option<f64>,
}

/// The figures of a job under a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Kernels and graphs launched in a second.
    pub rate: Figure,
    /// The 99th percentile of the times for which the device kept it waiting in a step, in nanoseconds.
    pub p99: Figure,
}

/// Returns the figures of a job under a setting. Both lists have a rhythm for each round.
pub fn figures(rounds: &[&Rhythm], start: &[&Rhythm]) -> Figures {
    let rate = |rhythm: &Rhythm| (rhythm.seconds() > 0.0).then(|| rhythm.launches_per_s());
    let p99 = |rhythm: &Rhythm| rhythm.step_p99_ns().map(|ns| ns as f64);
    Figures {
        rate: figure(rounds, start, rate),
        p99: figure(rounds, start, p99),
    }
}

fn figure(rounds: &[&Rhythm], start: &[&Rhythm], of: impl Fn(&Rhythm) -> Option<f64>) -> Figure {
    let value = of(&together(rounds));
    let base = of(&together(start)).filter(|base| *base > 0.0);
    let each: Vec<f64> = rounds.iter().filter_map(|rhythm| of(rhythm)).collect();
    let most = each.iter().copied().fold(f64::MIN, f64::max);
    let least = each.iter().copied().fold(f64::MAX, f64::min);
    let spread = |value: f64| (value > 0.0 && each.len() > 1).then(|| (most - least) / 2.0 / value);
    Figure {
        value,
        relative: value.zip(base).map(|(value, base)| value / base),
        spread: value.and_then(spread),
    }
}

fn together(rounds: &[&Rhythm]) -> Rhythm {
    let mut sum = Rhythm::default();
    rounds.iter().for_each(|rhythm| sum.merge(rhythm));
    sum
}
