//! What limits a process on a device, as it was resolved last.

use std::sync::Mutex;

use super::{HoldBackTimer, UntrustedFallback};
use crate::{
    protocol::primitive::{AtomicU32, AtomicU64, Ordering},
    value::Source,
};

/// What limits a process on a device just now; `u64::MAX` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) quota: u64,
    pub(crate) group: u64,
    pub(crate) device: u64,
}

impl Limits {
    /// Whether one of them is shared with other processes.
    #[inline(always)]
    pub(crate) fn are_shared(&self) -> bool {
        self.group & self.device != u64::MAX
    }
}

/// What is known of one device.
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
    /// What this process has measured to be in no account there, and one byte; 0 before it has.
    pub(crate) outside: AtomicU64,
    /// Whether the process goes without turns there.
    pub(crate) untrusted_fallback: UntrustedFallback,
    /// Whether it is held back there.
    pub(crate) hold_back_timer: HoldBackTimer,
    /// What the process has said of itself there, and goes by: other tenants may write over what it shows. Whether its contexts are MPS's
    /// (`codec::mps_word`), when its context was lost, and how many bytes are evicted.
    pub(crate) mps: AtomicU32,
    pub(crate) lost_ns: AtomicU64,
    pub(crate) evicted: AtomicU64,
    /// Held by the thread that has the process's place in the device's line for memory.
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

    /// Who set the quota.
    pub(crate) fn source(&self) -> Source {
        Source::of_code(self.source.load(Ordering::Relaxed))
    }
}
