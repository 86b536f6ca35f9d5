//! Writes to stderr from a managed process: a write raises no signal, is no cancellation point, and does not block.
#![allow(unsafe_code, reason = "writes past the guest's own buffers")]

use std::{ffi::c_int, io, ptr::null};

use super::signals::{self, Blocked};

/// Signals that a failed write raises besides its error: the pipe has no reader, or the file may not grow.
const RAISED: [(c_int, c_int); 2] = [(libc::EPIPE, libc::SIGPIPE), (libc::EFBIG, libc::SIGXFSZ)];
/// Longest wait for a reader that does not read. Then the line is lost.
const PATIENCE: libc::timespec = libc::timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Writes a line in one call, so that lines of several threads and processes do not mix.
pub fn write(line: &[u8]) {
    // A background process that writes to its terminal is stopped, unless SIGTTOU is blocked.
    let raised = RAISED.map(|(_, signal)| signal);
    let _blocked = Blocked::these(raised.into_iter().chain([libc::SIGTTOU]));
    let before = raised.map(signals::is_pending);
    if !has_room() {
        return;
    }
    // SAFETY: the line is the caller's, and a closed stderr is an error that loses the line.
    let written = unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
    if written >= 0 {
        return;
    }
    let error = io::Error::last_os_error().raw_os_error();
    for ((with, signal), was_pending) in RAISED.into_iter().zip(before) {
        if error == Some(with) && !was_pending {
            signals::discard(signal);
        }
    }
}

/// Waits until a write would not block. A full pipe that no process reads would block the thread forever.
fn has_room() -> bool {
    let mut stderr = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    let mut time = PATIENCE;
    // SAFETY: the record and the time are local variables; no mask is given.
    let found = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            &raw mut stderr,
            1,
            &raw mut time,
            null::<libc::sigset_t>(),
            0,
        )
    };
    // After an error (a sandbox forbids the call) the write is tried.
    found != 0
}
