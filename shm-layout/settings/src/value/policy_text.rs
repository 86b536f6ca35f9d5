//! Lock policies as people write them: `timeslice=5ms order=fair idle=5ms`.
//!
//! A text is read into a [`PolicyEdit`], which changes only the fields that were written. [`PolicyEdit::apply`] applies it to
//! the policy in force and checks the result.

use super::{LockPolicy, Order, PolicyKind};
use crate::grammar::{TextError, format_duration, parse_duration, parse_integer};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// The fields of a policy text besides its kind. Only this table has the ranges: [`LockPolicy::check`], the tools' help and the
/// reading of other tools' variables use it.
pub const POLICY_FIELDS: [PolicyField; 9] = [
    PolicyField::OVERLAP,
    PolicyField::LAUNCHES,
    PolicyField::TIMESLICE,
    PolicyField {
        name: "order",
        about: Order::ABOUT,
        least: 0,
        most: 0,
        span: false,
        value: |_| None,
    },
    PolicyField::SWAP,
    PolicyField {
        name: "idle",
        about: "release after so long without work, or auto",
        least: 100 * US,
        most: 600 * S,
        span: true,
        value: |policy| policy.idle_ns,
    },
    PolicyField {
        name: "max-hold",
        about: "the longest hold while others wait",
        least: MS,
        most: 600 * S,
        span: true,
        value: |policy| Some(policy.max_hold_ns),
    },
    PolicyField {
        name: "grace",
        about: "how long a drain may take before it is forced",
        least: MS,
        most: 60 * S,
        span: true,
        value: |policy| Some(policy.grace_ns),
    },
    PolicyField::SYNC_SKIPS,
];

/// A field of a policy text, with its range.
#[derive(Clone, Copy, Debug)]
pub struct PolicyField {
    /// Name before the `=`.
    pub name: &'static str,
    /// Meaning, for help texts.
    pub about: &'static str,
    least: u64,
    most: u64,
    span: bool,
    value: fn(&LockPolicy) -> Option<u64>,
}

impl PolicyField {
    /// `overlap=AHEAD`.
    pub const OVERLAP: Self = Self {
        name: "overlap",
        about: "no turns: the order decides who holds back; work queued ahead (beside timeslice: what may still run of a turn when the next begins)",
        least: 100 * US,
        most: S,
        span: true,
        value: |policy| match policy.kind {
            PolicyKind::Overlap(ns) => ns,
            _ => None,
        },
    };
    /// `overlap=TIME` beside `timeslice=T`.
    const OVERLAP_IN_SLICES: Self = Self {
        name: "overlap",
        about: "",
        least: 0,
        most: S,
        span: true,
        value: |policy| Some(policy.overlap_ns),
    };
    /// `swap=on`.
    const SWAP: Self = Self {
        name: "swap",
        about: "on or off; beside timeslice: a turn includes the memory, so a process that had its turn is evicted for one that finds the device full",
        least: 0,
        most: 0,
        span: false,
        value: |_| None,
    };
    /// `launches=N`.
    pub const LAUNCHES: Self = Self {
        name: "launches",
        about: "yield after so many launches or copies",
        least: 1,
        most: 1_000_000,
        span: false,
        value: |policy| match policy.kind {
            PolicyKind::Launches(count) => Some(u64::from(count)),
            _ => None,
        },
    };
    /// `timeslice=T`.
    pub const TIMESLICE: Self = Self {
        name: "timeslice",
        about: "yield after this time",
        least: 100 * US,
        most: 60 * S,
        span: true,
        value: |policy| match policy.kind {
            PolicyKind::Timeslice(ns) => Some(ns),
            _ => None,
        },
    };
    /// `sync-skips=N`.
    pub const SYNC_SKIPS: Self = Self {
        name: "sync-skips",
        about: "keep the lock over the first N synchronisations",
        least: 0,
        most: 1_000_000,
        span: false,
        value: |policy| Some(u64::from(policy.sync_skips)),
    };

