//! The idle time after which a process is evicted: `15m`, `never`.

use std::{fmt, str::FromStr};

use super::{TextError, format_duration, parse_duration};
use crate::value::EvictAfter;

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
