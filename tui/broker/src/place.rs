//! Where a process is: on the machine, or in a container.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// What tells a container from the machine.
#[derive(PartialEq, Eq)]
pub struct Place {
    /// The inode of its user namespace.
    pub user_ns: u64,
    /// The inode of its pid namespace.
    pub pid_ns: u64,
    root: ((u32, u32), u64),
}

impl Place {
    /// The broker's own, which it does not leave.
    pub fn ours() -> Option<&'static Place> {
        static OURS: OnceLock<Place> = OnceLock::new();
        OURS.get()
            .or_else(|| Place::of("self").map(|place| OURS.get_or_init(|| place)))
    }

    /// A process's, or `self`. `None` where it is gone.
    pub fn of(process: &str) -> Option<Self> {
        let at = |name: &str| fs::metadata(format!("/proc/{process}/{name}")).ok();
        // By what the kernel knows already: a file system of the process's own need not answer.
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
