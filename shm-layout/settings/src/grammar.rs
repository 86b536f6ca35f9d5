//! The grammar of typed values: sizes, spans of time, numbers and labels.
//!
//! One grammar for the command line, the dashboard's dialogs and the environment of a workload. Everything here is a
//! pure function of its text; whatever `format_*` writes, the `parse_*` beside it reads back to the same value.
//!
//! ```text
//! size      8GiB  8G (= GiB)  8GB  1.5GiB  512M  4096B    amount    a size, 25% of the device, or none
//! span      100us  5ms  2s  1.5s  10m  1h                 list      8GiB   or   0:8GiB,1:50%
//! policy    off | always | launches=10 | timeslice=5ms    then      order=fair idle=5ms max-hold=10s grace=200ms sync-skips=0
//! ```

use std::fmt;

pub mod cgroups;
mod label;
mod number;
mod size;
mod span;

pub use label::{
    LONGEST_GROUP, LONGEST_LABEL, PathText, check_name, error_number, is_hidden, shown, visible,
    without_error_numbers,
};
pub use number::{parse_integer, parse_percent};
pub(crate) use size::MIB_BITS;
pub use size::{format_size, human_size, parse_size, parse_size_or_percent};
pub use span::{format_duration, parse_duration};

/// Unsets a setting.
pub const INHERIT: &str = "inherit";

/// The reason that a text was not understood: the text, and what was expected.
///
/// The message is one clause without a full stop, ready to follow a name: `GPUSHARE_MEMORY: "8Q" has an unknown unit …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextError {
    /// The text is empty where a value was expected.
    Empty {
        /// The expected value, with an example.
        wanted: &'static str,
    },
    /// The text does not begin with a number.
    NotANumber {
        /// The text.
        text: String,
        /// The expected value, with an example.
        wanted: &'static str,
    },
    /// A number with a unit that does not exist.
    UnknownUnit {
        /// The whole text.
        text: String,
        /// The units that do.
        known: &'static str,
    },
    /// A few bytes where a size with a unit was surely meant.
    NoUnit {
        /// The number.
        text: String,
        /// Number of bytes that the text means without a unit.
        bytes: u64,
        /// The unit that was probably meant.
        unit: &'static str,
    },
    /// A number where a time is wanted.
    NoTimeUnit {
        /// The number.
        text: String,
    },
    /// A number outside the valid range.
    OutOfRange {
        /// The text.
        text: String,
        /// The smallest value taken, as one would write it.
        least: String,
        /// The largest value taken, as one would write it.
        most: String,
    },
    /// A word or field that does not exist.
    UnknownWord {
        /// The word.
        text: String,
        /// The words that do.
        known: String,
    },
    /// Two things that cannot hold together, or one said twice.
    Conflict {
        /// The range, and the remedy.
        why: String,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { wanted } => write!(f, "the value is empty; expected {wanted}"),
            Self::NotANumber { text, wanted } => {
                write!(f, "{text:?} is not a number; expected {wanted}")
            }
            Self::UnknownUnit { text, known } => {
                write!(f, "{text:?} has an unknown unit; use {known}")
            }
            Self::NoUnit { text, bytes, unit } => {
                let s = if *bytes == 1 { "" } else { "s" };
                write!(
                    f,
                    "{text:?} means {bytes} byte{s}; write {text}{unit}, or {bytes}B for bytes"
                )
            }
            Self::NoTimeUnit { text } => write!(
                f,
                "{text:?} has no unit; write {text}ms, {text}s or {text}m (minutes)"
            ),
            Self::OutOfRange { text, least, most } => {
                write!(
                    f,
                    "{text:?} is out of range; must be between {least} and {most}"
                )
            }
            Self::UnknownWord { text, known } => {
                write!(f, "{text:?} is not known; expected {known}")
            }
            Self::Conflict { why } => f.write_str(why),
        }
    }
}

impl std::error::Error for TextError {}