    /// Returns true if the field's values are words.
    pub const fn is_of_words(&self) -> bool {
        self.most == 0
    }

    fn read(&self, text: &str) -> Result<u64, TextError> {
        let limit = |value| i64::try_from(value).unwrap_or(i64::MAX);
        if !self.span {
            return parse_integer(text, limit(self.least), limit(self.most)).map(i64::unsigned_abs);
        }
        let value = parse_duration(text)?;
        if self.takes(value) {
            return Ok(value);
        }
        Err(TextError::OutOfRange {
            text: text.trim().to_owned(),
            least: format_duration(self.least),
            most: format_duration(self.most),
        })
    }

    /// The smallest and the largest value taken; times are in nanoseconds.
    pub const fn limits(&self) -> (u64, u64) {
        (self.least, self.most)
    }

    const fn takes(&self, value: u64) -> bool {
        self.least <= value && value <= self.most
    }

    /// Returns the fault of this field in a policy, if there is one.
    pub fn complaint(&self, policy: &LockPolicy) -> Option<String> {
        let wrong = (self.value)(policy).is_some_and(|value| !self.takes(value));
        let (least, most) = self.range();
        wrong.then(|| format!("must be between {least} and {most}"))
    }

    /// The smallest and the largest value taken, as one would write them.
    pub fn range(&self) -> (String, String) {
        let show = |value: u64| {
            if self.span {
                format_duration(value)
            } else {
                value.to_string()
            }
        };
        (show(self.least), show(self.most))
    }
}

impl LockPolicy {
    /// Checks the policy. The error names the invalid field and the reason. The ranges are those of [`POLICY_FIELDS`].
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for field in POLICY_FIELDS
            .iter()
            .chain([&PolicyField::OVERLAP_IN_SLICES])
        {
            if let Some(why) = field.complaint(self) {
                return Err((field.name, why));
            }
        }
        if matches!(self.kind, PolicyKind::Timeslice(ns) if ns > self.max_hold_ns) {
            return Err(("max-hold", "must not be shorter than the timeslice".into()));
        }
        if self.swap
            && self
                .memory_turn()
                .is_none_or(|slice| slice < LEAST_MEMORY_TURN)
        {
            let least = format_duration(LEAST_MEMORY_TURN);
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
}

/// Writes the kind as a person would: `timeslice=5ms`.
impl std::fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PolicyKind::Off => f.write_str("off"),
            PolicyKind::Launches(count) => write!(f, "launches={count}"),
            PolicyKind::Timeslice(slice) => write!(f, "timeslice={}", format_duration(*slice)),
            PolicyKind::Always => f.write_str("always"),
            PolicyKind::Overlap(None) => f.write_str("overlap"),
            PolicyKind::Overlap(Some(ahead)) => write!(f, "overlap={}", format_duration(*ahead)),
        }
    }
}

impl std::fmt::Display for LockPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&format_policy(self))
    }
}

impl std::str::FromStr for LockPolicy {
    type Err = TextError;

    /// Reads a policy. Fields that the text leaves out have their defaults.
    fn from_str(text: &str) -> Result<Self, TextError> {
        parse_policy(&[text])?.apply(LockPolicy::default())
    }
}

/// The parts of a policy that a text sets; the rest stays as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyEdit {
    /// The condition under which the holder must yield.
    pub kind: Option<PolicyKind>,
    /// The order that chooses the next waiter.
    pub order: Option<Order>,
    /// Release after this long without work; `Some(None)` is `auto`.
    pub idle_ns: Option<Option<u64>>,
    /// The longest hold while others wait.
    pub max_hold_ns: Option<u64>,
    /// Longest drain, in nanoseconds.
    pub grace_ns: Option<u64>,
    /// Synchronisations that keep the lock.
    pub sync_skips: Option<u32>,
    /// Under `timeslice`: what may still run when the next process begins.
    pub overlap_ns: Option<u64>,
    /// Under `timeslice`: whether a turn includes the memory.
    pub swap: Option<bool>,
}

