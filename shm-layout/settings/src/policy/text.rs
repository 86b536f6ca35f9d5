//! Lock policies as people write them: `timeslice=5ms order=fair idle=5ms`.
//!
//! A text is read into a [`PolicyEdit`], which changes only the settings that were written. [`PolicyEdit::apply`] applies it to
//! the policy in force and checks the result.

use super::{KINDS, LockPolicy, POLICY_ROWS, PolicyEdit, PolicyKind, Values, is_memory_turn};
use crate::grammar::{TextError, format_duration};

/// Lists the words of a policy, each with the values that follow it and its effect: kinds without an amount, those with one, and
/// the other settings.
pub fn policy_words() -> impl Iterator<Item = (&'static str, Option<Values>, &'static str)> {
    let alone = KINDS.iter().filter(|kind| kind.amount.is_none());
    let others = KINDS.iter().filter(|kind| kind.amount.is_some());
    let kinds = alone
        .chain(others)
        .map(|kind| (kind.word, kind.amount, kind.help));
    let rows = POLICY_ROWS.iter().filter(|row| !row.help.is_empty());
    kinds.chain(rows.map(|row| (row.word, Some(row.values), row.help)))
}

/// Writes the whole policy as a person would, every setting named that has an effect. One without a column in the table of policies
/// is left out where it is off or `auto`.
impl std::fmt::Display for LockPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kind)?;
        for (row, number) in self.written() {
            let is_untold = row.title.is_empty() && number == 0;
            if row.applies(self.kind) && !is_untold {
                write!(f, " {}={}", row.word, row.values.show(number))?;
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for LockPolicy {
    type Err = TextError;

    /// Reads a policy. Settings that the text leaves out have their defaults.
    fn from_str(text: &str) -> Result<Self, TextError> {
        parse_policy(&[text])?.apply(LockPolicy::default())
    }
}

impl PolicyEdit {
    /// The policy `base` with this edit on top, or why the two do not go together.
    ///
    /// A slice longer than the default `max-hold` lengthens it; one longer than a written `max-hold` is a conflict.
    pub fn apply(&self, base: LockPolicy) -> Result<LockPolicy, TextError> {
        let mut policy = self.over(base);
        // A shorter slice, or none, ends swapping if the edit does not ask for it.
        if self.swap.is_none() && self.kind.is_some_and(|kind| !is_memory_turn(kind)) {
            policy.swap = false;
        }
        let slice = match policy.kind {
            PolicyKind::Timeslice(slice) => slice,
            _ if self.overlap_ns.is_some() => {
                let [least, _] = Values::OVERLAP.range().unwrap_or_default();
                let why = format!("overlap= takes {least} or more; less is for timeslice=T");
                return Err(conflict(why));
            }
            _ => 0,
        };
        let needed = slice.max(policy.grace_ns);
        if policy.max_hold_ns < needed && self.max_hold_ns.is_none() {
            policy.max_hold_ns = needed;
        }
        if policy.max_hold_ns >= needed {
            let checked = policy.check().map(|()| policy);
            return checked.map_err(|(name, why)| conflict(format!("{name} {why}")));
        }
        let (name, value) = if slice == needed {
            ("timeslice", slice)
        } else {
            ("grace", policy.grace_ns)
        };
        Err(conflict(format!(
            "max-hold={} is shorter than {name}={}; give at least max-hold={}",
            format_duration(policy.max_hold_ns),
            format_duration(value),
            format_duration(needed)
        )))
    }

    /// Makes `overlap=` a policy of its own, unless it stands beside `timeslice=` or is less than that policy takes: then it is a
    /// setting of the slices.
    fn settle_overlap(&mut self) -> Result<(), TextError> {
        let Some(ns) = self.overlap_ns else {
            return Ok(());
        };
        match self.kind {
            Some(PolicyKind::Timeslice(_)) => Ok(()),
            None if Values::OVERLAP.limits.is_some_and(|(least, _)| ns < least) => Ok(()),
            _ => {
                self.overlap_ns = None;
                self.set_kind(PolicyKind::Overlap(Some(ns)))
            }
        }
    }

    fn set_kind(&mut self, kind: PolicyKind) -> Result<(), TextError> {
        let why = "a policy is one of off, overlap, always, launches=N, timeslice=T and hw-timeslice=T, given once";
        match self.kind.replace(kind) {
            None => Ok(()),
            Some(_) => Err(conflict(why.to_owned())),
        }
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
    let (name, text) = word
        .split_once('=')
        .map_or((word, None), |(name, text)| (name, Some(text)));
    let row = POLICY_ROWS.iter().find(|row| row.word == name);
    if let (Some(row), Some(text)) = (row, text) {
        return match edit.set(row, row.values.read(name, text)?) {
            true => Ok(()),
            false => Err(conflict(format!("{name}= is given twice"))),
        };
    }
    let kind = KINDS.iter().find(|kind| kind.word == name);
    let values = kind.and_then(|kind| kind.amount);
    let kind = match (text, values) {
        (None, _) => kind.and_then(|kind| (kind.of)(None)),
        (Some(text), Some(values)) => {
            let amount = values.read(name, text)?;
            kind.and_then(|kind| (kind.of)(Some(amount)))
        }
        (Some(_), None) => None,
    };
    edit.set_kind(kind.ok_or_else(|| unknown(word))?)
}

fn conflict(why: String) -> TextError {
    TextError::Conflict { why }
}

fn unknown(word: &str) -> TextError {
    let alone = KINDS.iter().filter(|kind| (kind.of)(None).is_some());
    let alone = alone.map(|kind| kind.word.to_owned());
    let valued = policy_words().filter(|(_, values, _)| values.is_some());
    let valued = valued.map(|(word, ..)| format!("{word}="));
    TextError::UnknownWord {
        text: word.to_owned(),
        known: alone.chain(valued).collect::<Vec<_>>().join(", "),
    }
}
