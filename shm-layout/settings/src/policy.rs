//! A device's lock policy: its kind, and its other settings, each a row of a table.
//!
//! `policy!` at the end lists the rows. From the list come [`LockPolicy`], the edit [`PolicyEdit`], and every function that goes
//! through the settings: text in both directions, ranges, and the words of a record. The command's help, the completions, the
//! dashboard's dialog, JSON and the reference walk [`POLICY_ROWS`].
//!
//! To add a setting: a row, with bits of a record that are free (a test finds two rows that share one), and for values of a new
//! type their `Number`. Then the code that obeys it reads the field of [`LockPolicy`]. Kinds and orders are in `choices.rs`.

mod choices;
mod text;
mod values;

#[cfg(test)]
mod tests;

pub use choices::{KINDS, KindRow, Order, PolicyKind, TurnLimit};
pub use text::{parse_policy, policy_words};
pub use values::Values;

use crate::{grammar::MIB_BITS, row::Field};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// Words of a policy in a record.
pub const POLICY_WORDS: usize = 6;

/// Marks a record that has a policy.
const PRESENT: Field = Field::part(0, 0, 8);
/// The code of the policy's kind.
const KIND: Field = Field::part(0, 8, 8);
/// The amount of the policy's kind.
const AMOUNT: Field = Field::part(1, 0, 40);

/// A setting of a lock policy besides its kind.
#[derive(Debug)]
pub struct PolicyRow {
    /// The key in JSON: the name of the field.
    pub key: &'static str,
    /// The word that a person writes before `=`.
    pub word: &'static str,
    /// The values that it takes.
    pub values: Values,
    /// It has an effect under `timeslice` only, and is written behind this word.
    pub of_slices: bool,
    /// Its field in the dashboard's dialog.
    pub label: &'static str,
    /// The explanation of that field, where the help is too long for it.
    pub hint: &'static str,
    /// Its column in the table of policies; empty for none.
    pub title: &'static str,
    /// The effect, for the command's help and the reference; empty where a kind with the same word explains it.
    pub help: &'static str,
    /// The meaning of the key in JSON.
    pub says: &'static str,
    /// Its bits in a record.
    place: Field,
    /// The number in a record counts these.
    unit: u64,
}

impl PolicyRow {
    /// Returns true if the setting has an effect under a policy of this kind.
    pub const fn applies(&self, kind: PolicyKind) -> bool {
        !self.of_slices || matches!(kind, PolicyKind::Timeslice(_))
    }
}

const ROW: PolicyRow = PolicyRow {
    key: "",
    word: "",
    values: Values::SWITCH,
    of_slices: false,
    label: "",
    hint: "",
    title: "",
    help: "",
    says: "",
    place: KIND,
    unit: 1,
};

/// A budget of host memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HostMemory(pub u64);

/// Factor: unless the operator sets the length of a turn, memory stays for this many times the duration of its move, so that a
/// process at work keeps at least nine tenths of its time.
const MOVES_PER_TURN: u64 = 10;

/// The shortest turn that includes the memory.
const LEAST_MEMORY_TURN: u64 = S;

impl LockPolicy {
    /// Lists each setting with its value as a number.
    pub fn settings(&self) -> impl Iterator<Item = (&'static PolicyRow, u64)> {
        POLICY_ROWS.iter().zip(self.numbers())
    }

    /// Lists the settings in the order in which they are written: those of the time slices follow the kind.
    pub fn written(&self) -> Vec<(&'static PolicyRow, u64)> {
        let mut settings: Vec<_> = self.settings().collect();
        settings.sort_by_key(|(row, _)| !row.of_slices);
        settings
    }

