//! The reason why an edit was refused, as a sentence and an exit code.

use std::fmt;

use shm_layout::text::PathText as _;
use shm_layout::{EditError, OpenError};

use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;

/// The reason why an edit was refused. Nothing changed.
#[derive(Debug)]
pub enum EditFailure {
    /// The segments could not be opened for writing.
    Open {
        /// Directory of the segments.
        dir: std::path::PathBuf,
        /// True if a permission is missing.
        not_permitted: bool,
        /// Reason, as a sentence.
        why: String,
    },
    /// The segments refused.
    Edit {
        /// Target of the edit.
        target: String,
        /// Reason.
        error: EditError,
    },
    /// The machine's broker refused, or did not answer.
    Broker {
        /// Exit code for the program.
        exit: Exit,
        /// Reason, as a sentence.
        why: String,
    },
    /// Undo was refused, because another edit followed.
    Undo(String),
    /// Undo was refused, because there is no edit to undo.
    NothingToUndo(String),
    /// The log has no such edit to undo.
    NoSuchEdit(String),
}

impl EditFailure {
    pub(super) fn open(dir: &std::path::Path, error: &OpenError) -> Self {
        Self::Open {
            dir: dir.to_owned(),
            not_permitted: error.not_permitted(),
            why: Failure::from(error).sentence,
        }
    }

    /// Returns the exit code for the program.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Open {
                not_permitted: true,
                ..
            }
            | Self::Edit {
                error: EditError::NotPermitted,
                ..
            } => Exit::NotPermitted,
            Self::Edit {
                error: EditError::NoSuchTarget,
                ..
            }
            | Self::NoSuchEdit(_) => Exit::NoSuchTarget,
            Self::Edit {
                error: EditError::Invalid { .. },
                ..
            } => Exit::Usage,
            Self::Broker { exit, .. } => *exit,
            _ => Exit::Failed,
        }
    }

    /// Writes the segments' refusal with the target on one line.
    fn sentence(target: &str, error: &EditError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match error {
            EditError::Moved { expected, found } => write!(
                f,
                "{target}: another edit came first (generation {expected} became {found}); check \
                     the settings and try again"
            ),
            EditError::NoSuchTarget => {
                write!(
                    f,
                    "{target}: the process has ended; gpushare ps lists the processes"
                )
            }
            EditError::Invalid { field, why } => {
                write!(f, "{target}: {field} {why}; nothing was changed")
            }
            EditError::TooMany => write!(
                f,
                "{target}: the control segment is full; remove an unused group or policy"
            ),
            EditError::NotPermitted => {
                write!(
                    f,
                    "{target}: you may not edit these segments; run this as their owner or as root"
                )
            }
            other => write!(f, "{target}: {other}"),
        }
    }
}

impl fmt::Display for EditFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open {
                dir,
                not_permitted: true,
                why,
            } => write!(
                f,
                "you may read the segments in {} but not edit them: {why}; run this as their owner or as root",
                dir.shown()
            ),
            Self::Open { why, .. } | Self::Broker { why, .. } => f.write_str(why),
            Self::Edit { target, error } => Self::sentence(&plain(target), error, f),
            Self::Undo(why) | Self::NothingToUndo(why) | Self::NoSuchEdit(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for EditFailure {}

impl From<EditFailure> for Failure {
    fn from(failure: EditFailure) -> Self {
        Self {
            exit: failure.exit(),
            sentence: failure.to_string(),
        }
    }
}
