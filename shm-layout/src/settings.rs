//! The operator's settings as a workload sees them.

use std::sync::atomic::AtomicU32;

use crate::{limits::Source, segment::Segments};

/// When the holder must yield to a waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// Never locked: observe only.
    #[default]
    Off,
    /// After so many launches or copies.
    Launches(u32),
    /// After so many nanoseconds.
    Timeslice(u64),
    /// After every call.
    Always,
}

/// Who is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Who came first.
    Fifo,
    /// Who has the highest priority, with ageing.
    Priority,
    /// Who has held least for its weight.
    #[default]
    Fair,
}

/// A device's lock policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockPolicy {
    /// When the holder yields.
    pub kind: PolicyKind,
    /// Who is next.
    pub order: Order,
    /// The lock is released when nothing was submitted for so long and all work has drained.
    pub idle_ns: u64,
    /// The longest hold while others wait.
    pub max_hold_ns: u64,
    /// How long a drain or an overdue holder is waited for before it is forced.
    pub grace_ns: u64,
    /// Explicit synchronisations that keep the lock.
    pub sync_skips: u32,
}

impl Default for LockPolicy {
    fn default() -> Self {
        Self {
            kind: PolicyKind::Off,
            order: Order::Fair,
            idle_ns: 5_000_000,
            max_hold_ns: 10_000_000_000,
            grace_ns: 200_000_000,
            sync_skips: 0,
        }
    }
}

/// A process's share of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// 1 to 1000.
    pub weight: u32,
    /// -20 to 19, higher first; a boost is included while it lasts.
    pub priority: i32,
    /// Most of the device's time, per cent.
    pub cap: Option<u32>,
    /// Not eligible until resumed.
    pub paused: bool,
    /// A boost is in force until then.
    pub boost_until_ns: Option<u64>,
    /// Who set it.
    pub source: Source,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            weight: 100,
            priority: 0,
            cap: None,
            paused: false,
            boost_until_ns: None,
            source: Source::Default,
        }
    }
}

/// The futex word that every edit bumps and wakes (shared futex, not private).
pub fn control_bell(_segments: &Segments) -> &AtomicU32 {
    todo!()
}

/// Sleeps until the bell is no longer `seen`, or `timeout_ns` passed, or a signal came.
pub fn wait_bell(_segments: &Segments, _seen: u32, _timeout_ns: u64) {
    todo!()
}
