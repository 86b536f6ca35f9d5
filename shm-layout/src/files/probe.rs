//! A check that a file system can carry the segments.
//!
//! A process counts as alive as long as its mapping keeps a lock on a byte of `state` ([`liveness`](crate::os::liveness)). On
//! overlay, where a container's own files are, the mapping belongs to the file below and not to the file that was opened, so
//! the lock ends when that file is closed. Every process would count as dead, and its slot and bytes would be given to others.
//! Such a file system is refused before any process starts there. The test is its behaviour, not its name.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

use crate::{
    files::{dir::Dir, error::OpenError},
    os::liveness::Bytes,
};

/// Refuses the file system of a directory that cannot carry segments. A file system that cannot be tested is not refused.
pub fn check_file_system(dir: &Path) -> Result<(), OpenError> {
    let dir = Dir::open(dir)?;
    match dir.scratch("probe", false) {
        Ok(scratch) if scratch.file.set_len(4096).is_ok() => check(dir.path(), &scratch.file),
        _ => Ok(()),
    }
}

/// Checks with an existing file that no process has locked.
pub(crate) fn check(path: &Path, file: &File) -> Result<(), OpenError> {
    match forgets(file) {
        Ok(true) => Err(refusal(path)),
        _ => Ok(()),
    }
}

/// Returns the reason, as a sentence.
pub(crate) fn refusal(path: &Path) -> OpenError {
    let path: PathBuf = path.to_path_buf();
    OpenError::Forgetful { path }
}

/// Returns true if a lock that only a mapping should keep is lost.
fn forgets(file: &File) -> io::Result<bool> {
    const BYTE: usize = 0;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let another = || {
        let opened = File::options().read(true).write(true).open(&path);
        opened.map(Bytes::of_any)
    };
    let locked = another()?;
    match locked.try_lock(BYTE) {
        Ok(_) => {}
        Err(error) => {
            let never = [libc::EINVAL, libc::ENOLCK, libc::EOPNOTSUPP];
            return Ok(error
                .raw_os_error()
                .is_some_and(|code| never.contains(&code)));
        }
    }
    let _alive = locked.keep()?;
    another()?.is_locked(BYTE).map(|locked| !locked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_keeps_locks_is_not_refused() {
        for place in ["/dev/shm", "/tmp"] {
            let dir = tempfile::tempdir_in(place).expect("a directory of our own");
            check_file_system(dir.path()).expect("this machine's own file systems");
            let left = std::fs::read_dir(dir.path()).expect("our own").count();
            assert_eq!(left, 0, "the probe left something in {place}");
        }
    }
}
