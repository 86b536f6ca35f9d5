//! The words of a histogram of times.

use crate::{
    layout::shared,
    protocol::primitive::{AtomicU32, AtomicU64, Ordering},
    value::{HISTOGRAM, Histogram, bucket},
};

shared! {
    /// Counts of times by length, four buckets to an octave of nanoseconds. One process at a time adds.
    pub(crate) struct HistogramWords: 520 align 8 {
        0 counts: [AtomicU32; HISTOGRAM],
        /// The longest time.
        512 max_ns: AtomicU64,
    }
}

impl HistogramWords {
    /// Counts a time.
    pub(crate) fn count(&self, ns: u64) {
        let word = &self.counts[bucket(ns)];
        word.store(
            word.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.store(ns, Ordering::Relaxed);
        }
    }

    /// A copy.
    pub(crate) fn read(&self, into: &mut Histogram) {
        for (count, word) in into.counts.iter_mut().zip(&self.counts) {
            *count = word.load(Ordering::Relaxed);
        }
        into.max_ns = self.max_ns.load(Ordering::Relaxed);
    }

    /// Sets all words to zero.
    pub(crate) fn clear(&self) {
        for word in &self.counts {
            word.store(0, Ordering::Relaxed);
        }
        self.max_ns.store(0, Ordering::Relaxed);
    }
}
