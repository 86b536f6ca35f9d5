//! Why an edit did not happen, as a sentence and an exit code.

use std::fmt;

use shm_layout::text::PathText as _;
use shm_layout::{EditError, OpenError};

use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;

/// Why an edit was refused. Nothing changed.
#[derive(Debug)]
pub enum EditFailure {
    /// The segments could not be opened for writing.
    Open {
        /// Where they were looked for.
        dir: std::path::PathBuf,
        /// Whether a right is what is missing.
        not_permitted: bool,
        /// Why, as a sentence.
        why: String,
    },
    /// The segments refused.
    Edit {
        /// Its target.
        target: String,
        /// Why.
        error: EditError,
    },
    /// The machine's broker refused, or did not answer.
    Broker {
        /// The code a program should end with.
        exit: Exit,
        /// Why, as a sentence.
        why: String,
    },
    /// Taking back was refused: something else has changed since.
    Undo(String),
    /// Taking back was refused: there is nothing to undo.
    NothingToUndo(String),
    /// There is no such edit to take back.
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

    /// The code a program should end with.
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

    /// What the segments refused, of a target on one line.
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
