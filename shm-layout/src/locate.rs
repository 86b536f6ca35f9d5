//! Where the segments are: `$GPUSHARE_DIR`, else the system's `/run/gpushare` if its `state` may be written, else
//! the user's own `/dev/shm/gpushare-UID`.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, access},
    process::geteuid,
};

use crate::{create, error::OpenError};

/// The directory made by `gpushare init`.
pub const SYSTEM_DIR: &str = "/run/gpushare";

/// Whose segments a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One user's own: directory 0700, files 0600.
    User,
    /// Made by root for everybody: `gpushare init`.
    System,
}

/// A directory with segments in it.
#[derive(Clone, Debug)]
pub struct SegmentDir {
    /// The directory.
    pub path: PathBuf,
    /// Whose it is.
    pub mode: Mode,
}

/// The directory for this process; the user's own is created when it is missing.
pub fn locate() -> Result<SegmentDir, OpenError> {
    let dir = choose();
    make(&dir.path)?;
    check(&dir.path)?;
    Ok(dir)
}

/// The directory for this process, creating nothing.
pub fn locate_existing() -> Result<SegmentDir, OpenError> {
    let dir = choose();
    check(&dir.path)?;
    Ok(dir)
}

fn choose() -> SegmentDir {
    if let Some(path) = std::env::var_os("GPUSHARE_DIR").filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        let mode = mode_of(&path);
        return SegmentDir { path, mode };
    }
    let system = Path::new(SYSTEM_DIR);
    if access(system.join("state"), Access::READ_OK | Access::WRITE_OK).is_ok() {
        return SegmentDir {
            path: system.to_path_buf(),
            mode: Mode::System,
        };
    }
    let path = PathBuf::from(format!("/dev/shm/gpushare-{}", geteuid().as_raw()));
    SegmentDir {
        path,
        mode: Mode::User,
    }
}

/// A system installation says so in its header.
pub(crate) fn mode_of(dir: &Path) -> Mode {
    if create::says_system(&dir.join("state")) {
        Mode::System
    } else {
        Mode::User
    }
}

fn make(dir: &Path) -> Result<(), OpenError> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => Err(OpenError::Io {
            path: dir.to_path_buf(),
            op: "create the directory",
            source,
        }),
        _ => Ok(()),
    }
}

/// Refuses a directory that is missing or that somebody else could rearrange under us.
pub(crate) fn check(dir: &Path) -> Result<(), OpenError> {
    let meta = match fs::metadata(dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::Missing {
                path: dir.to_path_buf(),
            });
        }
        Err(source) => {
            return Err(OpenError::Io {
                path: dir.to_path_buf(),
                op: "look at",
                source,
            });
        }
    };
    if !meta.is_dir() {
        let source = io::Error::from(io::ErrorKind::NotADirectory);
        return Err(OpenError::Io {
            path: dir.to_path_buf(),
            op: "use as a directory",
            source,
        });
    }
    check_owner(dir, meta.uid())
}

/// Ours or root's. Root may look at anybody's.
pub(crate) fn check_owner(path: &Path, owner: u32) -> Result<(), OpenError> {
    let us = geteuid().as_raw();
    if owner == us || owner == 0 || us == 0 {
        return Ok(());
    }
    Err(OpenError::WrongOwner {
        path: path.to_path_buf(),
        owner,
        want: us,
    })
}
