//! The order of the processes that want a device, as arithmetic on plain numbers.
//!
//! The lock applies it to the words of shared memory (`choose`, `account`), [`forecast`](super::forecast) to what the processes of
//! a device did. So a forecast decides as the lock does.

use super::stats;
use crate::value::Order;

/// Waiting time that counts as one step of priority, in nanoseconds.
pub(crate) const AGE_NS: u64 = 100_000_000;
/// Under `shortest`, this much waiting makes up for one nanosecond of a longer mean hold.
pub(super) const AGE_DIVISOR: u64 = 8;
/// Longest time between a release and the next wait for which the process does not count as away, in nanoseconds.
pub const AWAY_NS: u64 = 20_000_000;
/// Length from which a gap between a synchronisation and the next submission counts as long, in nanoseconds: the process then waits
/// for something else.
pub const LONG_GAP_NS: u64 = 1_000_000;
/// Time for which a process without short gaps keeps the device after a synchronisation, in nanoseconds.
pub const KEPT_NS: u64 = 100_000;
/// Time between two decisions about a holder whose time is over, in nanoseconds.
pub const OVERTIME_NS: u64 = 1_000_000;

/// The figures of a process from which its rank follows. Of two ranks the lesser is served first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// Time held over weight.
    pub(crate) vtime: u64,
    /// Time held in all turns that have ended.
    pub(crate) held_ns: u64,
    /// Number of turns, with the present one.
    pub(crate) turns: u64,
    pub(crate) weight: u32,
    pub(crate) priority: i32,
}

impl Standing {
    /// Returns the rank of a process that waits since `since_ns`.
    pub(crate) fn of_waiter(&self, order: Order, since_ns: u64, now_ns: u64) -> i128 {
        let waited_ns = now_ns.saturating_sub(since_ns);
        match order {
            Order::Fifo => i128::from(since_ns),
            Order::Priority => self.priority_rank(waited_ns),
            Order::Fair => i128::from(self.vtime),
            Order::Shortest => i128::from(self.mean_hold(0)) - i128::from(waited_ns / AGE_DIVISOR),
        }
    }

    /// Returns the rank of a process that has held for `held_ns` in this turn and goes on for `ahead_ns` more. One that is `spent`
    /// (paused, or over its cap) deserves it least.
    pub(crate) fn of_holder(&self, order: Order, held_ns: u64, ahead_ns: u64, spent: bool) -> i128 {
        let then_ns = held_ns.saturating_add(ahead_ns);
        match order {
            _ if spent => i128::MAX,
            Order::Fifo => i128::MAX,
            Order::Priority => self.priority_rank(0),
            Order::Fair => i128::from(self.vtime_after(then_ns)),
            Order::Shortest => i128::from(self.mean_hold(held_ns).max(then_ns)),
        }
    }

    /// Returns the virtual time after a hold.
    pub(crate) fn vtime_after(&self, held_ns: u64) -> u64 {
        let more = stats::virtual_ns(held_ns, self.weight);
        self.vtime.saturating_add(more)
    }

    /// The mean of the holds; `held_ns` is the one under way.
    fn mean_hold(&self, held_ns: u64) -> u64 {
        self.held_ns.saturating_add(held_ns) / self.turns.max(1)
    }

    fn priority_rank(&self, waited_ns: u64) -> i128 {
        -(i128::from(self.priority) * i128::from(AGE_NS) + i128::from(waited_ns))
    }
}

/// Returns the least virtual time with which a process joins, where the active ones have at least `floor`. A process that is back
/// at once, `away_ns` after its last turn, keeps the unused part `slack` of it.
pub(crate) fn opening(floor: u64, away_ns: u64, slack: u64) -> u64 {
    match away_ns <= AWAY_NS {
        true => floor.saturating_sub(slack),
        false => floor,
    }
}
