//! Large allocations of host memory, with huge pages if the kernel has them, populated by several threads, and not
//! copied by `fork`.
#![allow(unsafe_code, reason = "maps memory and touches it")]

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
    time::Duration,
};

use super::{
    futex::{self, Watch},
    own_thread,
};

/// Alignment of the addresses, in bytes.
pub const LARGE: u64 = 2 << 20;
/// Bytes that a thread populates at a time.
const STRIDE: u64 = 8 << 20;
/// Most helper threads besides the caller.
const HELPERS: usize = 7;

/// Returns the address of `bytes` zero bytes; `None` if there is not enough memory. Only one thread may call it at a
/// time.
pub fn take(bytes: u64) -> Option<u64> {
    let room = usize::try_from(bytes.checked_add(LARGE)?).ok()?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let mapped = unsafe { libc::mmap(null_mut(), room, access, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let start = (mapped as u64).next_multiple_of(LARGE);
    give_back(mapped as u64, start - mapped as u64);
    let end = start + bytes;
    give_back(end, mapped as u64 + room as u64 - end);
    for advice in [
        libc::MADV_HUGEPAGE,
        libc::MADV_DONTFORK,
        libc::MADV_DONTDUMP,
    ] {
        // SAFETY: a mapping of this function; a kernel without this advice refuses it.
        unsafe { libc::madvise(start as *mut c_void, bytes as usize, advice) };
    }
    if touch(start, bytes) {
        return Some(start);
    }
    give_back(start, bytes);
    None
}

/// Unmaps memory that is no longer used.
pub fn give_back(start: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: part of a mapping from `take`, which the caller gives up.
        unsafe { libc::munmap(start as *mut c_void, bytes as usize) };
    }
}

/// The next address to be populated, and the end.
static NEXT: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
/// Number of helpers that run.
static RUNNING: AtomicU32 = AtomicU32::new(0);
static FAILED: AtomicBool = AtomicBool::new(false);

fn touch(start: u64, bytes: u64) -> bool {
    FAILED.store(false, Relaxed);
    END.store(start + bytes, Relaxed);
    NEXT.store(start, Relaxed);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let strides = bytes.div_ceil(STRIDE) as usize;
    for _ in 1..cores.min(strides).min(HELPERS + 1) {
        RUNNING.fetch_add(1, Relaxed);
        if !own_thread::start(&RUNNING, body) {
            RUNNING.fetch_sub(1, Relaxed);
            break;
        }
    }
    work();
    loop {
        // ORDER: Acquire pairs with the Release in `body`; the helpers' writes are visible.
        let running = RUNNING.load(Acquire);
        if running == 0 {
            return !FAILED.load(Relaxed);
        }
        let watch = Watch {
            word: &RUNNING,
            seen: running,
            private: true,
        };
        futex::wait_any(&[watch], Duration::from_millis(10));
    }
}

extern "C" fn body(_: *mut c_void) -> *mut c_void {
    let _unwatched = own_thread::begin(c"gpushare-pages");
    work();
    // ORDER: Release publishes the writes.
    RUNNING.fetch_sub(1, Release);
    futex::wake_private(&RUNNING);
    null_mut()
}

fn work() {
    let end = END.load(Relaxed);
    while !FAILED.load(Relaxed) {
        let at = NEXT.fetch_add(STRIDE, Relaxed);
        if at >= end {
            return;
        }
        if !populate(at, STRIDE.min(end - at)) {
            FAILED.store(true, Relaxed);
        }
    }
}

fn populate(start: u64, bytes: u64) -> bool {
    const MADV_POPULATE_WRITE: i32 = 23;
    const PAGE: usize = 4096;
    // SAFETY: a mapping of this module, which is not in use yet.
    if unsafe { libc::madvise(start as *mut c_void, bytes as usize, MADV_POPULATE_WRITE) } == 0 {
        return true;
    }
    if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
        return false;
    }
    // For kernels before 5.14.
    for at in (start as usize..(start + bytes) as usize).step_by(PAGE) {
        // SAFETY: a mapping of this module, which is not in use yet.
        unsafe { (at as *mut u8).write_volatile(0) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_there_aligned_and_goes_again() {
        for bytes in [LARGE, 5 * STRIDE + LARGE] {
            let start = take(bytes).expect("so little");
            assert!(start.is_multiple_of(LARGE));
            for at in [start, start + bytes - 8] {
                // SAFETY: within the memory that was just allocated.
                unsafe { (at as *mut u64).write(at) };
            }
            give_back(start, bytes);
        }
        assert_eq!(take(u64::MAX), None);
        assert_eq!(take(1 << 60), None);
    }
}
