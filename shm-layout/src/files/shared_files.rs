//! Files that a user's programs put beside the segments: in the same directory, or, where a broker serves many users, in one
//! per user. A tenant could truncate a file that it may write while another process has it mapped. So each user's processes map
//! only that user's files, and the broker maps none.

use std::path::{Path, PathBuf};

use crate::files::{dir::Dir, error::OpenError, locate};

/// In a user's own directory, the part that does not belong to its segments.
const OF_THE_MACHINE: &str = "machine";

/// The folder for the segments in `dir`, opened.
pub fn open(dir: &Path) -> Result<Dir, OpenError> {
    look(dir, |own| Dir::open(own)?.inner(OF_THE_MACHINE))
}

/// Opens the directory, and makes it if it is missing.
pub fn open_or_make(dir: &Path) -> Result<Dir, OpenError> {
    look(dir, |own| {
        Dir::open_or_make(own)?.inner_private(OF_THE_MACHINE)
    })
}

fn look(dir: &Path, own: impl Fn(&Path) -> Result<Dir, OpenError>) -> Result<Dir, OpenError> {
    let beside = Dir::open(dir)?;
    match beside.is_brokered() {
        true => own(&locate::own()),
        false => Ok(beside),
    }
}

/// Returns the path of the directory.
pub fn path(dir: &Path) -> PathBuf {
    match Dir::open(dir).is_ok_and(|dir| dir.is_brokered()) {
        true => locate::own().join(OF_THE_MACHINE),
        false => dir.to_path_buf(),
    }
}
