//! A private `/run` for a test, so that a broker of this machine does not influence it.

#![allow(unsafe_code, reason = "a thread leaves the mounts of its process")]

use std::process::Command;

use rustix::process::geteuid;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread, and the threads and programs that it starts, an empty `/run`. Returns false without root.
pub fn own_run() -> bool {
    const MOUNT: &str = "mount --make-rprivate / && mount -t tmpfs none /run";
    if !geteuid().is_root() {
        return false;
    }
    // SAFETY: the table of descriptors stays shared; only the mounts, and with them this thread's working directory, become
    // private.
    let apart = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    let mount = || Command::new("sh").args(["-c", MOUNT]).status();
    apart.is_ok() && mount().is_ok_and(|status| status.success())
}