    /// Checks the policy. The error names the invalid setting and the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let (kind, amount) = self.kind.parts();
        let amount = amount.zip(kind.amount);
        let amount = amount.map(|(number, values)| (kind.word, values, number));
        let settings = self.settings();
        let settings = settings.map(|(row, number)| (row.word, row.values, number));
        for (word, values, number) in amount.into_iter().chain(settings) {
            if let Some(why) = values.refuse(number) {
                return Err((word, why));
            }
        }
        if matches!(self.kind, PolicyKind::Timeslice(ns) if ns > self.max_hold_ns) {
            return Err(("max-hold", "must not be shorter than the timeslice".into()));
        }
        if self.swap && !is_memory_turn(self.kind) {
            let least = Values::TIMESLICE.show(LEAST_MEMORY_TURN);
            return Err((
                "swap",
                format!("needs timeslice={least} or more: memory moves at each turn"),
            ));
        }
        if self.grace_ns > self.max_hold_ns {
            return Err(("grace", "must not be longer than max-hold".into()));
        }
        Ok(())
    }

    /// Returns the words of a record; all are zero without a policy.
    pub fn encode(policy: Option<Self>) -> [u64; POLICY_WORDS] {
        let mut words = [0; POLICY_WORDS];
        if let Some(policy) = policy {
            let (kind, amount) = policy.kind.parts();
            PRESENT.put(&mut words, Some(1));
            KIND.put(&mut words, Some(kind.code.into()));
            AMOUNT.put(&mut words, amount.map(u128::from));
            for (row, number) in policy.settings() {
                row.place.put(&mut words, Some((number / row.unit).into()));
            }
        }
        words
    }

    /// Reads the words of a record. An invalid policy counts as none.
    pub fn decode(words: &[u64; POLICY_WORDS]) -> Option<Self> {
        let number = |field: &Field| field.get(words).unwrap_or(0) as u64;
        if number(&PRESENT) != 1 {
            return None;
        }
        let kind = PolicyKind::of_code(number(&KIND), AMOUNT.get(words).map(|ns| ns as u64))?;
        let mut numbers = [0; POLICY_ROWS.len()];
        for (to, row) in numbers.iter_mut().zip(POLICY_ROWS) {
            *to = number(&row.place) * row.unit;
        }
        Self::of_numbers(kind, numbers).filter(|policy| policy.check().is_ok())
    }

    /// Returns the longest that a holder may keep the lock while others deserve it. `is_brokered` is true where a broker serves
    /// users who do not trust each other.
    pub fn hold_limit(&self, is_brokered: bool) -> u64 {
        let most = match self.kind.turn_limit() {
            Some(TurnLimit::Time(slice)) => slice,
            Some(TurnLimit::Calls(_)) if is_brokered => Self::COUNTED_NS,
            _ => u64::MAX,
        };
        most.min(self.max_hold_ns)
    }

    /// Longest time that a holder under a launch count delays others, because a count has no time limit and a holder may stop
    /// itself. With the default `grace`, whatever other tenants write, no process waits for a second.
    const COUNTED_NS: u64 = 100_000_000;

    /// Returns how long a process at work may keep its memory on a device that others find full, whose last eviction and restore
    /// took `swap_ns`; `None` where only idle processes are evicted.
    pub fn memory_turn(&self, overcommits: bool, swap_ns: u64) -> Option<u64> {
        match (self.kind, self.turn_ns) {
            (_, Some(turn)) if self.swap || overcommits => Some(turn),
            (PolicyKind::Timeslice(slice), None) if self.swap => {
                Some(slice.max(swap_ns.saturating_mul(MOVES_PER_TURN)))
            }
            _ => None,
        }
    }
}

/// Returns true if a turn is long enough to include the memory.
const fn is_memory_turn(kind: PolicyKind) -> bool {
    matches!(kind, PolicyKind::Timeslice(slice) if slice >= LEAST_MEMORY_TURN)
}

/// A value of a setting as a number, in which it is read, checked and recorded.
trait Number: Sized {
    /// The value as a number.
    fn number(self) -> u64;

    /// The value of a number; `None` if no value has it.
    fn of(number: u64) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ty: $value:ident, $to:expr, $of:expr;)*) => { $(impl Number for $type {
        fn number(self) -> u64 {
            let $value = self;
            $to
        }

        fn of($value: u64) -> Option<Self> {
            $of
        }
    })* };
}

numbers! {
    u64: number, number, Some(number);
    u32: number, number.into(), number.try_into().ok();
    bool: number, number.into(), Some(number != 0);
    // A word such as `auto` or `never` is 0.
    Option<u64>: number, number.unwrap_or(0), Some((number != 0).then_some(number));
    // `auto` is 0, and a size is its MiB plus one.
    Option<HostMemory>: size, size.map_or(0, |size| (size.0 >> MIB_BITS) + 1), Some(size.checked_sub(1).map(|mib| HostMemory(mib << MIB_BITS)));
    Order: number, number.code(), Self::of_code(number);
}

