//! What processes that are on a device do for one that comes back to it and can ask nothing itself: they ask the driver what is
//! free, for what is in no account (contexts, memory that pools keep, programs that are not managed) may have taken the room.

use super::waiting;
use crate::{
    memory::{eviction, ledger::Ledger},
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
    /// Whether another process waits for memory to come back to the device, or is about to bring it.
    pub fn is_return_under_way(&self) -> bool {
        let state = self.own_slot.segments().state();
        self.is_promised_elsewhere()
            || memory_queue::is_busy(&self.device.line)
                && waiting(state, usize::from(self.entry.device())).any(|(id, _, entry)| {
                    let (_, is_return) = Blocked::of_word(entry.line_limit.load(Ordering::Relaxed));
                    is_return && id != self.own_slot.slot()
                })
    }

    /// Whether a process is there that could ask the driver what is free: not this one, alive, and its memory on the device.
    pub fn can_others_measure(&self) -> bool {
        let (state, now) = (self.own_slot.segments().state(), clock::now());
        let mut found = false;
        state.each_member(usize::from(self.entry.device()), None, &mut |slot, _| {
            let index = usize::from(self.own_slot.slot().index);
            let is_other = !std::ptr::eq(slot, &state.slots[index]);
            let beats = now.saturating_sub(slot.heartbeat_ns.load(Ordering::Relaxed)) < SILENT_NS;
            found |= is_other
                && beats
                && eviction::view(slot).phase == Phase::Resident
                && liveness::mark_of(&slot.keeper) != Mark::Dead;
        });
        found
    }

    /// Whether a process has [said](Self::publish_free) what is free since then.
    pub fn is_measured_since(&self, at_ns: u64) -> bool {
        self.device.outside_ns.load(Ordering::Relaxed) > at_ns
    }

    /// Whether so much that is in no account may be taken now: no other process has been promised the room.
    pub fn leaves_room_for_returns(&self, bytes: u64) -> bool {
        !self.is_promised_elsewhere() || self.has_room_beside(bytes)
    }

    /// Whether the device has room for all that the accounts have, what is outside of them, and so much more.
    pub fn has_room_beside(&self, margin: u64) -> bool {
        let held = self.held_together(None).saturating_add(margin);
        held.saturating_add(self.outside()) <= self.total()
    }
}
