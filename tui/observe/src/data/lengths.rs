//! The lengths of a process's recent holds and waits, from its events.

use std::collections::VecDeque;

use gpushare_sample::{Histogram, bucket};

/// Time that shares one record.
const STEP_NS: u64 = 1_000_000_000;

/// The lengths of the holds or waits that ended lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths(VecDeque<Step>);

/// The holds or waits that ended in one second: few buckets are in use, so pairs of bucket and count take little room.
#[derive(Clone, Debug)]
struct Step {
    at: u64,
    counts: Vec<(u8, u32)>,
    max_ns: u64,
}

impl Lengths {
    /// Counts one that ended at a moment, and discards those that ended more than `keep_ns` earlier.
    pub(super) fn add(&mut self, end_ns: u64, ns: u64, keep_ns: u64) {
        let at = end_ns / STEP_NS;
        let oldest = end_ns.saturating_sub(keep_ns) / STEP_NS;
        while self.0.front().is_some_and(|step| step.at < oldest) {
            self.0.pop_front();
        }
        if self.0.back().is_none_or(|step| step.at < at) {
            self.0.push_back(Step {
                at,
                counts: Vec::new(),
                max_ns: 0,
            });
        }
        let Some(step) = self.0.back_mut() else {
            return;
        };
        step.max_ns = step.max_ns.max(ns);
        let Ok(bucket) = u8::try_from(bucket(ns)) else {
            return;
        };
        match step.counts.iter_mut().find(|(known, _)| *known == bucket) {
            Some((_, count)) => *count += 1,
            None => step.counts.push((bucket, 1)),
        }
    }

    /// Returns those that ended since a moment, to the second.
    pub(super) fn since(&self, from_ns: u64) -> Histogram {
        let mut all = Histogram::default();
        for step in self.0.iter().filter(|step| step.at >= from_ns / STEP_NS) {
            for (bucket, count) in &step.counts {
                all.add_bucket((*bucket).into(), *count, step.max_ns);
            }
        }
        all
    }

    /// Discards all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
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
        assert_eq!(lengths.since(10 * S).count(), 101);
        let late = lengths.since(12 * S);
        assert_eq!((late.count(), late.max_ns), (100, 5 * MS));
        lengths.add(40 * S, MS, 20 * S);
        assert_eq!(lengths.since(0).count(), 1, "nothing is kept for ever");
    }
}