/// Declares the policy, the edit of a policy, and the table of rows, for lines of a field, its type, its default and its row.
macro_rules! policy {
    ($($(#[$about:meta])* $name:ident: $type:ty = $default:expr, $row:expr;)*) => {
        /// The settings of a lock policy besides its kind, in the order of the list.
        pub const POLICY_ROWS: &[PolicyRow] = &[$(PolicyRow { key: stringify!($name), ..$row },)*];

        /// A device's lock policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
        pub struct LockPolicy {
            /// The condition under which the holder yields.
            #[cfg_attr(feature = "serde", serde(rename = "rule"))]
            pub kind: PolicyKind,
            $($(#[$about])* pub $name: $type,)*
        }

        /// The parts of a policy that a text sets; the rest stays as it was.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PolicyEdit {
            /// The condition under which the holder must yield.
            pub kind: Option<PolicyKind>,
            $(#[doc = concat!("See [`LockPolicy::", stringify!($name), "`].")] pub $name: Option<$type>,)*
        }

        impl Default for LockPolicy {
            fn default() -> Self {
                Self { kind: PolicyKind::Off, $($name: $default,)* }
            }
        }

        impl LockPolicy {
            fn numbers(&self) -> [u64; POLICY_ROWS.len()] {
                [$(self.$name.number(),)*]
            }

            fn of_numbers(kind: PolicyKind, numbers: [u64; POLICY_ROWS.len()]) -> Option<Self> {
                let [$($name,)*] = numbers;
                Some(Self { kind, $($name: Number::of($name)?,)* })
            }
        }

        impl PolicyEdit {
            /// Returns the policy `base` with the settings of this edit.
            fn over(&self, base: LockPolicy) -> LockPolicy {
                LockPolicy {
                    kind: self.kind.unwrap_or(base.kind),
                    $($name: self.$name.unwrap_or(base.$name),)*
                }
            }

            /// Sets the value of a row. Returns false if the edit had one already.
            fn set(&mut self, row: &PolicyRow, number: u64) -> bool {
                $(
                    if row.key == stringify!($name) {
                        let before = std::mem::replace(&mut self.$name, Number::of(number));
                        return before.is_none();
                    }
                )*
                false
            }
        }
    };
}

policy! {
    /// The order that chooses the next waiter.
    order: Order = Order::Fair, PolicyRow {
        word: "order", values: Values::one_of(&Order::CHOICES), label: "Next", title: "ORDER", place: Field::part(0, 16, 8),
        help: Order::ABOUT,
        says: "Which process is next.", ..ROW
    };

    /// Under `timeslice`: the next process begins when what is left of the last one's work takes no longer than this, at most a
    /// quarter of a slice. 0: when all of it is done.
    overlap_ns: u64 = 200 * US, PolicyRow {
        word: "overlap", values: Values::time(0, S), label: "Overlap", title: "OVERLAP", place: Field::part(5, 0, 32), unit: US,
        of_slices: true, hint: "of a slice: may run on into the next; 0 for none",
        says: "What may still run of a turn when the next begins; null without time slices.", ..ROW
    };

    /// Under `timeslice`: a turn includes the memory. A process that finds the device full has a process evicted whose slice is
    /// over.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    swap: bool = false, PolicyRow {
        word: "swap", values: Values::SWITCH, label: "Swap", place: Field::part(5, 32, 1),
        of_slices: true, hint: "memory moves at each turn of 1s or more",
        help: "on or off; beside timeslice: a turn includes the memory, so a process that had its turn is evicted for one that finds the device full",
        says: "Whether a turn includes the memory: who finds the device full has a process evicted that had its turn.", ..ROW
    };

    /// Time without submissions and running work after which the device is given up; `None` is `auto`: each process learns it
    /// from how soon it submits again after a synchronisation.
    idle_ns: Option<u64> = None, PolicyRow {
        word: "idle", values: Values::time_or_auto(100 * US, 600 * S), label: "Idle", title: "IDLE", place: Field::part(2, 0, 40),
        help: "release after so long without work, or auto",
        says: "A holder releases when nothing was submitted for this time; null for auto.", ..ROW
    };

    /// The longest hold while others wait.
    max_hold_ns: u64 = 10 * S, PolicyRow {
        word: "max-hold", values: Values::time(MS, 600 * S), label: "Max hold", title: "MAX-HOLD", place: Field::part(3, 0, 40),
        help: "the longest hold while others wait",
        says: "The longest hold while others wait.", ..ROW
    };

    /// Longest drain, or time that a holder may be overdue, before its lock is forced away, in nanoseconds.
    grace_ns: u64 = 200 * MS, PolicyRow {
        word: "grace", values: Values::time(MS, 60 * S), label: "Grace", title: "GRACE", place: Field::part(4, 0, 36),
        help: "how long a drain may take before it is forced",
        says: "How long a drain may take before it is forced.", ..ROW
    };

    /// Explicit synchronisations that keep the lock.
    sync_skips: u32 = 0, PolicyRow {
        word: "sync-skips", values: Values::SYNC_SKIPS, label: "Sync skips", title: "SKIPS", place: Field::part(0, 32, 32),
        help: "keep the lock over the first N synchronisations",
        says: "Synchronisations that are skipped before one releases.", ..ROW
    };

    /// Time without a request after which a process whose work is done counts as idle, where others find the device full; `None`
    /// is `auto`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    evict_idle_ns: Option<u64> = None, PolicyRow {
        word: "evict-idle", values: Values::time_or_auto(MS, 600 * S), label: "Evict idle", place: Field::part(5, 33, 20), unit: MS,
        hint: "idle time before memory leaves for others",
        help: "under overcommit or swap: idle, and so evicted for others, after so long without a request, or auto (30ms)",
        says: "Under overcommit or swap, the time without a request after which a process is idle; null for auto, 30 ms.", ..ROW
    };

    /// Time for which a restored process keeps its memory while others wait for it; `None` is `auto`: as long as its move took.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    stay_ns: Option<u64> = None, PolicyRow {
        word: "stay", values: Values::time_or_auto(MS, 600 * S), label: "Stay", place: Field::part(2, 40, 20), unit: MS,
        hint: "how long restored memory stays",
        help: "under overcommit or swap: restored memory stays for so long, or auto (as long as its move took)",
        says: "How long restored memory stays while others wait for it; null for auto, as long as its move took.", ..ROW
    };

    /// Time for which a process at work keeps its memory while others find the device full; `None` is `auto`
    /// ([`LockPolicy::memory_turn`]).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    turn_ns: Option<u64> = None, PolicyRow {
        word: "turn", values: Values::time_or_auto(100 * MS, 600 * S), label: "Turn", place: Field::part(3, 40, 20), unit: MS,
        hint: "a process at work leaves after this time",
        help: "under overcommit or swap: a process at work is evicted for others after so long, or auto (overcommit: never; swap: after the slice, at least ten times as long as its move took)",
        says: "How long a process at work keeps its memory while others find the device full; null for auto: never under overcommit, under swap the time slice or ten times as long as its move took.", ..ROW
    };

    /// The host memory for copies that are kept after their memory is back; `None` is `auto`: half of what is free.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    host_memory_bytes: Option<HostMemory> = None, PolicyRow {
        word: "host-memory", values: Values::size_or_auto(16 << 40), label: "Host memory", place: Field::part(4, 36, 28),
        hint: "for kept copies; auto: half of what is free",
        help: "host memory for copies that are kept after their memory is back, so that it leaves faster, or auto (half of what is free)",
        says: "Bytes of host memory for the copies of all processes that are kept after their memory is back; null for auto, half of what is free.", ..ROW
    };

    /// Time after which a process whose memory copies have moved to the host gives up its context too; `None` is `never`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    deep_after_ns: Option<u64> = None, PolicyRow {
        word: "deep-after", values: Values::time_or_never(S, 30 * 24 * 3600 * S), label: "Deep after", place: Field::part(1, 40, 24), unit: S,
        hint: "on the host for so long: its context leaves too",
        help: "a process whose memory copies have moved to the host gives up its context and modules too after so long there, or never; its next request then takes longer",
        says: "How long a process stays on the host before its context leaves the device too; null for never.", ..ROW
    };
}
