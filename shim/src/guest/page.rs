//! A page that a forked child finds empty: the guest, the published trace and the gates.
//!
//! The page is marked `MADV_WIPEONFORK`: in a forked child every gate is closed and no guest is registered, and no code
//! of ours has to run at the fork.
#![allow(
    unsafe_code,
    reason = "makes the page, and reaches the guest through it"
)]

use std::{
    mem::size_of,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::*},
};

use shm_layout::DEVICES_PER_PROCESS;

use super::Guest;
use crate::{gate::Gate, tracer::state::Trace};

/// What a forked child must not inherit.
#[repr(C)]
pub struct Page {
    /// How far the registration of this process has come.
    pub arrival: AtomicU32,
    /// Set once registration succeeded.
    pub guest: AtomicPtr<Guest>,
    /// Where calls are written down, while a trace is on.
    pub trace: AtomicPtr<Trace>,
    /// The devices' gates, by ordinal.
    pub gates: [Gate; DEVICES_PER_PROCESS],
    /// The gate of a process that runs unmanaged.
    pub unmanaged: Gate,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(null_mut());

/// The page, if this process has made it.
#[inline(always)]
pub fn page() -> Option<&'static Page> {
    // ORDER: pairs with the Release in `make`; the page is mapped.
    let page = PAGE.load(Acquire);
    // SAFETY: NULL or a mapping that is never unmapped; all-zero is a valid page.
    unsafe { page.as_ref() }
}

/// The guest, if this process is one.
#[inline(always)]
pub fn guest() -> Option<&'static Guest> {
    // ORDER: pairs with the Release in `life`; the guest is whole.
    let guest = page()?.guest.load(Acquire);
    // SAFETY: NULL or a guest, which is never freed.
    unsafe { guest.as_ref() }
}

/// The gate of a device ordinal, if there is one.
pub fn gate_of(ordinal: u8) -> Option<&'static Gate> {
    page()?.gates.get(usize::from(ordinal))
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
            // SAFETY: another thread was quicker; this mapping was shown to none.
            unsafe { libc::munmap(mapped, size_of::<Page>()) };
        }
    }
    page()
}
