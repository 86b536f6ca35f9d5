//! The memory ledger: reserve, call the driver, commit or give back.

use std::{marker::PhantomData, sync::atomic::AtomicU64};

use crate::limits::Source;

/// Which limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The process's quota.
    Process,
    /// Its group's.
    Group,
    /// The device's.
    Device,
}

/// An allocation refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// By which limit.
    pub limit: Limit,
    /// Bytes held under that limit.
    pub used: u64,
    /// The limit.
    pub quota: u64,
    /// Bytes asked for.
    pub asked: u64,
}

/// A quota in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes; `None` is unlimited.
    pub bytes: Option<u64>,
    /// Who set it.
    pub source: Source,
}

/// The ledger of one process on one device.
#[derive(Clone, Copy)]
pub struct Ledger<'r> {
    _r: PhantomData<&'r ()>,
}

/// Bytes set aside for an allocation the driver has not granted yet. Dropping it gives them back.
#[must_use = "a reservation that is dropped gives its bytes back"]
pub struct Reservation<'r> {
    _r: PhantomData<&'r ()>,
}

impl<'r> Ledger<'r> {
    /// Sets bytes aside, or says which limit refused.
    pub fn reserve(&self, _bytes: u64) -> Result<Reservation<'r>, Denial> {
        todo!()
    }

    /// Gives back bytes of a freed allocation.
    pub fn release(&self, _bytes: u64) {
        todo!()
    }

    /// Charges bytes the driver has granted already, whatever the quota.
    pub fn charge_unchecked(&self, _bytes: u64) {
        todo!()
    }

    /// Bytes this process holds.
    pub fn used(&self) -> u64 {
        todo!()
    }

    /// The process's quota in force.
    pub fn quota(&self) -> Quota {
        todo!()
    }

    /// Bytes that still may be reserved; `None` is unlimited.
    pub fn room(&self) -> Option<u64> {
        todo!()
    }
}

impl Reservation<'_> {
    /// The driver granted it: the bytes stay charged. Returns how many.
    pub fn commit(self) -> u64 {
        todo!()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a process did on a device. Only that process writes them, with plain relaxed adds.
        #[repr(C)]
        #[derive(Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// A copy of [`Counters`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CounterView {
            $($(#[$doc])* pub $name: u64,)*
        }
    };
}

counters! {
    /// Kernel launches.
    launches,
    /// Graph launches.
    graphs,
    /// Copies.
    copies,
    /// Bytes copied.
    copy_bytes,
    /// Memsets.
    memsets,
    /// Explicit synchronisations by the application.
    syncs,
    /// Drains on our account.
    drains,
    /// Drains that outlasted grace.
    drain_timeouts,
    /// Allocations granted.
    allocations,
    /// Frees.
    frees,
    /// Allocations refused.
    denials,
    /// Bytes refused.
    denied_bytes,
    /// Bytes of pinned host memory held.
    host_pinned_bytes,
    /// Bytes imported from other processes, not charged here.
    imported_bytes,
    /// Frees and calls the ledger could not match.
    unaccounted,
    /// Times we stepped aside.
    bypasses,
    /// Launches recorded into a capture, not locked.
    captured,
    /// Calls that found the gate closed.
    gate_misses,
    /// Panics caught at the C edge.
    faults,
    /// When the last work was submitted, as the keeper saw it.
    last_submit_ns,
}
