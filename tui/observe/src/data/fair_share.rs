//! The share of a device that a process would get by its weight and cap, among those that want it.

use super::lanes::Cell;
use gpushare_sample::ProcessSample;

/// A process that spent less than this share of its recent time on the lock did not want it.
const CONTENDS: f32 = 0.05;
/// A process that wants more than this part of its fair share wants all of it.
const NEARLY: f64 = 0.9;

/// Returns the share of a device that a process with these shares of its time would use if it never waited, at most its cap.
/// A process that waits most of the time counts as wanting all, because its demand is not known.
pub(super) fn wants(process: &ProcessSample, spent: Cell) -> f64 {
    let free = match f64::from(1.0 - spent.wait) {
        free if free > 0.5 => free,
        _ => f64::from(spent.hold),
    };
    let cap = process.share.cap.map_or(1.0, |cap| f64::from(cap) / 100.0);
    if free == 0.0 {
        return cap;
    }
    (f64::from(spent.hold) / free).min(cap)
}

/// Returns the share of a device that a unit of weight is worth among processes of these weights and wants. A process that
/// wants less than its part leaves the rest to the others.
pub(super) fn worth_of_weight(mut wanted: Vec<(u32, f64)>) -> f64 {
    let ratio = |(weight, wants): &(u32, f64)| wants / f64::from((*weight).max(1));
    wanted.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let mut weights: f64 = wanted.iter().map(|(weight, _)| f64::from(*weight)).sum();
    let mut left = 1.0;
    for (weight, wants) in wanted {
        // Measured shares are not exact: who wants nearly its part wants it.
        if wants * weights > f64::from(weight) * left * NEARLY {
            return left / weights.max(1.0);
        }
        left -= wants;
        weights -= f64::from(weight);
    }
    f64::INFINITY
}

/// Reports whether a process with these shares of its time wanted the lock.
pub(super) fn contends(process: &ProcessSample, spent: Cell) -> bool {
    process.is_managed() && !process.share.paused && spent.hold + spent.wait > CONTENDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(wanted: &[(u32, f64)]) -> Vec<f64> {
        let worth = worth_of_weight(wanted.to_vec());
        let part = |(weight, wants): &(u32, f64)| (f64::from(*weight) * worth).min(*wants);
        wanted.iter().map(part).collect()
    }

    #[test]
    fn what_a_process_does_not_want_is_shared_by_the_others() {
        let seen = parts(&[(100, 0.02), (100, 1.0), (100, 1.0)]);
        assert_eq!(seen[0], 0.02);
        assert!(
            (seen[1] - 0.49).abs() < 1e-9 && seen[1] == seen[2],
            "{seen:?}"
        );
    }

    #[test]
    fn those_that_want_all_share_by_weight() {
        assert_eq!(parts(&[(100, 1.0), (300, 1.0)]), [0.25, 0.75]);
        assert_eq!(parts(&[(100, 0.3)]), [0.3]);
        assert_eq!(parts(&[]), [0.0; 0]);
    }
}
