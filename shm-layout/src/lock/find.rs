//! Finding processes on a device by the words that name them.

use crate::{
    layout::state::{DeviceEntry, Slot, State},
    protocol::{
        claim,
        primitive::Ordering,
        turn::{BITMAP, who},
    },
    value::SlotId,
};

/// Time without a poll after which a waiter may be stopped. It is then not chosen until it polls again.
pub(super) const PULSE_NS: u64 = 500_000_000;

/// The slot of a slot or owner word, if it is that life of it and published.
pub(crate) fn slot_of(state: &State, word: u64) -> Option<(SlotId, &Slot)> {
    let id = SlotId::from_word(who(word))?;
    let slot = state.slots.get(usize::from(id.index))?;
    (claim::live(&slot.claim) == Some(id.epoch)).then_some((id, slot))
}

/// A slot's entry on a device.
pub(crate) fn entry_on(slot: &Slot, device: usize) -> Option<&DeviceEntry> {
    let entry = slot.entry_of_device.get(device)?.load(Ordering::Relaxed);
    slot.entries.get(usize::from(entry).checked_sub(1)?)
}

/// The entry of a slot word on a device.
pub(crate) fn entry_of(state: &State, word: u64, device: usize) -> Option<&DeviceEntry> {
    entry_on(slot_of(state, word)?.1, device)
}

/// The waiters of a bitmap, with their entries.
pub(crate) fn waiters<'s>(
    state: &'s State,
    device: usize,
    bits: &[u64; BITMAP],
) -> impl Iterator<Item = (SlotId, &'s Slot, &'s DeviceEntry)> + use<'s> {
    let mut bits = *bits;
    std::iter::from_fn(move || {
        let (at, word) = bits.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let index = at * 64 + word.trailing_zeros() as usize;
        *word &= *word - 1;
        Some(index)
    })
    .filter_map(move |index| {
        let slot = state.slots.get(index)?;
        let epoch = claim::live(&slot.claim)?;
        let entry = entry_on(slot, device)?;
        Some((
            SlotId {
                index: index as u16,
                epoch,
            },
            slot,
            entry,
        ))
    })
}
