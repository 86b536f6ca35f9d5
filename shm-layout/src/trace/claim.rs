//! A file name that one process at a time may call its own, for as long as it lives.
//!
//! The claim is a lock on a byte far behind the file's end, held by a mapping (`liveness`): it outlives
//! close-all-fds, ends with the address space, and is not inherited.

use std::{fs::File, io, path::Path};

use rustix::fs::OFlags;

use crate::{
    files::dir,
    os::liveness::{Alive, Bytes, FileId},
};

/// Holds a name until it is dropped, or the process is gone.
pub struct Claim {
    _alive: Alive,
}

impl Claim {
    /// Claims a file, made where it is missing; `None` if another process has it.
    pub fn of(path: &Path) -> io::Result<Option<Claim>> {
        let file = dir::file_of_ours(path, OFlags::RDWR | OFlags::CREATE, 0o666)?;
        let id = FileId::of(&file)?;
        let bytes = Bytes::of(file, id)?;
        if !bytes.try_lock(0)? {
            return Ok(None);
        }
        Ok(Some(Claim {
            _alive: bytes.keep()?,
        }))
    }
}

/// Opens a file of the same kind to overwrite it.
pub fn write(path: &Path) -> io::Result<File> {
    Ok(dir::file_of_ours(
        path,
        OFlags::WRONLY | OFlags::CREATE,
        0o666,
    )?)
}

/// Opens a file of the same kind to add to its end.
pub fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
    Ok(dir::file_of_ours(path, flags, 0o666)?)
}
