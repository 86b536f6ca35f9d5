//! Exclusive use of a device by one program: a lock on a file that the program inherits and that ends with it.
//!
//! The lock only keeps programs away that ask `gpushare pick`. It does not stop any other program.

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

/// The devices that are reserved for one program each.
pub enum Taken<'d> {
    /// Found by the lock files in one user's directory.
    Files(&'d Path),
    /// Found by the advisory locks that a broker's clients hold.
    AdvisoryLocks(AdvisoryLocks),
}

impl<'d> Taken<'d> {
    /// Reads the reservations of a directory.
    pub fn look(dir: &'d Path) -> Self {
        match AdvisoryLocks::of(dir, false) {
            Ok(Some(tokens)) => Self::AdvisoryLocks(tokens),
            _ => Self::Files(dir),
        }
    }

    /// Returns true if a program has reserved the device.
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

/// Reserves the device until this process, or the program that it becomes, has ended. Returns `None` if another program has
/// reserved it.
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
