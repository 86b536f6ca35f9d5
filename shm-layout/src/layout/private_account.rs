//! A process's accounts where a broker serves the machine: a page of memory that only this process can write and all others can
//! only read. Sums under shared limits are made of these.
//!
//! ```text
//! process                    broker                                              others
//!    │ asks for a slot ────────▶ │ a memfd for this life of the slot
//!    │ ◀── the memfd, to write ──│ its inode into the registry
//!    │ maps it, and lets go of
//!    │ the connection ─────────▶ │ no one can write it any more but by that mapping
//!    │                           │ (F_SEAL_FUTURE_WRITE)
//!    │ ◀── registry: begun ──────│ ───────────────────────────────── registry: begun ──▶ │ count it
//!    │ uses a device             │ ◀─── asks for accounts that it has not mapped yet ────│
//!    │                           │ ──── descriptors to read ────────────────────────────▶│
//! ```
//!
//! * Before the registry says *begun* the process enters no device and reserves nothing, so it need not be counted. A process
//!   that adds up announces its own attempt before it looks at the registry. The newcomer announces its attempt after *begun*,
//!   and so sees the other's.
//! * A process that waits for *begun* in vain makes the broker look: another broker may have taken over.
//! * Mapped accounts stay readable when the broker or their process dies. At each heartbeat a keeper maps the accounts of the
//!   processes with which its process shares a limit. If there is no broker any more, a process whose account was never mapped
//!   counts by its words in the state. If there is a broker that does not answer, no memory is granted beside that process.

use std::mem::offset_of;

use crate::{
    layout::{Shared, shared},
    protocol::{
        account::{Account, Kept},
        primitive::{AtomicU64, Ordering, fence},
    },
    value::DEVICES_PER_PROCESS,
};

/// Size of the memory in bytes.
pub(crate) const SIZE: u64 = 4096;
/// Name of the memfd, as `/proc` shows it.
pub(crate) const NAME: &str = "gpushare-account";

impl Shared for Kept {}

shared! {
    /// A process's accounts: only this process writes it.
    pub(crate) struct PrivateAccount: 768 align 64 {
        0 entries: [PrivateAccountEntry; DEVICES_PER_PROCESS],
        /// The reserve of each entry (`protocol::account::change_reserve`).
        640 reserves: [AtomicU64; DEVICES_PER_PROCESS],
    }
}

shared! {
    /// The account of one device. It carries the device's UUID, because tenants may write over the table that maps entries to
    /// devices.
    pub(crate) struct PrivateAccountEntry: 40 align 8 {
        0 uuid: [AtomicU64; 2],
        16 kept: Kept,
        /// 1 while there are bytes in the account that the driver has not given yet (`line::Promise`).
        32 promised: AtomicU64,
    }
}

impl PrivateAccount {
    /// The account of one of the process's entries.
    #[inline(always)]
    pub(crate) fn kept(&self, entry: usize) -> &Kept {
        &self.entries[entry % DEVICES_PER_PROCESS].kept
    }

    /// Says which device an entry is on, before anything is held there and before its place is looked for
    /// ([`RegistryDevice`](crate::layout::registry::RegistryDevice)); zeros for none.
    pub(crate) fn name(&self, entry: usize, uuid: [u64; 2]) {
        let words = &self.entries[entry % DEVICES_PER_PROCESS].uuid;
        for (word, value) in words.iter().zip(uuid) {
            word.store(value, Ordering::Relaxed);
        }
        // ORDER: pairs with the fence in RegistryDevice::take_back: its place is found to be taken back, or the name is seen.
        fence(Ordering::SeqCst);
    }

    /// The device of an entry, as it was [named](Self::name).
    pub(crate) fn device(&self, entry: usize) -> [u64; 2] {
        self.entries[entry % DEVICES_PER_PROCESS].device()
    }

    /// Records whether an entry has promised bytes: bytes in the account that the driver has not given yet.
    pub(crate) fn promise(&self, entry: usize, promised: bool) {
        let word = &self.entries[entry % DEVICES_PER_PROCESS].promised;
        word.store(u64::from(promised), Ordering::Relaxed);
    }

    /// Returns true while an entry has promised bytes.
    pub(crate) fn is_promised(&self, entry: usize) -> bool {
        self.entries[entry % DEVICES_PER_PROCESS].is_promised()
    }

    /// Returns the UUID of each entry in a copy of the account.
    pub(crate) fn devices_in(
        bytes: &[u8; size_of::<PrivateAccount>()],
    ) -> [[u64; 2]; DEVICES_PER_PROCESS] {
        let word = |at: usize| {
            let bytes = bytes
                .get(at..at + 8)
                .and_then(|bytes| bytes.try_into().ok());
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        std::array::from_fn(|entry| {
            let at =
                entry * size_of::<PrivateAccountEntry>() + offset_of!(PrivateAccountEntry, uuid);
            [word(at), word(at + 8)]
        })
    }

    /// The word of the reserve of one of the process's entries.
    pub(crate) fn reserve(&self, entry: usize) -> &AtomicU64 {
        &self.reserves[entry % DEVICES_PER_PROCESS]
    }

    /// The entries on a device. Those of none hold nothing.
    pub(crate) fn on(&self, device: [u64; 2]) -> impl Iterator<Item = &PrivateAccountEntry> {
        self.with_reserves_on(device).map(|(entry, _)| entry)
    }

    /// The entries on a device, each with the word of its reserve.
    pub(crate) fn with_reserves_on(
        &self,
        device: [u64; 2],
    ) -> impl Iterator<Item = (&PrivateAccountEntry, &AtomicU64)> {
        let entries = self.entries.iter().zip(&self.reserves);
        entries.filter(move |(entry, _)| entry.device() == device)
    }
}

impl PrivateAccountEntry {
    pub(crate) fn account(&self) -> Account<'_> {
        self.kept.account()
    }

    pub(crate) fn is_promised(&self) -> bool {
        self.promised.load(Ordering::Relaxed) != 0
    }

    fn device(&self) -> [u64; 2] {
        [0, 1].map(|index| self.uuid[index].load(Ordering::Relaxed))
    }
}
