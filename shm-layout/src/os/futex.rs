//! Sleeping on words and waking sleepers, across processes.

#![expect(unsafe_code, reason = "futex system calls take raw addresses")]

use std::ptr;

use crate::protocol::primitive::{AtomicU32, Ordering};

/// Sleeps while `word` is `expected`, at most `timeout_ns`. May return early.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as _,
    };
    // SAFETY: the word outlives the call by its borrow, and the timeout is on our stack; the kernel reads both.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
            ptr::null::<u32>(),
            0,
        )
    };
    let error = std::io::Error::last_os_error().raw_os_error();
    if result < 0 && !matches!(error, Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT)) {
        // A sandbox has no futexes at all: no process can wake us, so we check again soon.
        std::thread::sleep(std::time::Duration::from_nanos(timeout_ns.min(BLIND_NS)));
    }
}

/// Wakes up to `count` sleepers. The word may lie in a read-only mapping.
pub(crate) fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: the kernel only takes the address of the word as a name.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            count,
            0,
            0,
            0,
        )
    };
}

#[repr(C)]
struct WaitV {
    value: u64,
    address: u64,
    flags: u32,
    _reserved: u32,
}

const SYS_FUTEX_WAITV: libc::c_long = 449;
const FUTEX2_SIZE_U32: u32 = 2;
/// Longest sleep where not every word can wake us.
const BLIND_NS: u64 = 1_000_000;

/// Sleeps while every word has its expected value, at most `timeout_ns`. May return early. Where the kernel cannot
/// wait on several words (before 5.16), only the first one wakes us and sleeps are short.
pub(crate) fn wait_any<const N: usize>(words: [(&AtomicU32, u32); N], timeout_ns: u64) {
    static MISSING: AtomicU32 = AtomicU32::new(0);
    if MISSING.load(Ordering::Relaxed) == 0 {
        let waiters = words.map(|(word, expected)| WaitV {
            value: u64::from(expected),
            address: word.as_ptr() as u64,
            flags: FUTEX2_SIZE_U32,
            _reserved: 0,
        });
        let mut until = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let ns = until.tv_nsec as u64 + timeout_ns % 1_000_000_000;
        until.tv_sec += (timeout_ns / 1_000_000_000 + ns / 1_000_000_000) as i64;
        until.tv_nsec = (ns % 1_000_000_000) as _;
        // SAFETY: the array names words that outlive the call by their borrows; array and deadline are on our stack.
        let result = unsafe {
            libc::syscall(
                SYS_FUTEX_WAITV,
                waiters.as_ptr(),
                N,
                0,
                &raw const until,
                libc::CLOCK_MONOTONIC,
            )
        };
        let error = std::io::Error::last_os_error().raw_os_error();
        if result >= 0 || matches!(error, Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT)) {
            return;
        }
        // ENOSYS, or a sandbox's own idea of it.
        MISSING.store(1, Ordering::Relaxed);
    }
    if let Some((word, expected)) = words.into_iter().next() {
        wait(word, expected, timeout_ns.min(BLIND_NS));
    }
}
