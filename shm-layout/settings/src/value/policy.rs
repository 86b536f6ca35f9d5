//! A device's lock policy. [`POLICY_FIELDS`](super::POLICY_FIELDS) has the ranges of its numbers.

/// The condition under which the holder must yield to a waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", tag = "kind", content = "value")
)]
pub enum PolicyKind {
    /// Never locked: observe only.
    #[default]
    Off,
    /// After this many launches or copies.
    Launches(u32),
    /// After this many nanoseconds.
    Timeslice(u64),
    /// After every call.
    Always,
    /// Never: there are no turns. The order decides which processes hold back from submitting. The queued work of such a
    /// process runs on, at most for this many nanoseconds; `None` is the value that measured best for the order and the device.
    Overlap(Option<u64>),
}

impl PolicyKind {
    /// Returns the kind with `overlap` by its number, on a device whose contexts MPS makes or not. Measured (H200, an inference
    /// beside two trainings): under `priority` 1 ms is felt by the urgent process (p50 4.42 ms, 3.52 under 500 us), and 500 us
    /// cost the others one per cent more of their work; over MPS their kernels run beside its own, and 1 ms cost them a tenth
    /// that 2 ms left them. Under `fair` less than 3 ms takes a sixth from a training on two GPUs beside others (two H200),
    /// because processes are held back for an advantage that the next moment evens out.
    pub const fn settled(self, order: Order, over_mps: bool) -> Self {
        match (self, order) {
            (Self::Overlap(None), Order::Fair) => Self::Overlap(Some(4_000_000)),
            (Self::Overlap(None), _) if over_mps => Self::Overlap(Some(2_000_000)),
            (Self::Overlap(None), _) => Self::Overlap(Some(500_000)),
            _ => self,
        }
    }

    /// Returns true if processes submit one at a time, in turns.
    pub const fn has_turns(self) -> bool {
        !matches!(self, Self::Off | Self::Overlap(_))
    }
}

/// The order that chooses the next waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Order {
    /// The first in the queue.
    Fifo,
    /// The highest priority, with ageing.
    Priority,
    /// The least time held for its weight.
    #[default]
    Fair,
    /// The shortest mean hold, less an eighth of the wait.
    Shortest,
}

impl Order {
    /// Every order, the default first. A segment keeps an order by its `code`.
    pub const ALL: [Order; 4] = [Order::Fair, Order::Priority, Order::Fifo, Order::Shortest];

    /// The orders' words, in the same sequence.
    pub const WORDS: [&str; Self::ALL.len()] = {
        let mut words = [""; Self::ALL.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = Self::ALL[at].word();
            at += 1;
        }
        words
    };

    /// Help text of `order=`.
    pub const ABOUT: &str = "which waiter is next: fair, priority, fifo or shortest";

    /// Returns the word after `order=`.
    pub const fn word(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Priority => "priority",
            Order::Fair => "fair",
            Order::Shortest => "shortest",
        }
    }

    /// Returns the number in a segment.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The order of a number in a segment.
    pub fn of_code(code: u64) -> Option<Order> {
        Self::ALL
            .into_iter()
            .find(|order| u64::from(order.code()) == code)
    }
}

/// A device's lock policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct LockPolicy {
    /// The condition under which the holder yields.
    #[cfg_attr(feature = "serde", serde(rename = "rule"))]
    pub kind: PolicyKind,
    /// The order that chooses the next waiter.
    pub order: Order,
    /// Time without submissions and running work after which the device is given up; `None` is `auto`: each process learns it
    /// from how soon it submits again after a synchronisation.
    pub idle_ns: Option<u64>,
    /// The longest hold while others wait.
    pub max_hold_ns: u64,
    /// Longest drain, or time that a holder may be overdue, before its lock is forced away, in nanoseconds.
    pub grace_ns: u64,
    /// Explicit synchronisations that keep the lock.
    pub sync_skips: u32,
    /// Under `timeslice`: the next process begins when what is left of the last one's work takes no longer than this, at most a
    /// quarter of a slice. 0: when all of it is done.
    pub overlap_ns: u64,
    /// Under `timeslice`: a turn includes the memory. A process that finds the device full has a process evicted whose slice is
    /// over.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub swap: bool,
}

impl Default for LockPolicy {
    fn default() -> Self {
        Self {
            kind: PolicyKind::Off,
            order: Order::Fair,
            idle_ns: None,
            max_hold_ns: 10_000_000_000,
            grace_ns: 200_000_000,
            sync_skips: 0,
            overlap_ns: 200_000,
            swap: false,
        }
    }
}

impl LockPolicy {
    /// Returns the longest that a holder may keep the lock while others deserve it. `among_strangers` is true where a broker
    /// serves users who do not trust each other.
    pub fn hold_limit(&self, among_strangers: bool) -> u64 {
        let most = match self.kind {
            PolicyKind::Timeslice(slice) => slice,
            PolicyKind::Launches(_) | PolicyKind::Always if among_strangers => Self::COUNTED_NS,
            _ => u64::MAX,
        };
        most.min(self.max_hold_ns)
    }

    /// Longest time that a holder under a launch count delays others, because a count has no time limit and a holder may stop
    /// itself. With the default `grace`, whatever other tenants write, no process waits for a second.
    const COUNTED_NS: u64 = 100_000_000;

    /// Returns how long a process may keep its memory on a device that others find full; `None` where turns do not include the
    /// memory.
    pub const fn memory_turn(&self) -> Option<u64> {
        match self.kind {
            PolicyKind::Timeslice(slice) if self.swap => Some(slice),
            _ => None,
        }
    }
}
