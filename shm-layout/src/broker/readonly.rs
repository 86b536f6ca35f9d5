//! A directory through a mount of our own that cannot be written: a descriptor opened through it cannot be opened again for
//! writing by any tenant, root in a container without a user namespace included (`EROFS`).
//!
//! `F_SEAL_FUTURE_WRITE` would bar that too, and with it the next broker.

#![expect(unsafe_code, reason = "two system calls that rustix does not know")]

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use rustix::fs::{Mode, OFlags, openat};

// The kernel's ABI (linux/mount.h).
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const MOUNT_ATTR_NODEV: u64 = 4;
const MOUNT_ATTR_NOEXEC: u64 = 8;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// A detached read-only mount.
#[derive(Debug)]
pub(crate) struct ReadOnly(OwnedFd);

impl ReadOnly {
    /// Makes a read-only mount of a directory. Fails where the kernel (before 5.12) or a sandbox does not allow it.
    pub(crate) fn of(dir: BorrowedFd<'_>) -> io::Result<ReadOnly> {
        let flags =
            OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint | libc::AT_EMPTY_PATH as libc::c_uint;
        // SAFETY: takes a descriptor that is open by the borrow, an empty C string and numbers.
        let fd =
            unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), c"".as_ptr(), flags) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel made this descriptor for us just now.
        let tree = unsafe { OwnedFd::from_raw_fd(fd) };
        let attributes = MountAttr {
            set: MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
            clear: 0,
            propagation: 0,
            userns: 0,
        };
        // SAFETY: the attributes are ours and as long as we say.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                size_of::<MountAttr>(),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ReadOnly(tree))
    }

    /// A description of a file in it.
    pub(crate) fn open(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(File::from(openat(&self.0, name, flags, Mode::empty())?))
    }
}
