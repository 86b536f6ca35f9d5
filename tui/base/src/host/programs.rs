//! Lookup of programs by path or in PATH, with a check that this user may execute them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use shm_layout::text::PathText as _;

use crate::text::exit::{Exit, Failure};

/// Path by which this program starts itself again. Unlike its file's path it stays valid when an upgrade replaces the file.
pub const OWN: &str = "/proc/self/exe";

/// Returns the file that a shell would run for this word.
pub fn find_program(word: &OsStr) -> Result<PathBuf, Failure> {
    let found = if word.as_encoded_bytes().contains(&b'/') {
        Some(PathBuf::from(word)).filter(|path| path.exists())
    } else {
        search_path(word)
    };
    let Some(program) = found else {
        let place = if word.as_encoded_bytes().contains(&b'/') {
            "there is no such file"
        } else {
            "it is not in PATH"
        };
        return Err(Failure {
            exit: Exit::NotFound,
            sentence: format!("cannot run {word:?}: {place}; check the spelling or give its path"),
        });
    };
    let cannot = |why: &str| Failure {
        exit: Exit::CannotExecute,
        sentence: format!("cannot run {}: {why}", program.shown()),
    };
    if program.is_dir() {
        return Err(cannot("it is a directory"));
    }
    if !is_executable(&program) {
        return Err(cannot(
            "you may not execute it; use chmod +x, or start it with its interpreter",
        ));
    }
    Ok(program)
}

/// Finds a program in PATH.
pub fn search_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(name));
    places.find(|place| place.is_file() && is_executable(place))
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
