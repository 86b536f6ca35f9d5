//! Where the buffers are: beside the segments, or where a broker serves many users in the directory of the process's user. A file
//! that one tenant may write is one that it may cut short, under a process that has it mapped: so each user's processes map
//! that user's files alone, and the broker keeps none.

use std::path::{Path, PathBuf};

use super::TraceError;
use crate::{
    dir::{Dir, Mode},
    locate,
};

/// In a user's own directory, apart from what belongs to the segments there.
const OF_THE_MACHINE: &str = "machine";

/// The folder of the segments in `dir`, opened.
pub(super) fn open(dir: &Path) -> Result<Dir, TraceError> {
    look(dir, |own| Dir::open(own)?.inner(OF_THE_MACHINE))
}

/// The same, made where it is missing.
pub(super) fn open_or_make(dir: &Path) -> Result<Dir, TraceError> {
    look(dir, |own| {
        Dir::open_or_make(own)?.inner_private(OF_THE_MACHINE)
    })
}

fn look(
    dir: &Path,
    own: impl Fn(&Path) -> Result<Dir, crate::error::OpenError>,
) -> Result<Dir, TraceError> {
    let beside = Dir::open(dir).map_err(TraceError::Dir)?;
    match beside.mode() {
        Mode::User => Ok(beside),
        Mode::System => own(&locate::own()).map_err(TraceError::Dir),
    }
}

/// Its path.
pub(super) fn path(dir: &Path) -> PathBuf {
    match Dir::open(dir).map(|dir| dir.mode()) {
        Ok(Mode::System) => locate::own().join(OF_THE_MACHINE),
        _ => dir.to_path_buf(),
    }
}
