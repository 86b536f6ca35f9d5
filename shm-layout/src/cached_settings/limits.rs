//! The cached facts of a process about a device: its limits as last resolved, and how other processes keep it away. The shared words for
//! the latter may be overwritten by other tenants (`lock::starvation_check`, `lock::overlap`).

use std::sync::Mutex;

use crate::{
    protocol::primitive::{AtomicU32, AtomicU64, Ordering},
    value::Source,
};

/// The limits of a process on a device now; `u64::MAX` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) quota: u64,
    pub(crate) group: u64,
    pub(crate) device: u64,
}

impl Limits {
    /// Returns true if one of the limits is shared with other processes.
    #[inline(always)]
    pub(crate) fn are_shared(&self) -> bool {
        self.group & self.device != u64::MAX
    }
}

/// The cached settings and measurements of one device.
#[derive(Default)]
pub(crate) struct CachedLimits {
    pub(super) quota: AtomicU64,
    pub(super) source: AtomicU64,
    pub(super) group: AtomicU64,
    pub(super) device: AtomicU64,
    /// The order of the device's queue.
    pub(super) order: AtomicU64,
    /// The device's memory, as its process entered it.
    pub(crate) total: AtomicU64,
    /// Bytes outside the accounts that this process measured there, plus 1; 0 before it measured any.
    pub(crate) outside: AtomicU64,
    /// The time of that measurement.
    pub(crate) outside_ns: AtomicU64,
    /// The period without turns on the device, if the process is in one.
    pub(crate) untrusted_fallback: UntrustedFallback,
    /// Time since which the process is held back there.
    pub(crate) hold_back_timer: HoldBackTimer,
    /// 1 while the process is charged by its work and not by the time in which it is active.
    pub(crate) charged_by_work: AtomicU32,
    /// The process's own record of its context there, which it trusts, because other tenants may write over the shared one: the
    /// state of MPS (`codec::mps_word`), the time when the context was lost, and the evicted bytes.
    pub(crate) mps: AtomicU32,
    pub(crate) lost_ns: AtomicU64,
    pub(crate) evicted: AtomicU64,
    /// The lock of the thread that has the process's ticket in the device's memory queue.
    pub(crate) queued: Mutex<()>,
}

impl CachedLimits {
    #[inline(always)]
    pub(crate) fn load(&self) -> Limits {
        Limits {
            quota: self.quota.load(Ordering::Relaxed),
            group: self.group.load(Ordering::Relaxed),
            device: self.device.load(Ordering::Relaxed),
        }
    }

    /// Returns the source of the quota.
    pub(crate) fn source(&self) -> Source {
        Source::of_code(self.source.load(Ordering::Relaxed))
    }
}

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
