//! Measurements that processes on a device make for one whose memory returns to it. That process cannot call the driver yet,
//! and memory in no account (contexts, memory pools, unmanaged programs) may have taken the room.

use super::waiting;
use crate::{
    memory::{ledger::Ledger, residence_of},
    os::{
        clock,
        liveness::{self, Mark},
    },
    protocol::{memory_queue, primitive::Ordering},
    value::{Blocked, Phase},
};

/// A process whose heartbeat is older is stopped, and answers no question.
const SILENT_NS: u64 = 1_000_000_000;

impl Ledger<'_> {
    /// Returns true if another process waits for its memory to return to the device, or is about to restore it.
    pub fn is_return_under_way(&self) -> bool {
        let state = self.own_slot.segments().state();
        self.is_promised_elsewhere()
            || memory_queue::is_busy(&self.device.line)
                && waiting(state, usize::from(self.entry.device())).any(|(id, _, entry)| {
                    let (_, is_return) = Blocked::of_word(entry.line_limit.load(Ordering::Relaxed));
                    is_return && id != self.own_slot.slot()
                })
    }

    /// Returns true if another living process has its memory on the device, so that it can ask the driver for the free bytes.
    pub fn can_others_measure(&self) -> bool {
        let (state, now) = (self.own_slot.segments().state(), clock::now());
        let mut found = false;
        state.each_member(usize::from(self.entry.device()), None, &mut |slot, _| {
            let index = usize::from(self.own_slot.slot().index);
            let is_other = !std::ptr::eq(slot, &state.slots[index]);
            let beats = now.saturating_sub(slot.heartbeat_ns.load(Ordering::Relaxed)) < SILENT_NS;
            found |= is_other
                && beats
                && residence_of(slot).phase == Phase::Resident
                && liveness::mark_of(&slot.keeper) != Mark::Dead;
        });
        found
    }

    /// Returns true if a process has [published](Self::publish_free) the free bytes since then.
    pub fn is_measured_since(&self, at_ns: u64) -> bool {
        self.device.outside_ns.load(Ordering::Relaxed) > at_ns
    }

    /// Returns true if this process may take `bytes` that are in no account now. They must not take room that another process
    /// was promised.
    pub fn leaves_room_for_returns(&self, bytes: u64) -> bool {
        !self.is_promised_elsewhere() || self.has_room_beside(bytes)
    }

    /// Returns true if the device has room for all accounts, for the bytes outside them, and for `margin` more.
    pub fn has_room_beside(&self, margin: u64) -> bool {
        let held = self.held_together(None).saturating_add(margin);
        held.saturating_add(self.outside()) <= self.total()
    }
}
