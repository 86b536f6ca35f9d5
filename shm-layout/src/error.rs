//! Why a segment could not be opened, each with what a person can do about it.

use std::{io, path::PathBuf};

/// Why a segment could not be opened. Its `Display` is a sentence that says what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No segment here, and this caller does not create one.
    Missing {
        /// The file looked for.
        path: PathBuf,
    },
    /// Somebody created the file and has not published it.
    NotReady {
        /// The file.
        path: PathBuf,
    },
    /// Written by another version of gpushare.
    WrongVersion {
        /// The file.
        path: PathBuf,
        /// The version this program speaks.
        ours: u32,
        /// The version the file has.
        theirs: u32,
    },
    /// Not a gpushare segment.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Shorter than its layout.
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        len: u64,
        /// The layout's length.
        want: u64,
    },
    /// The file or directory belongs to somebody else.
    WrongOwner {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The owner it must have.
        want: u32,
    },
    /// Left over from before the last boot, and this caller does not create.
    StaleBoot {
        /// The file.
        path: PathBuf,
    },
    /// The file system has no room for the segment.
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The bytes needed.
        want: u64,
    },
    /// Anything else the system said.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        op: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
