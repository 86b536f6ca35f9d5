//! Location of the segments: `$GPUSHARE_DIR`, else the machine's `/run/gpushare` if it has a broker whose socket this user may
//! write, else the user's own `/dev/shm/gpushare-UID`. `$XDG_RUNTIME_DIR` is not used: cron and batch systems lack it, and it
//! is removed at the last logout, so one user's programs would not share segments. [`Dir`] checks the directory that is found.
//!
//! A user's programs put *shared files* beside the segments: in the same directory, or, where a broker serves many users, in one
//! per user. A tenant could truncate a file that it may write while another process has it mapped. So each user's processes map
//! only that user's files, and the broker maps none.

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
        // The process may change its working directory later.
        return std::path::absolute(&path).unwrap_or_else(|_| path.into());
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

/// In a user's own directory, the part that does not belong to its segments.
const OF_THE_MACHINE: &str = "machine";

/// Opens the directory of the shared files for the segments in `dir`.
pub fn open_shared(dir: &Path) -> Result<Dir, OpenError> {
    look_beside(dir, |own| Dir::open(own)?.inner(OF_THE_MACHINE))
}

/// Opens the directory of the shared files, and makes it if it is missing.
pub fn open_or_make_shared(dir: &Path) -> Result<Dir, OpenError> {
    look_beside(dir, |own| {
        Dir::open_or_make(own)?.inner_private(OF_THE_MACHINE)
    })
}

fn look_beside(
    dir: &Path,
    of_user: impl Fn(&Path) -> Result<Dir, OpenError>,
) -> Result<Dir, OpenError> {
    let beside = Dir::open(dir)?;
    match beside.is_brokered() {
        true => of_user(&own()),
        false => Ok(beside),
    }
}

/// Returns the path of the directory of the shared files.
pub fn shared_path(dir: &Path) -> PathBuf {
    match Dir::open(dir).is_ok_and(|dir| dir.is_brokered()) {
        true => own().join(OF_THE_MACHINE),
        false => dir.to_path_buf(),
    }
}
