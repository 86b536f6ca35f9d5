//! The rules by which processes are evicted for others on a device: what the operator has set, and the values of `auto`.

use crate::value::LockPolicy;

/// Time without a request after which a process whose work is done counts as idle, in nanoseconds, unless the operator sets it.
pub const IDLE_NS: u64 = 30_000_000;

/// The rules of one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvictionRules {
    policy: LockPolicy,
    overcommits: bool,
}

impl EvictionRules {
    /// Returns the rules under a lock policy. `overcommits` is true if the operator has overcommitted the device.
    pub fn of(policy: LockPolicy, overcommits: bool) -> Self {
        Self {
            policy,
            overcommits,
        }
    }

    /// Returns true if processes are evicted for others at all.
    pub fn are_on(&self) -> bool {
        self.overcommits || self.turn_ns(0).is_some()
    }

    /// Returns the time without a request after which a process whose work is done counts as idle.
    pub fn idle_ns(&self) -> u64 {
        self.policy.evict_idle_ns.unwrap_or(IDLE_NS)
    }

    /// Returns how long a restored process keeps its memory while others wait for it. `swap_ns` is the time that its last eviction
    /// and restore took: by default memory moves for at most half of the time, however many want it.
    pub fn stay_ns(&self, swap_ns: u64) -> u64 {
        self.policy.stay_ns.unwrap_or(swap_ns)
    }

    /// Returns how long a process at work keeps its memory while others wait for it; `None` where only idle processes are evicted.
    pub fn turn_ns(&self, swap_ns: u64) -> Option<u64> {
        self.policy.memory_turn(self.overcommits, swap_ns)
    }

    /// Returns how long a process stays on the host before its context leaves the device too; `None` is never.
    pub fn deep_after_ns(&self) -> Option<u64> {
        self.policy.deep_after_ns
    }
}
