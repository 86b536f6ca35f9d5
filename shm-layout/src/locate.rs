//! Where the segments are: `$GPUSHARE_DIR`, else the system's, else the user's own.

use std::path::PathBuf;

use crate::error::OpenError;

/// Whose segments a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One user's own: directory 0700, files 0600.
    User,
    /// Made by root for everybody: `gpushare init`.
    System,
}

/// A directory with segments in it.
#[derive(Clone, Debug)]
pub struct SegmentDir {
    /// The directory.
    pub path: PathBuf,
    /// Whose it is.
    pub mode: Mode,
}

/// The directory for this process; the user's own is created when it is missing.
pub fn locate() -> Result<SegmentDir, OpenError> {
    todo!()
}

/// The directory for this process, creating nothing.
pub fn locate_existing() -> Result<SegmentDir, OpenError> {
    todo!()
}
