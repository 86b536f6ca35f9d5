//! Errors of edits.

use std::{fmt, io};

/// The reason that an edit was refused. Nothing changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum EditError {
    /// Another edit was made in between.
    Moved {
        /// The generation expected.
        expected: u64,
        /// The generation found.
        found: u64,
    },
    /// The process, device entry or group is not there.
    NoSuchTarget,
    /// A value is out of range.
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// The reason.
        why: String,
    },
    /// No room for another group or device.
    TooMany,
    /// The user may not write the control segment.
    NotPermitted,
    /// Another editor holds the control segment and does not let go.
    Busy,
    /// The system refused.
    Io(io::Error),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved { expected, found } => {
                write!(
                    f,
                    "another edit came first (generation {found}, not {expected}); check the settings and try again"
                )
            }
            Self::NoSuchTarget => {
                f.write_str("the target does not exist; `gpushare ps` lists the processes")
            }
            Self::Invalid { field, why } => write!(f, "{field} {why}"),
            Self::TooMany => {
                f.write_str("no room for another device or group; remove a group first")
            }
            Self::NotPermitted => f.write_str(
                "this user may not write the control segment; ask the user who ran `gpushare init`",
            ),
            Self::Busy => f.write_str(
                "another edit has been in progress for too long; is a gpushare process stopped?",
            ),
            Self::Io(error) => write!(f, "cannot edit: {error}"),
        }
    }
}

impl std::error::Error for EditError {}
