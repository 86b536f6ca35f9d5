//! The memory of a process that is on the host: it stays the process's own, and other processes may use the room.

use super::Ledger;
use crate::protocol::{account, crash::crash_point, primitive::Ordering};

impl Ledger<'_> {
    /// Records that `bytes` of the process's memory and `besides` bytes that are in no account moved from the device to the
    /// host, beside what is there already. The bytes stay the process's own; other processes may use the room. Returns how many bytes
    /// of the account moved.
    pub fn evict(&self, bytes: u64, besides: u64) -> u64 {
        let bytes = bytes.min(self.used());
        // First the new place, then the old one: if the process dies in between, both are cleared.
        self.set_evicted(self.evicted().saturating_add(bytes));
        crash_point!("evict:noted");
        account::release(&self.device.outside, besides);
        self.adjust(|own| own.saturating_sub(besides));
        self.release(bytes);
        crash_point!("evict:left");
        bytes
    }

    /// Bytes of this process that are not on the device.
    pub fn evicted(&self) -> u64 {
        self.limits.evicted.load(Ordering::Relaxed)
    }

    /// Records that the memory is on the device again. `besides` bytes of the reservation made for the return are in no
    /// account.
    pub fn returned(&self, besides: u64) {
        self.returned_in_part(self.evicted(), besides);
        self.release(besides);
    }

    /// Records that `bytes` of the evicted memory, which the caller has charged, and `besides` bytes that are in no account are on
    /// the device again. The rest is still on the host.
    pub fn returned_in_part(&self, bytes: u64, besides: u64) {
        self.set_evicted(self.evicted().saturating_sub(bytes));
        crash_point!("evict:returned");
        self.device.outside.fetch_add(besides, Ordering::Relaxed);
        self.adjust(|own| own.saturating_add(besides));
    }

    fn set_evicted(&self, bytes: u64) {
        self.limits.evicted.store(bytes, Ordering::Relaxed);
        self.words.evicted.store(bytes, Ordering::Relaxed);
    }
}
