//! The idle time after which a process is evicted: `15m`, `never`.

use std::{fmt, str::FromStr};

use crate::grammar::{TextError, format_duration, parse_duration};
use crate::row::Grammar;

/// After which idle time a process is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictAfter {
    /// Never by itself.
    Never,
    /// Evict when the application has made no request of the driver for this many nanoseconds.
    Idle(u64),
}

impl EvictAfter {
    /// The shortest and the longest idle time.
    const SPANS: std::ops::RangeInclusive<u64> = 100_000_000..=30 * 24 * 3_600_000_000_000;

    /// The idle time, if there is one.
    pub fn ns(self) -> Option<u64> {
        match self {
            EvictAfter::Never => None,
            EvictAfter::Idle(ns) => Some(ns),
        }
    }

    /// Returns true if the value is valid.
    fn is_valid(self) -> bool {
        self.ns().is_none_or(|ns| Self::SPANS.contains(&ns))
    }
}

impl fmt::Display for EvictAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvictAfter::Never => f.write_str("never"),
            EvictAfter::Idle(ns) => f.write_str(&format_duration(*ns)),
        }
    }
}

impl FromStr for EvictAfter {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        if text == "never" {
            return Ok(EvictAfter::Never);
        }
        let after = EvictAfter::Idle(parse_duration(text)?);
        after
            .is_valid()
            .then_some(after)
            .ok_or_else(|| TextError::OutOfRange {
                text: text.to_owned(),
                least: format_duration(*EvictAfter::SPANS.start()),
                most: format_duration(*EvictAfter::SPANS.end()),
            })
    }
}

impl EvictAfter {
    /// The encoding and the text of values. All ones is never.
    pub const GRAMMAR: Grammar<Self> = Grammar {
        read: str::parse,
        none: None,
        show: |value| value.to_string(),
        refuse: |value| (!value.is_valid()).then(|| format!("cannot be {value}")),
        bits: |value| value.ns().unwrap_or(u64::MAX).into(),
        of_bits: |bits| {
            let value = match bits as u64 {
                u64::MAX => EvictAfter::Never,
                ns => EvictAfter::Idle(ns),
            };
            value.is_valid().then_some(value)
        },
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_nonsense_is_refused() {
        for text in ["never", "15m", "1.5s"] {
            let read: EvictAfter = text.parse().expect("well formed");
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for text in ["", "Never", "0", "5", "10ms", "31d", "15 apples"] {
            assert!(text.parse::<EvictAfter>().is_err(), "{text}");
        }
    }
}
