//! The process as a guest of the segments: its registration, its devices, and what is kept for them.
//!
//! There is none before the first successful `cuInit`, none in a forked child until its own first use of
//! CUDA, and none in a process that runs unmanaged. A guest, once there, stays until the process ends.
//!
//! What the floors below declare as plain data (the memory books, the turns, the tracer) is put together here; the
//! floors above act on it.

pub mod page;

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use gpushare_abi::types::CUdevice;
use shm_layout::{Counters, Entry, Ledger, Registration, environment::Environment};

use crate::{
    books::Books, residence::state::Residence, sys::futex, tracer::state::Tracer, turn::state::Turn,
};

pub use page::{gate_of, guest, page};

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
pub struct Guest {
    /// Our slot.
    pub registration: &'static Registration,
    /// The devices the driver shows us, by ordinal; never more than a slot has room for.
    pub devices: Vec<Device>,
    /// What the launch environment asks for.
    pub environment: Environment,
    /// What the memory side keeps.
    pub memory: Books,
    /// Where its memory is.
    pub residence: Residence,
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
    pub earlier: AtomicPtr<Guest>,
}

impl Guest {
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

/// A hook panicked: the guest has its answer all the same.
#[cold]
pub fn fault() {
    if let Some(guest) = guest() {
        guest.count_all(|counters| &counters.faults);
    }
}
