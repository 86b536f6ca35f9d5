//! Sleeps on futex words: private ones of this process, and shared ones together with them.
#![allow(unsafe_code, reason = "futex system calls")]

use std::{
    ptr::{null, null_mut},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    time::Duration,
};

const FUTEX2_SIZE_U32: u32 = 2;
const FUTEX2_PRIVATE: u32 = 128;
const SYS_FUTEX_WAITV: libc::c_long = 449;
/// Most words in one sleep: the keeper's three bells, and one for each device whose lock is held.
const WORDS: usize = 24;
/// Longest sleep if not every word can end it.
const BLIND: Duration = Duration::from_millis(1);

/// A word to sleep on, with the value that it must still have.
#[derive(Clone, Copy)]
pub struct Watch<'w> {
    /// The word.
    pub word: &'w AtomicU32,
    /// The value when the word was last read.
    pub seen: u32,
    /// True if only this process writes the word.
    pub private: bool,
}

#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    _reserved: u32,
}

/// Wakes every thread of this process that sleeps on the word.
pub fn wake_private(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE uses only the address.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        )
    };
}

/// Sleeps until one of the words changes, the time is up, or a signal comes. At most [`WORDS`] words are used.
///
/// If the kernel has no `futex_waitv` (before 5.16, or a sandbox forbids it), only the first word is slept on, for at
/// most a millisecond if there are others.
pub fn wait_any(watches: &[Watch<'_>], timeout: Duration) {
    static MISSING: AtomicBool = AtomicBool::new(false);
    let Some(first) = watches.first() else { return };
    if watches.len() == 1 {
        return wait_one(first, timeout);
    }
    if !MISSING.load(Relaxed) {
        let mut waiters = [const {
            Waiter {
                value: 0,
                address: 0,
                flags: 0,
                _reserved: 0,
            }
        }; WORDS];
        let count = watches.len().min(waiters.len());
        for (waiter, watch) in waiters.iter_mut().zip(watches) {
            waiter.value = u64::from(watch.seen);
            waiter.address = watch.word.as_ptr() as u64;
            waiter.flags = FUTEX2_SIZE_U32 | if watch.private { FUTEX2_PRIVATE } else { 0 };
        }
        let deadline = deadline(timeout);
        // SAFETY: the waiters and the deadline outlive the call; the words outlive their watches.
        let result = unsafe {
            libc::syscall(
                SYS_FUTEX_WAITV,
                waiters.as_ptr(),
                count,
                0,
                &raw const deadline,
                libc::CLOCK_MONOTONIC,
            )
        };
        let error = std::io::Error::last_os_error().raw_os_error();
        if result >= 0 || !matches!(error, Some(libc::ENOSYS | libc::EPERM | libc::EINVAL)) {
            return;
        }
        MISSING.store(true, Relaxed);
    }
    wait_one(first, timeout.min(BLIND));
}

fn wait_one(watch: &Watch<'_>, timeout: Duration) {
    let operation = libc::FUTEX_WAIT
        | if watch.private {
            libc::FUTEX_PRIVATE_FLAG
        } else {
            0
        };
    let until = timespec(timeout);
    // SAFETY: the word outlives its watch, the timeout outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            watch.word.as_ptr(),
            operation,
            watch.seen,
            &raw const until,
            null::<u32>(),
            0,
        )
    };
    let error = std::io::Error::last_os_error().raw_os_error();
    if result < 0 && !matches!(error, Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT)) {
        // The sandbox forbids futexes, so nothing can end the sleep, and the caller checks again soon.
        nap(timeout.min(BLIND));
    }
}

fn timespec(time: Duration) -> libc::timespec {
    // SAFETY: all-zero is a valid timespec.
    let mut spec: libc::timespec = unsafe { std::mem::zeroed() };
    spec.tv_sec = time.as_secs().min(1 << 30) as libc::time_t;
    spec.tv_nsec = time.subsec_nanos() as _;
    spec
}

fn deadline(timeout: Duration) -> libc::timespec {
    let mut now = timespec(Duration::ZERO);
    // SAFETY: the result is a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    timespec(now.saturating_add(timeout))
}

/// Sleeps for a time, on no word.
pub fn nap(time: Duration) {
    let time = timespec(time);
    // SAFETY: the time is a local variable; the remainder is not wanted.
    unsafe { libc::nanosleep(&time, null_mut()) };
}
