//! A stretch of our code in which the guest's thread is not cancelled, and not watched by a [sanitizer](super::sanitizer).
//!
//! `pthread_cancel` ends a thread at its next blocking libc call by unwinding its stack. That may be the driver's call,
//! or ours: an unwinding that passes through Rust's frames ends the process, or leaves a lock taken. So where
//! we wait, or wait for the driver, the cancellation waits too; it comes true at the guest's own next chance.
#![allow(unsafe_code, reason = "libc keeps the state")]

use std::ffi::c_int;

use super::sanitizer::Unwatched;

const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Until it is dropped.
pub struct Uncancelled {
    before: c_int,
    _unwatched: Unwatched,
}

impl Uncancelled {
    /// From here on.
    pub fn enter() -> Self {
        let mut before = 0;
        // SAFETY: the place is ours.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self {
            before,
            _unwatched: Unwatched::enter(),
        }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = 0;
        // SAFETY: the place is ours; the state is what it was.
        unsafe { pthread_setcancelstate(self.before, &mut ours) };
    }
}
