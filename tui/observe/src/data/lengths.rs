//! The lengths of a process's recent holds and waits, from its events.

use std::collections::VecDeque;

use gpushare_sample::{Histogram, bucket};
use shm_layout::quantile;

/// Time that shares one record.
const STEP_NS: u64 = 1_000_000_000;

/// The lengths of the holds or waits that ended lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    steps: VecDeque<Step>,
    /// The sum of all steps.
    counts: Counts,
}

/// The holds or waits that ended in one second.
#[derive(Clone, Debug)]
struct Step {
    at: u64,
    counts: Counts,
    max_ns: u64,
}

/// The counts of the buckets in use, by bucket: there are few, so that a histogram would be mostly empty.
#[derive(Clone, Debug, Default)]
struct Counts(Vec<(u8, u32)>);

impl Counts {
    fn of(&mut self, bucket: u8) -> &mut u32 {
        let at = self.0.partition_point(|(known, _)| *known < bucket);
        if self.0.get(at).is_none_or(|(known, _)| *known != bucket) {
            self.0.insert(at, (bucket, 0));
        }
        &mut self.0[at].1
    }
}

impl Lengths {
    /// Counts one that ended at a moment, and discards those that ended more than `keep_ns` earlier.
    pub(super) fn add(&mut self, end_ns: u64, ns: u64, keep_ns: u64) {
        let at = end_ns / STEP_NS;
        if self.steps.back().is_none_or(|step| step.at < at) {
            self.forget_before(end_ns.saturating_sub(keep_ns));
            self.steps.push_back(Step {
                at,
                counts: Counts::default(),
                max_ns: 0,
            });
        }
        let Some(step) = self.steps.back_mut() else {
            return;
        };
        step.max_ns = step.max_ns.max(ns);
        if let Ok(bucket) = u8::try_from(bucket(ns)) {
            *step.counts.of(bucket) += 1;
            *self.counts.of(bucket) += 1;
        }
    }

    /// Discards those that ended before a moment, to the second.
    pub(super) fn forget_before(&mut self, from_ns: u64) {
        let oldest = from_ns / STEP_NS;
        while self.steps.front().is_some_and(|step| step.at < oldest) {
            let counts = self.steps.pop_front().map(|step| step.counts);
            for (bucket, count) in counts.unwrap_or_default().0 {
                *self.counts.of(bucket) -= count;
            }
            self.counts.0.retain(|(_, count)| *count > 0);
        }
    }

    /// Returns the lengths below which these shares of them lie; `None` if there are none.
    pub(super) fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [Option<u64>; N] {
        let used = self.counts.0.iter();
        let used = used.map(|(bucket, count)| (usize::from(*bucket), *count));
        let max_ns = self.max_ns();
        shares.map(|share| quantile(used.clone(), max_ns, share))
    }

    fn max_ns(&self) -> u64 {
        self.steps.iter().map(|step| step.max_ns).max().unwrap_or(0)
    }

    /// Counts all of them in a histogram.
    pub(super) fn add_to(&self, all: &mut Histogram) {
        let max_ns = self.max_ns();
        for (bucket, count) in &self.counts.0 {
            all.add_bucket((*bucket).into(), *count, max_ns);
        }
    }

    /// Discards all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn what_ended_before_the_span_is_not_counted() {
        let mut lengths = Lengths::default();
        lengths.add(10 * S, 900 * MS, 20 * S);
        for at in 0..100 {
            lengths.add(12 * S + at * MS, 5 * MS, 20 * S);
        }
        let all = |lengths: &Lengths| {
            let mut all = Histogram::default();
            lengths.add_to(&mut all);
            all
        };
        lengths.forget_before(10 * S);
        assert_eq!(all(&lengths).count(), 101);
        assert_eq!(lengths.quantiles([1.0]), [Some(900 * MS)]);
        lengths.forget_before(12 * S);
        let late = all(&lengths);
        assert_eq!((late.count(), late.max_ns), (100, 5 * MS));
        let shares = [0.5, 0.99];
        assert_eq!(lengths.quantiles(shares), shares.map(|q| late.quantile(q)));
        lengths.add(40 * S, MS, 20 * S);
        assert_eq!(all(&lengths).count(), 1, "nothing is kept for ever");
        lengths.forget_before(41 * S);
        assert_eq!(lengths.quantiles([0.5]), [None]);
    }
}
