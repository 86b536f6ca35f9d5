//! The action of a process when memory is refused: `fail`, `wait`, `wait=10m`.

use std::{fmt, str::FromStr};

use crate::grammar::{TextError, format_duration, parse_duration};
use crate::row::Grammar;

/// The action for an allocation that a quota, a group's quota or the device would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// Fail at once.
    #[default]
    Fail,
    /// Wait in the queue until there is room.
    Wait,
    /// Wait in the queue at most this many nanoseconds, and then fail.
    WaitFor(u64),
}

impl OnFull {
    /// The shortest and the longest wait.
    const SPANS: std::ops::RangeInclusive<u64> = 1_000_000..=30 * 24 * 3_600_000_000_000;

    /// Returns true if the allocation waits.
    pub fn waits(self) -> bool {
        self != OnFull::Fail
    }

    /// Returns the deadline of a wait that begins now; `None` is never.
    pub fn until(self, now_ns: u64) -> Option<u64> {
        match self {
            OnFull::Fail => Some(now_ns),
            OnFull::Wait => None,
            OnFull::WaitFor(ns) => Some(now_ns.saturating_add(ns)),
        }
    }

    /// Returns true if the value is valid.
    fn is_valid(self) -> bool {
        !matches!(self, OnFull::WaitFor(ns) if !Self::SPANS.contains(&ns))
    }
}

impl fmt::Display for OnFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnFull::Fail => f.write_str("fail"),
            OnFull::Wait => f.write_str("wait"),
            OnFull::WaitFor(ns) => write!(f, "wait={}", format_duration(*ns)),
        }
    }
}

impl FromStr for OnFull {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        match text.split_once('=') {
            None if text == "fail" => Ok(OnFull::Fail),
            None if text == "wait" => Ok(OnFull::Wait),
            Some(("wait", time)) => {
                let wait = OnFull::WaitFor(parse_duration(time)?);
                wait.is_valid()
                    .then_some(wait)
                    .ok_or_else(|| TextError::OutOfRange {
                        text: time.to_owned(),
                        least: format_duration(*OnFull::SPANS.start()),
                        most: format_duration(*OnFull::SPANS.end()),
                    })
            }
            _ => Err(TextError::UnknownWord {
                text: text.to_owned(),
                known: "fail, wait or wait=10m".into(),
            }),
        }
    }
}

const FAIL: u128 = 1;
const WAIT: u128 = 2;
const WAIT_FOR: u128 = 3;

impl OnFull {
    /// The encoding and the text of values. A number has the kind in its lowest byte, and the time above it.
    pub const GRAMMAR: Grammar<Self> = Grammar {
        read: str::parse,
        none: None,
        show: |value| value.to_string(),
        refuse: |value| (!value.is_valid()).then(|| format!("cannot be {value}")),
        bits: |value| match value {
            OnFull::Fail => FAIL,
            OnFull::Wait => WAIT,
            OnFull::WaitFor(ns) => WAIT_FOR | u128::from(ns) << 8,
        },
        of_bits: |bits| {
            let value = match bits & 0xff {
                FAIL => OnFull::Fail,
                WAIT => OnFull::Wait,
                WAIT_FOR => OnFull::WaitFor((bits >> 8) as u64),
                _ => return None,
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
        for text in ["fail", "wait", "wait=10m", "wait=1.5s"] {
            let read: OnFull = text.parse().expect("well formed");
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for text in [
            "",
            "Wait",
            "wait=",
            "wait=0",
            "wait=5",
            "wait=31d",
            "wait=721h",
            "fail=1s",
            "queue",
        ] {
            assert!(text.parse::<OnFull>().is_err(), "{text}");
        }
    }
}
