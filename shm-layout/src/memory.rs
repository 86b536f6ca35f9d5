//! The memory of a device: the ledger of the bytes that each process holds, the queue for requests that
//! find no room, and the residence of processes' memory.

pub mod ledger;
pub mod queue;

use crate::{
    layout::state::Slot,
    os::futex,
    protocol::primitive::Ordering,
    segment::Segments,
    value::{Phase, Residence, SlotId, Why},
};

/// Asks a process to evict its memory, and wakes its keeper. It does so if it is idle and allowed to; its `residence` shows the
/// result.
pub fn ask_to_evict(segments: &Segments, id: SlotId, now_ns: u64) {
    if let Some(slot) = segments.state().slots.get(usize::from(id.index)) {
        slot.evict_asked.store(now_ns.max(1), Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire of the keeper that sleeps on the word; the request is seen.
        slot.evict_bell.fetch_add(1, Ordering::Release);
        futex::wake(&slot.evict_bell, i32::MAX);
    }
}

/// Bit of the residence that says that the driver's checkpoint moves the memory.
pub(crate) const CHECKPOINT_BIT: u32 = 32;
/// Bit of the residence that says that more of the memory could leave.
pub(crate) const PART_BIT: u32 = 33;

/// Decodes the residence in a slot. Any words decode to something.
pub(crate) fn residence_of(slot: &Slot) -> Residence {
    let word = slot.residence.load(Ordering::Relaxed);
    let first = &slot.entries[0];
    Residence {
        phase: Phase::of_byte(word as u8),
        why: Why::of_byte((word >> 8) as u8),
        code: (word >> 16) as u16,
        is_checkpoint: word >> CHECKPOINT_BIT & 1 == 1,
        is_in_part: word >> PART_BIT & 1 == 1,
        since_ns: slot.residence_since.load(Ordering::Relaxed),
        expected_ns: slot.residence_expected.load(Ordering::Relaxed),
        host_bytes: slot.host_bytes.load(Ordering::Relaxed),
        used_ns: slot.used_ns.load(Ordering::Relaxed),
        swap_ns: slot.swap_ns.load(Ordering::Relaxed),
        deep_at_ns: first.deep_at.load(Ordering::Relaxed),
        deep_ns: first.deep_ns.load(Ordering::Relaxed),
    }
}
