//! Location of the segments: `$GPUSHARE_DIR`, else the machine's `/run/gpushare` if it has a broker whose socket this user may
//! write, else the user's own `/dev/shm/gpushare-UID`. `$XDG_RUNTIME_DIR` is not used: cron and batch systems lack it, and it
//! is removed at the last logout, so one user's programs would not share segments. [`Dir`] checks the directory that is found.

use std::path::{Path, PathBuf};

use rustix::{
    fs::{Access, access},
    process::geteuid,
};

pub use crate::files::dir::SYSTEM_DIR;
use crate::files::{
    dir::{Dir, SOCKET},
    error::OpenError,
};

/// A directory with segments in it.
#[derive(Clone, Debug)]
pub struct SegmentDir {
    /// The directory.
    pub path: PathBuf,
    /// True if a broker serves the directory, and false if the segments are one user's.
    pub is_brokered: bool,
}

/// The directory for this process; the user's own is created when it is missing.
pub fn locate() -> Result<SegmentDir, OpenError> {
    Dir::open_or_make(&choose()).map(SegmentDir::of)
}

/// The directory for this process, creating nothing.
pub fn locate_existing() -> Result<SegmentDir, OpenError> {
    Dir::open(&choose()).map(SegmentDir::of)
}

impl SegmentDir {
    fn of(dir: Dir) -> SegmentDir {
        SegmentDir {
            path: dir.path().to_path_buf(),
            is_brokered: dir.is_brokered(),
        }
    }

    /// Returns this directory. One that is missing or refused counts as a user's own.
    pub fn at(path: &Path) -> SegmentDir {
        Dir::open(path).map_or_else(
            |_| SegmentDir {
                path: path.to_path_buf(),
                is_brokered: false,
            },
            SegmentDir::of,
        )
    }
}

fn choose() -> PathBuf {
    if let Some(path) = std::env::var_os("GPUSHARE_DIR").filter(|path| !path.is_empty()) {
        return path.into();
    }
    let system = Path::new(SYSTEM_DIR);
    if access(system.join(SOCKET), Access::WRITE_OK).is_ok() {
        return system.to_path_buf();
    }
    own()
}

/// The user's own directory, whether the machine has a broker or not.
pub(crate) fn own() -> PathBuf {
    format!("/dev/shm/gpushare-{}", geteuid().as_raw()).into()
}
