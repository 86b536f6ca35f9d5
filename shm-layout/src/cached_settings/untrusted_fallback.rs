//! A process's private record of how others keep it from a device. The shared words for this may be overwritten by other
//! tenants (`lock::starvation_check`, `lock::overlap`).

use crate::protocol::primitive::{AtomicU64, Ordering};

/// First and longest duration of a period without turns.
const FALLBACK_NS: u64 = 1_000_000_000;
const LONGEST_FALLBACK_NS: u64 = 64 * FALLBACK_NS;

/// The end and the duration of a process's last period without turns on a device. It is in the process's own memory.
#[derive(Default)]
pub(crate) struct UntrustedFallback {
    until_ns: AtomicU64,
    lasts_ns: AtomicU64,
}

impl UntrustedFallback {
    /// Returns true while the period lasts.
    #[inline]
    pub(crate) fn is_active(&self, now_ns: impl FnOnce() -> u64) -> bool {
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
        let again = until != 0 && now_ns.saturating_sub(until) <= lasts.max(4 * FALLBACK_NS);
        let lasts = match again {
            true => (2 * lasts).min(LONGEST_FALLBACK_NS),
            false => FALLBACK_NS,
        };
        self.lasts_ns.store(lasts, Ordering::Relaxed);
        self.until_ns.store(now_ns + lasts, Ordering::Relaxed);
    }
}

/// A process that is held back where there are no turns.
#[derive(Default)]
pub(crate) struct HoldBackTimer {
    /// 0 while it is not.
    since_ns: AtomicU64,
    /// For how long in all, with no more than moments in between.
    starved_ns: AtomicU64,
    ended_ns: AtomicU64,
}

impl HoldBackTimer {
    /// Starts a period of being held back.
    pub(crate) fn begin(&self, now_ns: u64) {
        self.since_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    /// For how long; `None` while it is not.
    pub(crate) fn lasts(&self, now_ns: u64) -> Option<u64> {
        let since = self.since_ns.load(Ordering::Relaxed);
        (since != 0).then(|| now_ns.saturating_sub(since))
    }

    /// Ends the hold-back. If it ended only because the process had waited `enough_ns`, returns the sum of this wait and of
    /// earlier ones that ended so.
    pub(crate) fn end(&self, now_ns: u64, enough_ns: u64) -> u64 {
        let waited = self.lasts(now_ns).unwrap_or(0);
        self.since_ns.store(0, Ordering::Relaxed);
        let ended = self.ended_ns.swap(now_ns, Ordering::Relaxed);
        let at_once = now_ns.saturating_sub(waited).saturating_sub(ended) < enough_ns;
        let before = match at_once {
            true => self.starved_ns.load(Ordering::Relaxed),
            false => 0,
        };
        let starved = match waited >= enough_ns {
            true => before + waited,
            false => 0,
        };
        self.starved_ns.store(starved, Ordering::Relaxed);
        starved
    }
}
