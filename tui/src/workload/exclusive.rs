//! A device for one program alone: a lock on a file that the program inherits and that ends with it.
//!
//! It keeps other picks away. It is a word among programs that ask `gpushare pick`, not a wall.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use shm_layout::OpenError;
use shm_layout::dir::Dir;

fn name(uuid: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    format!(
        "exclusive-{}",
        uuid.chars().filter(plain).collect::<String>()
    )
}

/// Whether a program has the device for itself.
pub fn is_held(dir: &Path, uuid: &str) -> bool {
    let file = Dir::open(dir).and_then(|dir| dir.read(&name(uuid)));
    file.is_ok_and(|file| flock(file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Takes the device until this process, and what it becomes, has ended. `None` if another has it.
pub fn hold(dir: &Path, uuid: &str) -> Result<Option<File>, OpenError> {
    let file = Dir::open(dir)?.write(&name(uuid), 0o600)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    // The program inherits it.
    let kept = fcntl_setfd(&file, FdFlags::empty());
    Ok(kept.is_ok().then_some(file))
}
