//! A process's slot: claimed, published, kept alive, given back, reaped.

use std::{fmt, io, marker::PhantomData};

use crate::{
    ids::{Entry, SlotId, Uuid},
    ledger::{Counters, Ledger},
    limits::LaunchLimits,
    limits::Source,
    lock::DeviceLock,
    segment::Segments,
    settings::{LockPolicy, Share},
};

/// Who a process is, as it sees itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its pid in its own namespace.
    pub pid: u32,
    /// Its pid namespace's inode.
    pub pid_ns: u64,
    /// Its time namespace's inode.
    pub time_ns: u64,
    /// Its start time in clock ticks (`/proc/self/stat`, field 22).
    pub start_time: u64,
    /// Its user.
    pub uid: u32,
    /// Its executable.
    pub exe: String,
    /// Its cgroup.
    pub cgroup: String,
    /// Its name from `gpushare run --name`.
    pub label: String,
}

impl Identity {
    /// This process's own.
    pub fn of_self(_label: &str) -> Identity {
        todo!()
    }
}

/// Why a process could not be registered. It runs on, unmanaged.
#[derive(Debug)]
pub enum RegisterError {
    /// Every slot is taken by a living process.
    Full {
        /// How many there are.
        capacity: usize,
    },
    /// The system refused.
    Io(io::Error),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl std::error::Error for RegisterError {}

/// The slot has no room for another device, or the segment has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicesFull;

impl fmt::Display for DevicesFull {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl std::error::Error for DevicesFull {}

/// A process's slot, for as long as it lives. Dropping it gives the slot back.
pub struct Registration {
    _segments: Segments,
}

/// The keeper thread's mark of life. Stays on its thread; dropping it takes the mark back.
pub struct KeeperMark {
    _not_send: PhantomData<*const ()>,
}

/// Claims a slot and publishes who we are.
pub fn register(
    _segments: &Segments,
    _identity: &Identity,
    _limits: &LaunchLimits,
) -> Result<Registration, RegisterError> {
    todo!()
}

/// Gives back what dead processes held; any living process may call it. Returns how many slots it freed.
pub fn reap(_segments: &Segments, _now_ns: u64) -> usize {
    todo!()
}

impl Registration {
    /// The slot.
    pub fn slot(&self) -> SlotId {
        todo!()
    }

    /// The segments it is in.
    pub fn segments(&self) -> &Segments {
        todo!()
    }

    /// Marks the calling thread as the keeper: the kernel marks its word within microseconds of the process's death.
    pub fn attach_keeper(&self) -> io::Result<KeeperMark> {
        todo!()
    }

    /// The keeper's tick.
    pub fn heartbeat(&self, _now_ns: u64) {
        todo!()
    }

    /// Says that everything up to control `generation` is obeyed.
    pub fn acknowledge(&self, _generation: u64) {
        todo!()
    }

    /// Enters a device; entering it again gives the same entry.
    pub fn add_device(
        &self,
        _uuid: Uuid,
        _ordinal: u8,
        _name: &str,
        _total_bytes: u64,
        _flags: u32,
    ) -> Result<Entry, DevicesFull> {
        todo!()
    }

    /// The entry of a process's device ordinal.
    pub fn entry(&self, _ordinal: u8) -> Option<Entry> {
        todo!()
    }

    /// In a forked child: lets go of the parent's slot and touches nothing of it.
    pub fn forget_after_fork(self) {
        todo!()
    }

    /// The memory ledger of one device.
    pub fn ledger(&self, _entry: Entry) -> Ledger<'_> {
        todo!()
    }

    /// This process's counters on one device.
    pub fn count(&self, _entry: Entry) -> &Counters {
        todo!()
    }

    /// The lock of one device.
    pub fn lock(&self, _entry: Entry) -> DeviceLock<'_> {
        todo!()
    }

    /// The lock policy that holds for this process on one device, and who set it.
    pub fn policy(&self, _entry: Entry) -> (LockPolicy, Source) {
        todo!()
    }

    /// This process's share.
    pub fn share(&self) -> Share {
        todo!()
    }

    /// The newest control generation.
    pub fn control_generation(&self) -> u64 {
        todo!()
    }

    /// When a temporary setting of this process next ends by itself; the keeper looks again then.
    pub fn next_deadline(&self) -> Option<u64> {
        todo!()
    }
}
