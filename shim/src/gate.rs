//! The gates that submissions look at, on a page that a forked child finds empty.
//!
//! One word per device: open means "submit, the lock is ours or nobody asks for one". A closed gate
//! sends the submission to the slow path, which finds out what is wanted. The page is marked
//! `MADV_WIPEONFORK`: in a forked child every gate is closed and no guest is registered, without anyone
//! having been told of the fork.
#![allow(unsafe_code, reason = "makes the page")]

pub mod bargain;

use std::{
    mem::size_of,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::*},
};

use shm_layout::DEVICES_PER_PROCESS;

use crate::{
    guest::Guest,
    trace::{self, Trace},
};

pub use bargain::{CLOSED, OPEN};

/// One gate. Written by the holder of its turn's lock.
pub struct Gate(AtomicU32);

impl Gate {
    /// Whether it lets submissions through on the fast road.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        bargain::is_open(&self.0)
    }

    /// Whether it lets submissions through, traced or not.
    pub fn is_passable(&self) -> bool {
        bargain::is_passable(&self.0)
    }

    /// Lets submissions through; while a trace is on, on the road where they are timed.
    pub fn open(&self) {
        bargain::open(&self.0, trace::is_on());
    }

    /// Sends submissions to the slow path. Only after [`barrier`](crate::barrier::heavy) is it certain that
    /// every thread has seen it.
    pub fn close(&self) {
        bargain::close(&self.0);
    }
}

/// What a forked child must not inherit.
#[repr(C)]
pub struct Page {
    /// How far the registration of this process has come.
    pub arrival: AtomicU32,
    /// Set once registration succeeded.
    pub guest: AtomicPtr<Guest>,
    /// Where calls are written down, while somebody wants it.
    pub trace: AtomicPtr<Trace>,
    /// The devices' gates, by ordinal.
    pub gates: [Gate; DEVICES_PER_PROCESS],
    /// The gate of a process that runs unmanaged.
    pub unmanaged: Gate,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(null_mut());
static ALWAYS_CLOSED: Gate = Gate(AtomicU32::new(CLOSED));

/// The page, if this process has made it.
#[inline(always)]
pub fn page() -> Option<&'static Page> {
    // ORDER: pairs with the Release in `make`; the page is mapped.
    let page = PAGE.load(Acquire);
    // SAFETY: NULL or a mapping that is never unmapped; all-zero is a valid page.
    unsafe { page.as_ref() }
}

/// The gate of a device ordinal, if there is one.
pub fn of(ordinal: u8) -> Option<&'static Gate> {
    page()?.gates.get(usize::from(ordinal))
}

/// The gate of a thread whose device is not known.
pub fn always_closed() -> &'static Gate {
    &ALWAYS_CLOSED
}

/// The page, made at need; `None` when the system has no memory for it.
pub fn make() -> Option<&'static Page> {
    if let Some(page) = page() {
        return Some(page);
    }
    // SAFETY: an anonymous mapping at an address of the kernel's choice.
    let mapped = unsafe {
        libc::mmap(
            null_mut(),
            size_of::<Page>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is ours. A kernel without it (before 4.14) leaves a forked child counting for its parent
    // until the child starts another program.
    unsafe { libc::madvise(mapped, size_of::<Page>(), libc::MADV_WIPEONFORK) };
    // ORDER: pairs with the Acquire in `page`; publishes the mapping.
    match PAGE.compare_exchange(null_mut(), mapped.cast(), AcqRel, Acquire) {
        Ok(_) => {}
        Err(_) => {
            // SAFETY: somebody was quicker; this mapping was shown to nobody.
            unsafe { libc::munmap(mapped, size_of::<Page>()) };
        }
    }
    page()
}
