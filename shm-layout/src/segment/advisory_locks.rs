//! Words among the tools of a machine of many users: bytes that a tool locks on the state that the broker hands out.
//!
//! In one user's directory tools lock files of their own; a broker's directory is root's. The lock belongs to the file
//! description that the tool was handed, so it ends with the last process that has it, however that process ends. A broker that
//! restarts changes nothing if it finds the state again, as it does while a process has a slot. No protocol depends on these
//! bytes: any tenant may hold any of them, and a process waits for one only for a bounded time.

use std::{fs::File, io, path::Path};

use crate::{
    files::{dir::Dir, error::OpenError},
    layout::codec::{key_of, text_words},
    os::liveness::Bytes,
    segment,
};

/// Offset of the first byte, after those of the slots.
const FIRST: usize = 1 << 20;

/// The bytes of one broker's state.
pub struct AdvisoryLocks(Bytes);

impl AdvisoryLocks {
    /// Opens a directory's lock bytes, to hold some or only to query them; `None` where no broker serves the directory.
    pub fn of(dir: &Path, hold: bool) -> Result<Option<AdvisoryLocks>, OpenError> {
        let dir = Dir::open(dir)?;
        if !dir.is_brokered() {
            return Ok(None);
        }
        let state = segment::state_of_broker(dir.path(), hold)?;
        Ok(Some(AdvisoryLocks(Bytes::of_any(state))))
    }

    /// Takes the byte of a name; false if another has it.
    pub fn hold(&self, name: &str) -> io::Result<bool> {
        self.0.try_lock(byte_of(name))
    }

    /// Returns true if another process holds the name's byte.
    pub fn is_held(&self, name: &str) -> bool {
        self.0.is_locked(byte_of(name)).unwrap_or(false)
    }

    /// Returns the file that keeps the locks, for a program to inherit.
    pub fn into_file(self) -> File {
        self.0.into_file()
    }
}

fn byte_of(name: &str) -> usize {
    let mut words = [0; 16];
    text_words(name, &mut words);
    FIRST + (key_of(&words) >> 24) as usize
}