/// The shortest turn that includes the memory.
const LEAST_MEMORY_TURN: u64 = S;

impl PolicyEdit {
    /// The policy `base` with this edit on top, or why the two do not go together.
    ///
    /// A slice longer than the default `max-hold` lengthens it; one longer than a written `max-hold` is a conflict.
    pub fn apply(&self, base: LockPolicy) -> Result<LockPolicy, TextError> {
        let mut policy = LockPolicy {
            kind: self.kind.unwrap_or(base.kind),
            order: self.order.unwrap_or(base.order),
            idle_ns: self.idle_ns.unwrap_or(base.idle_ns),
            max_hold_ns: self.max_hold_ns.unwrap_or(base.max_hold_ns),
            grace_ns: self.grace_ns.unwrap_or(base.grace_ns),
            sync_skips: self.sync_skips.unwrap_or(base.sync_skips),
            overlap_ns: self.overlap_ns.unwrap_or(base.overlap_ns),
            // A shorter slice, or none, ends what nothing here asks for.
            swap: self
                .swap
                .unwrap_or(base.swap && !matches!(self.kind, Some(kind) if !is_memory_turn(kind))),
        };
        let slice = match policy.kind {
            PolicyKind::Timeslice(slice) => slice,
            _ if self.overlap_ns.is_some() => {
                let (least, _) = PolicyField::OVERLAP.range();
                let why = format!("overlap= takes {least} or more; less is for timeslice=T");
                return Err(TextError::Conflict { why });
            }
            _ => 0,
        };
        let needed = slice.max(policy.grace_ns);
        if policy.max_hold_ns < needed && self.max_hold_ns.is_none() {
            policy.max_hold_ns = needed;
        }
        if policy.max_hold_ns >= needed {
            return match policy.check() {
                Ok(()) => Ok(policy),
                Err((name, why)) => Err(TextError::Conflict {
                    why: format!("{name} {why}"),
                }),
            };
        }
        let (name, value) = if slice == needed {
            ("timeslice", slice)
        } else {
            ("grace", policy.grace_ns)
        };
        Err(TextError::Conflict {
            why: format!(
                "max-hold={} is shorter than {name}={}; give at least max-hold={}",
                format_duration(policy.max_hold_ns),
                format_duration(value),
                format_duration(needed)
            ),
        })
    }

    /// `overlap=` is a policy of its own, and beside `timeslice=`, or below what the policy takes, a part of that one.
    fn settle_overlap(&mut self) -> Result<(), TextError> {
        let Some(ns) = self.overlap_ns else {
            return Ok(());
        };
        let (least, _) = PolicyField::OVERLAP.limits();
        match self.kind {
            Some(PolicyKind::Timeslice(_)) => Ok(()),
            None if ns < least => Ok(()),
            _ => {
                self.overlap_ns = None;
                self.set_kind(PolicyKind::Overlap(Some(ns)))
            }
        }
    }

    fn set_kind(&mut self, kind: PolicyKind) -> Result<(), TextError> {
        let why = "a policy is one of off, overlap, always, launches=N and timeslice=T, given once";
        once(&mut self.kind, kind, why)
    }
}

/// Reads the words of a policy: `["timeslice=5ms", "order=fair"]`. A word may itself hold several, apart by blanks or commas.
pub fn parse_policy(words: &[&str]) -> Result<PolicyEdit, TextError> {
    let mut edit = PolicyEdit::default();
    let mut any = false;
    for word in words
        .iter()
        .flat_map(|word| word.split([' ', ',', '\t']))
        .filter(|word| !word.is_empty())
    {
        any = true;
        read_word(&mut edit, word)?;
    }
    edit.settle_overlap()?;
    if any {
        Ok(edit)
    } else {
        Err(TextError::Empty {
            wanted: "a policy such as timeslice=5ms order=fair",
        })
    }
}

