//! What a user's programs put beside the segments: in their directory, or where a broker serves many users in a directory of the
//! process's user. A file that one tenant may write is one that it may cut short, under a process that has it mapped: so each
//! user's processes map that user's files alone, and the broker keeps none.

use std::path::{Path, PathBuf};

use crate::files::{
    dir::{Dir, Mode},
    error::OpenError,
    locate,
};

/// In a user's own directory, apart from what belongs to the segments there.
const OF_THE_MACHINE: &str = "machine";

/// The folder for the segments in `dir`, opened.
pub fn open(dir: &Path) -> Result<Dir, OpenError> {
    look(dir, |own| Dir::open(own)?.inner(OF_THE_MACHINE))
}

/// The same, made where it is missing.
pub fn open_or_make(dir: &Path) -> Result<Dir, OpenError> {
    look(dir, |own| {
        Dir::open_or_make(own)?.inner_private(OF_THE_MACHINE)
    })
}

fn look(dir: &Path, own: impl Fn(&Path) -> Result<Dir, OpenError>) -> Result<Dir, OpenError> {
    let beside = Dir::open(dir)?;
    match beside.mode() {
        Mode::User => Ok(beside),
        Mode::System => own(&locate::own()),
    }
}

/// Its path.
pub fn path(dir: &Path) -> PathBuf {
    match Dir::open(dir).map(|dir| dir.mode()) {
        Ok(Mode::System) => locate::own().join(OF_THE_MACHINE),
        _ => dir.to_path_buf(),
    }
}
