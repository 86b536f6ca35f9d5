//! Errors of trace buffers, each with a remedy.

use std::{fmt, io, path::PathBuf};

use super::RECORDS;
use crate::{files::error::OpenError, text::PathText as _};

/// The reason that a trace buffer cannot be made, opened or read. Its `Display` is a sentence that names the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// No buffer exists.
    Missing {
        /// The file looked for.
        path: PathBuf,
    },
    /// The file is not a trace buffer, or was truncated or overwritten.
    Foreign {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: &'static str,
    },
    /// The buffer of another process, or of an earlier boot.
    NotIts {
        /// The file.
        path: PathBuf,
    },
    /// Written by another version of gpushare.
    WrongVersion {
        /// The file.
        path: PathBuf,
        /// The version the file has.
        theirs: u32,
    },
    /// No buffer has so many records.
    Records {
        /// Number of records that were asked for.
        asked: u32,
    },
    /// The file system has no room for it.
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The bytes needed.
        want: u64,
    },
    /// The directory of the segments is not usable.
    Dir(OpenError),
    /// Anything else the system said.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation that failed.
        op: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl TraceError {
    /// Makes an error for `map_err` from the operation and the path.
    pub(super) fn io(path: &std::path::Path, op: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            _ => Self::Io { path, op, source },
        }
    }
}

/// A file that could not be opened.
impl From<OpenError> for TraceError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Missing { path } => Self::Missing { path },
            OpenError::Unsafe { path, why } => Self::Foreign { path, why },
            OpenError::Io { path, op, source } => Self::Io { path, op, source },
            other => Self::Dir(other),
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path } => write!(
                f,
                "there is no trace at {}; start one with `gpushare trace start`",
                path.shown()
            ),
            Self::Foreign { path, why } => write!(
                f,
                "{} is not a usable trace buffer: {why}; remove it and start the trace again",
                path.shown()
            ),
            Self::NotIts { path } => write!(
                f,
                "{} belongs to another process or to an earlier boot; remove it and start the trace again",
                path.shown()
            ),
            Self::WrongVersion { path, theirs } => write!(
                f,
                "{} has version {theirs} and this program uses {}; use the gpushare it was made with",
                path.shown(),
                super::VERSION
            ),
            Self::Records { asked } => write!(
                f,
                "a trace has from {} to {} records, not {asked}",
                RECORDS.start(),
                RECORDS.end()
            ),
            Self::NoSpace { path, want } => write!(
                f,
                "no room for {}: {want} bytes are needed; free some, or ask for fewer records",
                path.shown()
            ),
            Self::Dir(error) => error.fmt(f),
            Self::Io { path, op, source } => {
                write!(f, "cannot {op} {}: {source}", path.shown())
            }
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Dir(error) => Some(error),
            _ => None,
        }
    }
}
