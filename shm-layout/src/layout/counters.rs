//! Counts of one process's activity on one device, defined once as a table, and counts of times by length.

use crate::{
    layout::{Field, Shared, shared},
    protocol::primitive::{AtomicU32, AtomicU64, Ordering},
    value::{HISTOGRAM, Histogram, bucket},
};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts of one process's activity on one device. Only that process writes them, with plain relaxed adds.
        #[repr(C)]
        #[derive(Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
            _reserved: [AtomicU64; 32 - COUNTERS],
        }

        const COUNTERS: usize = [$(stringify!($name)),*].len();

        impl Shared for Counters {}

        impl Counters {
            /// A copy.
            pub fn view(&self) -> CounterView {
                CounterView { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            /// Sets the counters to zero, for the slot's next owner.
            pub(crate) fn clear(&self) {
                $(self.$name.store(0, Ordering::Relaxed);)*
            }

            pub(crate) const FIELDS: &'static [Field] = &[
                $(Field {
                    offset: std::mem::offset_of!(Counters, $name),
                    size: 8,
                    name: stringify!($name),
                    kind: "AtomicU64",
                },)*
            ];
        }

        /// A copy of [`Counters`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
        pub struct CounterView {
            $($(#[$doc])* pub $name: u64,)*
        }
    };
}

counters! {
    /// Kernel launches.
    launches,
    /// Graph launches.
    graphs,
    /// Copies.
    copies,
    /// Bytes copied.
    copy_bytes,
    /// Memsets.
    memsets,
    /// Explicit synchronisations by the application.
    syncs,
    /// Drains on our account.
    drains,
    /// Drains that outlasted grace.
    drain_timeouts,
    /// Allocations granted.
    allocations,
    /// Frees.
    frees,
    /// Allocations refused.
    denials,
    /// Bytes refused.
    denied_bytes,
    /// Bytes of pinned host memory held.
    host_pinned_bytes,
    /// Bytes imported from other processes, not charged here.
    imported_bytes,
    /// Allocations of a size that the shim does not know: not charged.
    unaccounted,
    /// Times we stepped aside.
    bypasses,
    /// Launches recorded into a capture, not locked.
    captured,
    /// Submissions that found the gate closed and went through the turn.
    gate_misses,
    /// Panics caught at the C edge.
    faults,
    /// Time of the last submission, as the keeper saw it.
    last_submit_ns,
    /// Allocations that waited for memory.
    memory_waits,
    /// Nanoseconds they waited.
    memory_waited_ns,
    /// Of the allocations that waited, those that were refused in the end.
    memory_gave_up,
    /// Times that the process's memory was evicted.
    evictions,
    /// Of these, those of the last hour. The keeper writes it.
    evictions_in_hour,
    /// Nanoseconds for which memory was moved, to the host and back.
    moving_ns,
    /// Median of the waits for evicted memory: from the first call that waits until the memory is back. Of the last 256 waits.
    wake_p50_ns,
    /// The 99th percentile of these waits.
    wake_p99_ns,
    /// The longest of these waits.
    wake_max_ns,
}

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
