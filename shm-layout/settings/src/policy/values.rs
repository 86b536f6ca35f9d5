//! The values that a word of a policy takes, as text and as numbers.

use super::{MS, S, US};
use crate::grammar::{
    MIB_BITS, TextError, format_duration, format_size, parse_duration, parse_integer, parse_size,
};

/// The values that a word of a policy takes. Each is a number; times are in nanoseconds, and a size is its MiB plus one.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// The words among the values, with their numbers.
    pub words: &'static [(&'static str, u64)],
    /// The smallest and the largest number; `None` where all values are words.
    pub limits: Option<(u64, u64)>,
    measure: Measure,
}

/// The meaning of a number that is no word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Count,
    Time,
    Size,
}

impl Values {
    /// The values of `overlap=`, the kind.
    pub const OVERLAP: Self = Self::time(100 * US, S);
    /// The values of `hw-timeslice=`: those that were measured.
    pub const HW_TIMESLICE: Self = Self::time(500 * US, 100 * MS);
    /// The values of `launches=`.
    pub const LAUNCHES: Self = Self::count(1, 1_000_000);
    /// The values of `timeslice=`.
    pub const TIMESLICE: Self = Self::time(100 * US, 60 * S);
    /// The values of `sync-skips=`.
    pub const SYNC_SKIPS: Self = Self::count(0, 1_000_000);
    /// `on` or `off`.
    pub const SWITCH: Self = Self::one_of(&[("on", 1), ("off", 0)]);

    /// Returns the values of a count in a range.
    pub const fn count(least: u64, most: u64) -> Self {
        Self {
            words: &[],
            limits: Some((least, most)),
            measure: Measure::Count,
        }
    }

    /// Returns the values of a time in a range.
    pub const fn time(least: u64, most: u64) -> Self {
        Self {
            measure: Measure::Time,
            ..Self::count(least, most)
        }
    }

    /// Returns the values of a time in a range, or `auto`, which is 0.
    pub const fn time_or_auto(least: u64, most: u64) -> Self {
        Self {
            words: &[("auto", 0)],
            ..Self::time(least, most)
        }
    }

    /// Returns the values of a time in a range, or `never`, which is 0.
    pub const fn time_or_never(least: u64, most: u64) -> Self {
        Self {
            words: &[("never", 0)],
            ..Self::time(least, most)
        }
    }

    /// Returns the values of a size of at most `most` bytes, or `auto`.
    pub const fn size_or_auto(most: u64) -> Self {
        Self {
            words: &[("auto", 0)],
            measure: Measure::Size,
            ..Self::count(1, (most >> MIB_BITS) + 1)
        }
    }

    /// Returns the values of a setting that is one of some words.
    pub const fn one_of(words: &'static [(&'static str, u64)]) -> Self {
        Self {
            words,
            limits: None,
            measure: Measure::Count,
        }
    }

    /// Returns true for `on` or `off`.
    pub fn is_switch(&self) -> bool {
        matches!(self.words, [("on", 1), ("off", 0)])
    }

    /// Returns the limits as a person would write them.
    pub fn range(&self) -> Option<[String; 2]> {
        self.limits
            .map(|(least, most)| [least, most].map(|number| self.show(number)))
    }

    /// Returns the word of a number, if it has one.
    pub fn word_of(&self, number: u64) -> Option<&'static str> {
        let mut words = self.words.iter();
        words
            .find(|(_, known)| *known == number)
            .map(|(word, _)| *word)
    }

    /// Returns the amount of a number in nanoseconds, bytes or units; `None` for a word.
    pub fn amount(&self, number: u64) -> Option<u64> {
        let amount = match self.measure {
            Measure::Count | Measure::Time => number,
            Measure::Size => number.saturating_sub(1) << MIB_BITS,
        };
        self.word_of(number).is_none().then_some(amount)
    }

    /// Returns a value as a person would write it.
    pub fn show(&self, number: u64) -> String {
        let amount = match self.amount(number) {
            None => return self.word_of(number).unwrap_or_default().to_owned(),
            Some(amount) => amount,
        };
        match self.measure {
            Measure::Count => amount.to_string(),
            Measure::Time => format_duration(amount),
            Measure::Size => format_size(amount),
        }
    }

    /// Reads the text behind `word=`.
    pub fn read(&self, word: &str, text: &str) -> Result<u64, TextError> {
        if let Some((_, number)) = self.words.iter().find(|(known, _)| *known == text) {
            return Ok(*number);
        }
        let Some((least, most)) = self.limits else {
            let known = self
                .words
                .iter()
                .map(|(known, _)| format!("{word}={known}"));
            return Err(TextError::UnknownWord {
                text: format!("{word}={text}"),
                known: known.collect::<Vec<_>>().join(", "),
            });
        };
        let number = match self.measure {
            Measure::Count => {
                let count = parse_integer(text, least as i64, most as i64);
                return count.map(i64::unsigned_abs);
            }
            Measure::Time => parse_duration(text)?,
            Measure::Size => (parse_size(text)? >> MIB_BITS) + 1,
        };
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        let [least, most] = [least, most].map(|number| self.show(number));
        let text = text.trim().to_owned();
        Err(TextError::OutOfRange { text, least, most })
    }

    /// Returns the reason that a number is out of range, as a clause after its word; `None` for a valid one.
    pub fn refuse(&self, number: u64) -> Option<String> {
        let (least, most) = self.limits?;
        if self.word_of(number).is_some() || (least..=most).contains(&number) {
            return None;
        }
        let [least, most] = self.range()?;
        Some(format!("must be between {least} and {most}"))
    }
}
