//! Stderr, as a managed process may use it: a write raises no signal, is no point of cancellation, and ends.
#![allow(unsafe_code, reason = "writes past the guest's own buffers")]

use std::{ffi::c_int, io, ptr::null};

use super::signals::{self, Blocked};

/// What a failed write raises besides its error: nobody reads the pipe; the file may not grow.
const RAISED: [(c_int, c_int); 2] = [(libc::EPIPE, libc::SIGPIPE), (libc::EFBIG, libc::SIGXFSZ)];
/// How long a reader that does not read is waited for. Then the line is lost.
const PATIENCE: libc::timespec = libc::timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Writes a line in one piece, so that lines of several threads and processes do not mix.
pub fn write(line: &[u8]) {
    // A process in the background that writes to its terminal is stopped, unless SIGTTOU is blocked.
    let raised = RAISED.map(|(_, signal)| signal);
    let _blocked = Blocked::these(raised.into_iter().chain([libc::SIGTTOU]));
    let before = raised.map(signals::is_pending);
    if !has_room() {
        return;
    }
    // SAFETY: the line is the caller's, and a closed stderr is an error that costs the line.
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

/// Waits until a write would not. A full pipe that no process reads would hold the thread for ever.
fn has_room() -> bool {
    let mut stderr = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    let mut time = PATIENCE;
    // SAFETY: the record and the time are ours; no mask is given.
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
    // An error is no answer: a sandbox forbids the question.
    found != 0
}
