//! The managed process: its registration in the segments, its devices and which of them a call uses, and the state
//! kept for them.
//!
//! There is none before the first successful `cuInit`, none in a forked child until its own first use of CUDA, and
//! none in a process that runs unmanaged. A managed process exists until the process ends.
//!
//! The lower layers declare plain data (allocations, turns, tracer). The process contains it, and the higher layers
//! change it.
//!
//! A bypass is the reason why a call was not managed. The call goes to the driver unchanged; most bypasses are
//! counted.
//!
//! A page that is empty in a forked child contains the process, the published trace, the gates and the channel groups. It is marked
//! `MADV_WIPEONFORK`: in a forked child every gate is closed and no process is registered, and the shim needs no code
//! at the fork.
#![allow(
    unsafe_code,
    reason = "makes the page, and reaches the guest through it"
)]

pub mod attach;
pub mod detach;
pub mod keeper;
mod script;

use std::{
    mem::size_of,
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
};

use gpushare_abi::types::{CU_STREAM_PER_THREAD, CUcontext, CUdevice, CUstream};
use shm_layout::{
    Counters, DEVICES_PER_PROCESS, Entry, Ledger, Registration, environment::Environment,
};

use crate::{
    channel_groups::ChannelGroups,
    driver_query::context,
    eviction::state::EvictionState,
    gate::Gate,
    sys::futex,
    thread::{Thread, Used},
    trace::state::{Trace, Tracer},
    tracking::Tracking,
    turn::state::Turn,
};

/// A device as seen by this process.
pub struct Device {
    /// The driver's ordinal.
    pub ordinal: u8,
    /// The device's entry in the segment.
    pub entry: Entry,
    /// The account of this process's memory on the device.
    pub ledger: Ledger<'static>,
    /// The device's UUID.
    pub uuid: [u8; 16],
    /// Flags of the device, such as [`shm_layout::DEVICE_MIG`].
    pub flags: u32,
    /// The device's total memory in bytes, as the driver reports it.
    pub total_bytes: u64,
    /// The process sees the device's memory as if it were alone. The keeper writes it.
    pub sees_alone: AtomicBool,
    /// The time before which allocations do not wait for [headroom](Ledger::headroom), because nobody made any, in nanoseconds.
    pub no_headroom_ns: AtomicU64,
    /// The turn of this process on the device.
    pub turn: Turn,
}

/// A registered process.
pub struct ManagedProcess {
    /// The registration, which owns the process's slot.
    pub registration: &'static Registration,
    /// The devices that the driver shows, by ordinal; at most as many as a slot has room for.
    pub devices: Vec<Device>,
    /// The settings from the launch environment.
    pub environment: Environment,
    /// The tracking of its memory.
    pub memory: Tracking,
    /// The state of its eviction.
    pub eviction: EvictionState,
    /// The state of its trace.
    pub tracer: Tracer,
    /// Wakes the keeper: incremented, then a futex wake.
    pub doorbell: AtomicU32,
    /// The process ends: nothing is locked any more.
    pub leaving: AtomicBool,
    /// The keeper has ended.
    pub keeper_gone: AtomicU32,
    /// The process that registered. A forked child does not release its parent's slot, even if the kernel did not
    /// wipe the page.
    pub pid: u32,
    /// The control generation whose rules the turns follow.
    pub applied: AtomicU64,
    /// In a forked child, the parent's managed process, so that leak checkers find it.
    pub earlier: AtomicPtr<ManagedProcess>,
}

impl ManagedProcess {
    /// Returns the device of an ordinal.
    pub fn device(&self, ordinal: CUdevice) -> Option<&Device> {
        self.devices.get(usize::try_from(ordinal).ok()?)
    }

    /// Returns the registration.
    pub fn registration(&self) -> &Registration {
        self.registration
    }

    /// Increments a counter that belongs to no particular device, on the first one.
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

    /// Returns true if the process ends.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }
}

/// The device that a thread, a stream or a context uses. A process with one device needs no query. In others a thread is
/// bound to its device until a hook records that its context may have changed; then the driver is queried.
impl ManagedProcess {
    /// Returns the ordinal of the calling thread's current device; `None` if no context is current.
    pub fn current_ordinal(&self) -> Option<CUdevice> {
        if self.devices.len() == 1 {
            return Some(0);
        }
        context::device_of_current()
    }

    /// Returns the device of the calling thread's current context.
    pub fn current_device(&self) -> Option<&Device> {
        self.device(self.current_ordinal()?)
    }

    /// Returns the calling thread's context and device: those it is bound to, or else those that the driver reports.
    #[inline(always)]
    pub fn home_of_thread(&self, thread: &Thread) -> Option<(usize, u8)> {
        match thread.bound() {
            Some(of_thread) => Some(of_thread),
            None => self.bind_thread(thread).ok(),
        }
    }

    /// Queries the driver for the calling thread's context and device, and binds the thread to them.
    #[cold]
    #[inline(never)]
    pub fn bind_thread(&self, thread: &Thread) -> Result<(usize, u8), Bypass> {
        let context = context::current();
        if context == 0 {
            return Err(Bypass::NoContext);
        }
        let ordinal = match self.devices.len() {
            1 => 0,
            _ => context::device_of_current().ok_or(Bypass::NoContext)?,
        };
        let ordinal = u8::try_from(ordinal).map_err(|_| Bypass::UnknownDevice)?;
        let gate = gate_of(ordinal).ok_or(Bypass::UnknownDevice)?;
        thread.bind(gate, ordinal, context);
        Ok((context, ordinal))
    }

