//! What a process does when memory is refused: `fail`, `wait`, `wait=10m`.

use std::{fmt, str::FromStr};

use super::{TextError, format_duration, parse_duration};
use crate::value::OnFull;

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
