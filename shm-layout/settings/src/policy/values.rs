//! The values that a word of a policy takes, as text and as numbers.

use super::{S, US};
use crate::grammar::{TextError, format_duration, parse_duration, parse_integer};

/// The values that a word of a policy takes. Each is a number; times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// The words among the values, with their numbers.
    pub words: &'static [(&'static str, u64)],
    /// The smallest and the largest number; `None` where all values are words.
    pub limits: Option<(u64, u64)>,
    is_time: bool,
}

impl Values {
    /// The values of `overlap=`, the kind.
    pub const OVERLAP: Self = Self::time(100 * US, S);
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
            is_time: false,
        }
    }

    /// Returns the values of a time in a range.
    pub const fn time(least: u64, most: u64) -> Self {
        Self {
            is_time: true,
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

    /// Returns the values of a setting that is one of some words.
    pub const fn one_of(words: &'static [(&'static str, u64)]) -> Self {
        Self {
            words,
            limits: None,
            is_time: false,
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

    /// Returns a value as a person would write it.
    pub fn show(&self, number: u64) -> String {
        match self.word_of(number) {
            Some(word) => word.to_owned(),
            None if self.is_time => format_duration(number),
            None => number.to_string(),
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
        if !self.is_time {
            let count = parse_integer(text, least as i64, most as i64);
            return count.map(i64::unsigned_abs);
        }
        let time = parse_duration(text)?;
        if (least..=most).contains(&time) {
            return Ok(time);
        }
        let [least, most] = [least, most].map(format_duration);
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