fn read_word(edit: &mut PolicyEdit, word: &str) -> Result<(), TextError> {
    let Some((name, value)) = word.split_once('=') else {
        return match word {
            "off" => edit.set_kind(PolicyKind::Off),
            "always" => edit.set_kind(PolicyKind::Always),
            "overlap" => edit.set_kind(PolicyKind::Overlap(None)),
            _ => Err(unknown(word)),
        };
    };
    if name == "order" {
        let known = Order::ALL.into_iter().find(|order| order.word() == value);
        let order = known.ok_or_else(|| TextError::UnknownWord {
            text: word.to_owned(),
            known: Order::WORDS.map(|word| format!("order={word}")).join(", "),
        })?;
        return once(&mut edit.order, order, "order= is given twice");
    }
    if name == "swap" {
        let on = match value {
            "on" => true,
            "off" => false,
            _ => {
                return Err(TextError::UnknownWord {
                    text: word.to_owned(),
                    known: "swap=on, swap=off".into(),
                });
            }
        };
        return once(&mut edit.swap, on, "swap= is given twice");
    }
    let Some(field) = POLICY_FIELDS.iter().find(|field| field.name == name) else {
        return Err(unknown(word));
    };
    if word == "idle=auto" {
        return once(&mut edit.idle_ns, None, "idle= is given twice");
    }
    if name == "overlap" {
        let value = PolicyField::OVERLAP_IN_SLICES.read(value)?;
        return once(&mut edit.overlap_ns, value, "overlap= is given twice");
    }
    let value = field.read(value)?;
    let count = u32::try_from(value).unwrap_or(u32::MAX);
    match name {
        "launches" => edit.set_kind(PolicyKind::Launches(count)),
        "timeslice" => edit.set_kind(PolicyKind::Timeslice(value)),
        "idle" => once(&mut edit.idle_ns, Some(value), "idle= is given twice"),
        "max-hold" => once(&mut edit.max_hold_ns, value, "max-hold= is given twice"),
        "grace" => once(&mut edit.grace_ns, value, "grace= is given twice"),
        _ => once(&mut edit.sync_skips, count, "sync-skips= is given twice"),
    }
}

/// Returns true if a turn is long enough to include the memory.
const fn is_memory_turn(kind: PolicyKind) -> bool {
    matches!(kind, PolicyKind::Timeslice(slice) if slice >= LEAST_MEMORY_TURN)
}

fn once<T>(place: &mut Option<T>, value: T, why: &str) -> Result<(), TextError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(TextError::Conflict {
            why: why.to_owned(),
        }),
    }
}

fn unknown(word: &str) -> TextError {
    let known = POLICY_FIELDS
        .iter()
        .fold(String::from("off, always, overlap"), |known, field| {
            format!("{known}, {}=", field.name)
        });
    TextError::UnknownWord {
        text: word.to_owned(),
        known,
    }
}

/// Returns the text after `idle=`.
pub fn format_idle(idle_ns: Option<u64>) -> String {
    idle_ns.map_or_else(|| "auto".to_owned(), format_duration)
}

/// The whole policy as one would write it, every field named.
pub fn format_policy(policy: &LockPolicy) -> String {
    let overlap = match policy.kind {
        PolicyKind::Timeslice(_) => format!(
            " overlap={}{}",
            format_duration(policy.overlap_ns),
            if policy.swap { " swap=on" } else { "" }
        ),
        _ => String::new(),
    };
    format!(
        "{}{overlap} order={} idle={} max-hold={} grace={} sync-skips={}",
        policy.kind,
        policy.order.word(),
        format_idle(policy.idle_ns),
        format_duration(policy.max_hold_ns),
        format_duration(policy.grace_ns),
        policy.sync_skips
    )
}

#[cfg(test)]
mod tests;
