//! The process, as the segments know it: its registration, its devices, and what is kept for them.
//!
//! There is none before the first successful `cuInit`, none in a forked child until its own first use of
//! CUDA, and none in a process that runs unmanaged. A managed process, once there, stays until the process ends.
//!
//! What the floors below declare as plain data (the allocations, the turns, the tracer) is put together here; the
//! floors above act on it.
//!
//! The reasons for stepping aside. Each passes the call to the driver untouched; most are counted.
//!
//! A page that a forked child finds empty: the process, the published trace and the gates.
//!
//! The page is marked `MADV_WIPEONFORK`: in a forked child every gate is closed and no process is registered, and no code
//! of ours has to run at the fork.
#![allow(
    unsafe_code,
    reason = "makes the page, and reaches the guest through it"
)]

pub mod attach;
pub mod detach;
pub mod keeper;

use std::{
    mem::size_of,
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
};

use gpushare_abi::types::CUdevice;
use shm_layout::{
    Counters, DEVICES_PER_PROCESS, Entry, Ledger, Registration, environment::Environment,
};

use crate::{
    eviction::state::EvictionState,
    gate::Gate,
    sys::futex,
    trace::state::{Trace, Tracer},
    tracking::Tracking,
    turn::state::Turn,
};

/// One device as this process sees it.
pub struct Device {
    /// The driver's ordinal.
    pub ordinal: u8,
    /// Our entry for it in the segment.
    pub entry: Entry,
    /// Our account of its memory.
    pub ledger: Ledger<'static>,
    /// What it is known by.
    pub uuid: [u8; 16],
    /// [`shm_layout::DEVICE_MIG`] and the like.
    pub flags: u32,
    /// All its memory, as the driver says.
    pub total_bytes: u64,
    /// The right to submit to it.
    pub turn: Turn,
}

/// A registered process.
pub struct ManagedProcess {
    /// Our slot.
    pub registration: &'static Registration,
    /// The devices the driver shows us, by ordinal; never more than a slot has room for.
    pub devices: Vec<Device>,
    /// What the launch environment asks for.
    pub environment: Environment,
    /// What the memory side keeps.
    pub memory: Tracking,
    /// Where its memory is.
    pub eviction: EvictionState,
    /// What is traced.
    pub tracer: Tracer,
    /// Wakes the keeper: bump, then futex wake.
    pub doorbell: AtomicU32,
    /// The process is ending: nothing is locked any more.
    pub leaving: AtomicBool,
    /// The keeper has seen `leaving`.
    pub keeper_gone: AtomicU32,
    /// The process that registered: a forked child does not give its parent's slot back, whatever the kernel wiped.
    pub pid: u32,
    /// Control generation whose rules the turns follow.
    pub applied: AtomicU64,
    /// In a forked child, the parent's: in reach of leak checkers.
    pub earlier: AtomicPtr<ManagedProcess>,
}

impl ManagedProcess {
    /// The device of an ordinal.
    pub fn device(&self, ordinal: CUdevice) -> Option<&Device> {
        self.devices.get(usize::try_from(ordinal).ok()?)
    }

    /// Our slot.
    pub fn registration(&self) -> &Registration {
        self.registration
    }

    /// Counts something that belongs to no device in particular, on the first one.
    pub fn count_all(&self, which: impl Fn(&Counters) -> &AtomicU64) {
        if let Some(device) = self.devices.first() {
            which(self.registration.count(device.entry)).fetch_add(1, Relaxed);
        }
    }

    /// Wakes the keeper.
    pub fn ring(&self) {
        self.doorbell.fetch_add(1, Relaxed);
        futex::wake_private(&self.doorbell);
    }

    /// Whether the process is ending.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }
}

/// A hook panicked: the process has its answer all the same.
#[cold]
pub fn fault() {
    if let Some(process) = current() {
        process.count_all(|counters| &counters.faults);
    }
}

/// Why a call was not managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// `GPUSHARE_DISABLE` is set, the segments could not be opened, or every slot is taken.
    Unmanaged,
    /// The call came from within a hook, or from the driver itself.
    Reentrant,
    /// The process is ending.
    Leaving,
    /// The process is evicted: the call waits until it is back.
    Evicted,
    /// No context is current: the driver will say so itself.
    NoContext,
    /// The device has no entry in our slot.
    UnknownDevice,
    /// The stream is capturing: the graph's launch is what counts.
    Capturing,
    /// A launch on several devices lost the lock of one of them each time it had waited for the next.
    Crowded,
}

/// What a forked child must not inherit.
#[repr(C)]
pub struct Page {
    /// How far the registration of this process has come.
    pub attachment: AtomicU32,
    /// Set once registration succeeded.
    pub process: AtomicPtr<ManagedProcess>,
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

/// The managed process; `None` where this process is none.
#[inline(always)]
pub fn current() -> Option<&'static ManagedProcess> {
    // ORDER: pairs with the Release in `attach`; the process is whole.
    let process = page()?.process.load(Acquire);
    // SAFETY: NULL or a managed process, which is never freed.
    unsafe { process.as_ref() }
}

/// The process had a memory limit, and has lost the segments that kept it.
static LIMIT_LOST: AtomicBool = AtomicBool::new(false);

/// From here on what no account is there for is refused.
fn lose_limit() {
    LIMIT_LOST.store(true, Relaxed);
}

/// Whether a memory limit of this process was lost while it ran.
pub fn is_limit_lost() -> bool {
    LIMIT_LOST.load(Relaxed)
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
