//! The process as a guest of the segments: its registration, its devices, and what is kept for them.
//!
//! There is none before the first successful `cuInit`, none in a forked child until its own first use of
//! CUDA, and none in a process that runs unmanaged. A guest, once there, stays until the process ends.
#![allow(unsafe_code, reason = "reaches the guest through its page")]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use gpushare_abi::types::CUdevice;
use shm_layout::{Counters, Entry, Ledger, Registration};

use crate::{context, environment::Environment, gate, memory, trace::Tracer, turn::Turn};

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
    /// All its memory, as the driver says.
    pub total_bytes: u64,
    /// The right to submit to it.
    pub turn: Turn,
}

/// A registered process.
pub struct Guest {
    /// Our slot.
    pub registration: &'static Registration,
    /// The devices the driver shows us, by ordinal; never more than a slot has room for.
    pub devices: Vec<Device>,
    /// What the launch environment asks for.
    pub environment: Environment,
    /// What the memory side keeps.
    pub memory: memory::Books,
    /// Who wants calls written down.
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
    pub obeyed: AtomicU64,
}

/// The guest, if this process is one.
#[inline(always)]
pub fn guest() -> Option<&'static Guest> {
    // ORDER: pairs with the Release in `life`; the guest is whole.
    let guest = gate::page()?.guest.load(Acquire);
    // SAFETY: NULL or a guest, which is never freed.
    unsafe { guest.as_ref() }
}

impl Guest {
    /// The device of an ordinal.
    pub fn device(&self, ordinal: CUdevice) -> Option<&Device> {
        self.devices.get(usize::try_from(ordinal).ok()?)
    }

    /// Our entry for a device ordinal.
    pub fn entry_of_device(&self, ordinal: CUdevice) -> Option<Entry> {
        Some(self.device(ordinal)?.entry)
    }

    /// The device of the calling thread's current context.
    pub fn current_device(&self) -> Option<&Device> {
        self.device(context::current_ordinal(self)?)
    }

    /// Our entry for the device of the calling thread's current context.
    pub fn current_entry(&self) -> Option<Entry> {
        Some(self.current_device()?.entry)
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
        crate::futex::wake_private(&self.doorbell);
    }

    /// Whether the process is ending.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }
}