    /// Returns the context and device of a stream that has a handle of its own, as the driver reports them.
    pub fn use_of_stream(&self, key: usize) -> Option<Used> {
        if key <= CU_STREAM_PER_THREAD as usize {
            return None;
        }
        let context = context::of_stream(key as CUstream)?;
        Some(Used {
            stream: key,
            context: context as usize,
            ordinal: u8::try_from(self.ordinal_of(context)?).ok()?,
        })
    }

    /// Returns the context and the device of a stream that has a handle of its own. One query suffices if it is in the
    /// calling thread's context.
    pub fn home_of_stream(&self, thread: &Thread, stream: usize) -> Option<(usize, CUdevice)> {
        if stream <= CU_STREAM_PER_THREAD as usize {
            return None;
        }
        let context = context::of_stream(stream as CUstream)?;
        let ordinal = match self.home_of_thread(thread) {
            Some((here, ordinal)) if here == context as usize => ordinal.into(),
            _ => self.ordinal_of(context)?,
        };
        Some((context as usize, ordinal))
    }

    /// Returns the context of a stream, for default streams the calling thread's; 0 if there is none.
    pub fn context_of_stream(&self, thread: &Thread, stream: usize) -> usize {
        self.use_by_thread(thread, stream)
            .map_or(0, |used| used.context)
    }

    /// Returns a stream with its context and device, for default streams the calling thread's.
    pub fn use_by_thread(&self, thread: &Thread, stream: usize) -> Option<Used> {
        let (context, ordinal) = match self.home_of_stream(thread, stream) {
            Some((context, ordinal)) => (context, u8::try_from(ordinal).ok()?),
            None => self.home_of_thread(thread)?,
        };
        Some(Used {
            stream,
            context,
            ordinal,
        })
    }

    /// Returns the device of a context, which need not be current.
    pub fn ordinal_of(&self, ctx: CUcontext) -> Option<CUdevice> {
        if self.devices.len() == 1 {
            return Some(0);
        }
        let mut ordinal = None;
        context::with_current(ctx as usize, || ordinal = context::device_of_current());
        ordinal
    }
}

/// Counts a panic in a hook. The call returns its result all the same.
#[cold]
pub fn fault() {
    if let Some(process) = current() {
        process.count_all(|counters| &counters.faults);
    }
}

/// The reason why a call was not managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// `GPUSHARE_DISABLE` is set, the segments could not be opened, or every slot is taken.
    Unmanaged,
    /// The call came from within a hook, or from the driver itself.
    Reentrant,
    /// The process ends.
    Leaving,
    /// The process is evicted: the call waits until it is restored.
    Evicted,
    /// No context is current, and the stream has no handle that names one: the driver returns the error itself.
    NoContext,
    /// The device has no entry in the slot.
    UnknownDevice,
    /// The stream is capturing: only the launch of the graph is managed.
    Capturing,
    /// A launch on several devices lost one lock each time while it waited for the next.
    Crowded,
}

/// The data that a forked child must not inherit.
#[repr(C)]
pub struct Page {
    /// The state of the attachment of this process.
    pub attachment: AtomicU32,
    /// The managed process, set once registration has succeeded.
    pub process: AtomicPtr<ManagedProcess>,
    /// The trace to which calls are written, while one is on.
    pub trace: AtomicPtr<Trace>,
    /// The devices' gates, by ordinal.
    pub gates: [Gate; DEVICES_PER_PROCESS],
    /// The gate of a process that runs unmanaged.
    pub unmanaged: Gate,
    /// The channel groups that the driver made for this process.
    pub channel_groups: ChannelGroups,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(null_mut());

/// Returns the page, or `None` if this process has not created it.
#[inline(always)]
pub fn page() -> Option<&'static Page> {
    // ORDER: Acquire pairs with the Release in `make`; the page is mapped.
    let page = PAGE.load(Acquire);
    // SAFETY: NULL or a mapping that is never unmapped; all-zero is a valid page.
    unsafe { page.as_ref() }
}

/// Returns the managed process; `None` if this process is unmanaged.
#[inline(always)]
pub fn current() -> Option<&'static ManagedProcess> {
    // ORDER: Acquire pairs with the Release in `attach`; the process is complete.
    let process = page()?.process.load(Acquire);
    // SAFETY: NULL or a managed process, which is never freed.
    unsafe { process.as_ref() }
}

/// Set when the process has lost the segments that enforced its memory limit, or did not begin because a limit cannot be enforced.
static LIMIT_LOST: AtomicBool = AtomicBool::new(false);

/// Records the loss of the limit. From here on allocations without an account are denied.
fn lose_limit() {
    LIMIT_LOST.store(true, Relaxed);
}

/// Returns true if a memory limit of this process was lost, or cannot be enforced.
pub fn is_limit_lost() -> bool {
    LIMIT_LOST.load(Relaxed)
}

/// Returns the gate of a device ordinal, if there is one.
pub fn gate_of(ordinal: u8) -> Option<&'static Gate> {
    page()?.gates.get(usize::from(ordinal))
}

/// Returns the page, created if necessary; `None` if the system has no memory for it.
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
    // SAFETY: the mapping belongs to this function. With a kernel before 4.14, which does not support the advice, a
    // forked child counts for its parent until the child starts another program.
    unsafe { libc::madvise(mapped, size_of::<Page>(), libc::MADV_WIPEONFORK) };
    // ORDER: Release pairs with the Acquire in `page` and publishes the mapping.
    match PAGE.compare_exchange(null_mut(), mapped.cast(), AcqRel, Acquire) {
        Ok(_) => {}
        Err(_) => {
            // SAFETY: another thread was first, and no other thread has seen this mapping.
            unsafe { libc::munmap(mapped, size_of::<Page>()) };
        }
    }
    page()
}
