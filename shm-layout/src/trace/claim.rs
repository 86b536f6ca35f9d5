//! A file name that one process at a time may call its own, for as long as it lives.
//!
//! The claim is a lock on a byte far behind the file's end, held by a mapping ([`liveness`](crate::liveness)): it outlives
//! close-all-fds, ends with the address space, and is not inherited.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path};

use crate::liveness::{Alive, Bytes, FileId};

/// Holds a name until it is dropped, or the process is gone.
pub struct Claim {
    _alive: Alive,
}

impl Claim {
    /// Claims a file, made where it is missing; `None` if another process has it.
    pub fn of(path: &Path) -> io::Result<Option<Claim>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let bytes = Bytes::open(path, FileId::of(&file)?, true)?;
        if !bytes.try_lock(0)? {
            return Ok(None);
        }
        Ok(Some(Claim {
            _alive: bytes.keep()?,
        }))
    }
}
