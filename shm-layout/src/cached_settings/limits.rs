//! The limits of a process on a device, as last resolved.

use std::sync::Mutex;

use super::{HoldBackTimer, UntrustedFallback};
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
    /// The period without turns on the device, if the process is in one.
    pub(crate) untrusted_fallback: UntrustedFallback,
    /// Time since which the process is held back there.
    pub(crate) hold_back_timer: HoldBackTimer,
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
