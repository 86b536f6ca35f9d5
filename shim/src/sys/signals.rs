//! Blocked signals of the calling thread, without a handler.
#![allow(unsafe_code, reason = "libc keeps the mask")]

use std::{
    ffi::c_int,
    mem::zeroed,
    ptr::{null, null_mut},
};

/// Size of a signal set in the kernel, in bytes; libc's sets are longer.
const KERNEL_BYTES: usize = 8;

/// A scope in which signals are blocked for the calling thread.
pub struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    /// Blocks every signal.
    pub fn every() -> Self {
        let mut set = empty();
        // SAFETY: the set is a local variable.
        unsafe { libc::sigfillset(&mut set) };
        Self::set(&set)
    }

    /// Blocks these signals besides those that are already blocked.
    pub fn these(signals: impl IntoIterator<Item = c_int>) -> Self {
        Self::set(&set_of(signals))
    }

    fn set(set: &libc::sigset_t) -> Self {
        let mut before = empty();
        // SAFETY: both sets are local variables.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, &mut before) };
        Self { before }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: restores the previous mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, null_mut()) };
    }
}

/// Returns true if the calling thread runs a signal handler on the stack that it has set aside for them.
pub fn on_own_stack() -> bool {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut stack: libc::stack_t = unsafe { zeroed() };
    // SAFETY: the result is a local variable, and nothing is set.
    unsafe { libc::sigaltstack(null(), &mut stack) };
    stack.ss_flags & libc::SS_ONSTACK != 0
}

/// Returns true if a blocked signal is pending for the calling thread or for the process.
pub fn is_pending(signal: c_int) -> bool {
    let mut pending = empty();
    // SAFETY: the set is a local variable.
    let answer = unsafe { libc::sigpending(&mut pending) };
    // SAFETY: the set is a local variable.
    answer == 0 && unsafe { libc::sigismember(&pending, signal) } == 1
}

/// Discards a pending blocked signal, first one that was sent to the thread.
pub fn discard(signal: c_int) {
    let set = set_of([signal]);
    // SAFETY: all-zero is a valid time: no wait.
    let now: libc::timespec = unsafe { zeroed() };
    // SAFETY: the set and the time are local variables; the sender is not wanted.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            &raw const set,
            null_mut::<libc::siginfo_t>(),
            &raw const now,
            KERNEL_BYTES,
        )
    };
}

fn set_of(signals: impl IntoIterator<Item = c_int>) -> libc::sigset_t {
    let mut set = empty();
    for signal in signals {
        // SAFETY: the set is a local variable.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}

fn empty() -> libc::sigset_t {
    // SAFETY: all-zero is a valid set without signals.
    unsafe { zeroed() }
}
