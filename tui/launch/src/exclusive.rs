//! A device for one program alone: a lock on a file that the program inherits and that ends with it.
//!
//! It keeps other picks away. It is a word among programs that ask `gpushare pick`, not a wall.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use shm_layout::AdvisoryLocks;
use shm_layout::OpenError;
use shm_layout::dir::Dir;

fn name(uuid: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    format!(
        "exclusive-{}",
        uuid.chars().filter(plain).collect::<String>()
    )
}

/// Which devices programs have for themselves.
pub enum Taken<'d> {
    /// By the files of one user's directory.
    Files(&'d Path),
    /// By what a broker's clients hold.
    AdvisoryLocks(AdvisoryLocks),
}

impl<'d> Taken<'d> {
    /// Those of a directory.
    pub fn look(dir: &'d Path) -> Self {
        match AdvisoryLocks::of(dir, false) {
            Ok(Some(tokens)) => Self::AdvisoryLocks(tokens),
            _ => Self::Files(dir),
        }
    }

    /// Whether a program has the device for itself.
    pub fn has(&self, uuid: &str) -> bool {
        match self {
            Self::AdvisoryLocks(tokens) => tokens.is_held(&name(uuid)),
            Self::Files(dir) => {
                let file = Dir::open(dir).and_then(|dir| dir.read(&name(uuid)));
                file.is_ok_and(|file| flock(file, FlockOperation::NonBlockingLockShared).is_err())
            }
        }
    }
}

/// Takes the device until this process, and what it becomes, has ended. `None` if another has it.
pub fn hold(dir: &Path, uuid: &str) -> Result<Option<File>, OpenError> {
    let (file, held) = match AdvisoryLocks::of(dir, true)? {
        Some(tokens) => {
            let held = tokens.hold(&name(uuid)).unwrap_or(false);
            (tokens.into_file(), held)
        }
        None => {
            let file = Dir::open(dir)?.write(&name(uuid), 0o600)?;
            let held = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            (file, held)
        }
    };
    if !held {
        return Ok(None);
    }
    // The program inherits it.
    let kept = fcntl_setfd(&file, FdFlags::empty());
    Ok(kept.is_ok().then_some(file))
}
