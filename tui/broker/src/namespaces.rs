//! The namespaces of a process. They show whether it is in a container.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// The namespaces and the root directory, which differ between a container and the machine.
#[derive(PartialEq, Eq)]
pub struct Namespaces {
    /// Inode of the user namespace.
    pub user_ns: u64,
    /// Inode of the pid namespace.
    pub pid_ns: u64,
    root: ((u32, u32), u64),
}

impl Namespaces {
    /// Returns the broker's own namespaces, which never change.
    pub fn ours() -> Option<&'static Namespaces> {
        static OURS: OnceLock<Namespaces> = OnceLock::new();
        OURS.get()
            .or_else(|| Namespaces::of("self").map(|own| OURS.get_or_init(|| own)))
    }

    /// Returns the namespaces of the process with this pid, or of `self`. Returns `None` if it has ended.
    pub fn of(process: &str) -> Option<Self> {
        let at = |name: &str| fs::metadata(format!("/proc/{process}/{name}")).ok();
        // Only cached data is read, because a file system that the process mounted may never answer.
        let path = format!("/proc/{process}/root");
        let root = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
        let device = (root.stx_dev_major, root.stx_dev_minor);
        Some(Self {
            user_ns: at("ns/user")?.ino(),
            pid_ns: at("ns/pid")?.ino(),
            root: (device, root.stx_ino),
        })
    }
}
