//! The two choices of a lock policy: its kind says when the holder of a lock yields, and its order which waiter is next.
//!
//! A kind is a row: its word, its amount, its help and its number in the segments. An order has its place in [`Order::ALL`] and
//! its texts.

use super::Values;

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
    /// Never: there are no turns, and no process holds back. The card gives each process's channels a slice of this many
    /// nanoseconds at the common weight.
    HwTimeslice(u64),
}

/// The length of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnLimit {
    /// A turn ends after this many nanoseconds.
    Time(u64),
    /// A turn ends after this many launches or copies.
    Calls(u32),
}

/// A kind of policy.
#[derive(Debug)]
pub struct KindRow {
    /// The word that a person writes, before `=` if an amount follows.
    pub word: &'static str,
    /// The values of its amount; `None` for a kind without one.
    pub amount: Option<Values>,
    /// The effect, for the command's help and the reference.
    pub help: &'static str,
    /// The number in a segment.
    pub(super) code: u8,
    /// Makes the kind with an amount; `None` if it needs one and has none.
    pub of: fn(Option<u64>) -> Option<PolicyKind>,
}

/// Every kind, in the order in which a person chooses among them.
pub const KINDS: &[KindRow] = &[
    KindRow {
        word: "off",
        amount: None,
        help: "count only; no process waits for the lock",
        code: 0,
        of: |_| Some(PolicyKind::Off),
    },
    KindRow {
        word: "overlap",
        amount: Some(Values::OVERLAP),
        help: "no turns: the order decides who holds back; work queued ahead (beside timeslice: what may still run of a turn when the next begins)",
        code: 4,
        of: |amount| Some(PolicyKind::Overlap(amount)),
    },
    KindRow {
        word: "launches",
        amount: Some(Values::LAUNCHES),
        help: "yield after so many launches or copies",
        code: 1,
        of: |amount| Some(PolicyKind::Launches(amount?.try_into().ok()?)),
    },
    KindRow {
        word: "timeslice",
        amount: Some(Values::TIMESLICE),
        help: "yield after this time",
        code: 2,
        of: |amount| Some(PolicyKind::Timeslice(amount?)),
    },
    KindRow {
        word: "always",
        amount: None,
        help: "yield after every launch",
        code: 3,
        of: |_| Some(PolicyKind::Always),
    },
    KindRow {
        word: "hw-timeslice",
        amount: Some(Values::HW_TIMESLICE),
        help: "no turns: the card's own time slices have this length, times weight over 100; only where the driver is known to obey",
        code: 5,
        of: |amount| Some(PolicyKind::HwTimeslice(amount?)),
    },
];

impl PolicyKind {
    /// Returns the row of the kind, and its amount.
    pub const fn parts(self) -> (&'static KindRow, Option<u64>) {
        let (at, amount) = match self {
            Self::Off => (0, None),
            Self::Overlap(ahead) => (1, ahead),
            Self::Launches(count) => (2, Some(count as u64)),
            Self::Timeslice(ns) => (3, Some(ns)),
            Self::Always => (4, None),
            Self::HwTimeslice(ns) => (5, Some(ns)),
        };
        (&KINDS[at], amount)
    }

    /// Returns the kind of a number in a segment, with its amount.
    pub(super) fn of_code(code: u64, amount: Option<u64>) -> Option<Self> {
        let mut kinds = KINDS.iter();
        (kinds.find(|kind| u64::from(kind.code) == code)?.of)(amount)
    }

    /// Returns the length of a turn; `None` for a kind without turns.
    pub const fn turn_limit(self) -> Option<TurnLimit> {
        match self {
            Self::Off | Self::Overlap(_) | Self::HwTimeslice(_) => None,
            Self::Always => Some(TurnLimit::Calls(1)),
            Self::Launches(count) => Some(TurnLimit::Calls(count)),
            Self::Timeslice(ns) => Some(TurnLimit::Time(ns)),
        }
    }

    /// Returns true if processes submit one at a time, in turns.
    pub const fn has_turns(self) -> bool {
        self.turn_limit().is_some()
    }

    /// Returns true if a process may have to wait for others before it submits.
    pub const fn is_gated(self) -> bool {
        !matches!(self, Self::Off | Self::HwTimeslice(_))
    }

    /// Returns the kind with `overlap` by its number. With `lasts` the process stays on the device while others wait for it: over
    /// MPS, or in long slices of the card. Measured (H200, an inference beside two trainings): over MPS their kernels run beside
    /// its own, and 1 ms cost them a tenth that 2 ms left them. In slices of 4 ms, with 2 ms and a small part beside the
    /// inference, they did 97 to 100 % of time slicing, and it took 0.73 to 0.75 of the time; with 500 us 94 to 99 %, and 0.60 to
    /// 0.78. Without a long slice for the inference more than 500 us is felt by it. Under `fair` less than 3 ms takes a sixth from
    /// a training on two GPUs beside others (two H200), because processes are held back for an advantage that the next moment
    /// evens out.
    pub const fn settled(self, order: Order, lasts: bool) -> Self {
        match (self, order) {
            (Self::Overlap(None), Order::Fair) => Self::Overlap(Some(4_000_000)),
            (Self::Overlap(None), _) if lasts => Self::Overlap(Some(2_000_000)),
            (Self::Overlap(None), _) => Self::Overlap(Some(500_000)),
            _ => self,
        }
    }
}

/// Writes the kind as a person would: `timeslice=5ms`.
impl std::fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, amount) = self.parts();
        f.write_str(kind.word)?;
        match amount.zip(kind.amount) {
            Some((amount, values)) => write!(f, "={}", values.show(amount)),
            None => Ok(()),
        }
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

    /// The words of the orders with their numbers, in the same sequence.
    pub(super) const CHOICES: [(&str, u64); Self::ALL.len()] = {
        let mut choices = [("", 0); Self::ALL.len()];
        let mut at = 0;
        while at < choices.len() {
            choices[at] = (Self::ALL[at].word(), Self::ALL[at].code());
            at += 1;
        }
        choices
    };

    /// Help text of `order=`.
    pub(super) const ABOUT: &str = "which waiter is next: fair, priority, fifo or shortest";

    /// Returns the word after `order=`, the order in the words of a user, and who waits longest under it.
    const fn texts(self) -> [&'static str; 3] {
        match self {
            Order::Fifo => ["fifo", "first come, first served", "each waits"],
            Order::Priority => ["priority", "urgent first", "the least urgent waits"],
            Order::Fair => ["fair", "shares by weight", "one waits"],
            Order::Shortest => ["shortest", "shortest work first", "one waits"],
        }
    }

    /// Returns the word after `order=`.
    pub const fn word(self) -> &'static str {
        self.texts()[0]
    }

    /// Returns the order in the words of a user.
    pub const fn in_words(self) -> &'static str {
        self.texts()[1]
    }

    /// Returns a clause that says who waits longest.
    pub const fn who_waits(self) -> &'static str {
        self.texts()[2]
    }

    /// Returns the number in a segment.
    pub const fn code(self) -> u64 {
        self as u64
    }

    /// The order of a number in a segment.
    pub fn of_code(code: u64) -> Option<Order> {
        Self::ALL.into_iter().find(|order| order.code() == code)
    }
}
