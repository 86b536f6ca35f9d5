//! What a process does when it is refused memory.

use std::{fmt, str::FromStr};

use crate::text::{TextError, format_duration, parse_duration};

/// What happens to an allocation that a quota, a group's quota or the device would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// It fails at once.
    #[default]
    Fail,
    /// It waits in line until there is room.
    Wait,
    /// It waits in line so many nanoseconds at most, and then fails.
    WaitFor(u64),
}

/// The shortest and the longest wait.
const LEAST: u64 = 1_000_000;
const MOST: u64 = 30 * 24 * 3_600_000_000_000;

impl OnFull {
    /// Whether it waits at all.
    pub fn waits(self) -> bool {
        self != OnFull::Fail
    }

    /// When a wait that begins now ends at the latest; `None` is never.
    pub fn until(self, now_ns: u64) -> Option<u64> {
        match self {
            OnFull::Fail => Some(now_ns),
            OnFull::Wait => None,
            OnFull::WaitFor(ns) => Some(now_ns.saturating_add(ns)),
        }
    }

    /// Whether it makes sense.
    pub(crate) fn is_valid(self) -> bool {
        !matches!(self, OnFull::WaitFor(ns) if !(LEAST..=MOST).contains(&ns))
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
                        least: format_duration(LEAST),
                        most: format_duration(MOST),
                    })
            }
            _ => Err(TextError::UnknownWord {
                text: text.to_owned(),
                known: "fail, wait or wait=10m".into(),
            }),
        }
    }
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
