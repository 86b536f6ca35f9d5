//! A process that goes without turns on a device, for others write over whose turn it is (`lock::witness`).

use crate::primitive::{AtomicU64, Ordering};

/// How long a process goes without turns at first, and at most.
const APART_NS: u64 = 1_000_000_000;
const LONGEST_APART_NS: u64 = 64 * APART_NS;
/// Until when a process goes without turns on a device, and for how long the last time. In its own memory.
#[derive(Default)]
pub(crate) struct Apart {
    until_ns: AtomicU64,
    lasts_ns: AtomicU64,
}

impl Apart {
    /// Whether it goes on.
    #[inline]
    pub(crate) fn is_at(&self, now_ns: impl FnOnce() -> u64) -> bool {
        let until = self.until_ns.load(Ordering::Relaxed);
        until != 0 && now_ns() < until
    }

    /// Begins; longer each time if the last one ended a short while ago.
    pub(crate) fn begin(&self, now_ns: u64) {
        let (until, lasts) = (
            self.until_ns.load(Ordering::Relaxed),
            self.lasts_ns.load(Ordering::Relaxed),
        );
        // Back at once: the words are still written over.
        let again = until != 0 && now_ns.saturating_sub(until) <= lasts.max(4 * APART_NS);
        let lasts = match again {
            true => (2 * lasts).min(LONGEST_APART_NS),
            false => APART_NS,
        };
        self.lasts_ns.store(lasts, Ordering::Relaxed);
        self.until_ns.store(now_ns + lasts, Ordering::Relaxed);
    }
}
