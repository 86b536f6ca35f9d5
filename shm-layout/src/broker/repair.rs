//! The repair of the state, which tenants may write. The broker does it once a second while processes have slots.

use super::{Broker, registry_of, tables};
use crate::{
    layout::state::{IDENTITY_WORDS, Slot},
    protocol::{
        claim::{self, Phase},
        primitive::Ordering,
        seqlock,
        turn::BITMAP,
    },
    segment::identity::decode_vouched,
    value::{Identity, MAX_PROCESSES, SlotId},
};

impl Broker {
    /// Repairs words that tenants overwrote and that no process of theirs repairs: the identity in each slot, and marks of
    /// slots that no process has. Returns the slots that claim to be taken and were given to no process; `is_given` tells of a
    /// slot that is being given back.
    pub fn repair(&self, is_given: impl Fn(usize) -> bool) -> Vec<SlotId> {
        let (state, registry) = (self.segments.state(), registry_of(&self.segments));
        let mut forged = Vec::new();
        for (index, slot) in state.slots.iter().enumerate() {
            let Some(entry) = registry.entry(index) else {
                break;
            };
            // ORDER: pairs with the Release in publish.
            let (epoch, phase) = claim::parse(slot.claim.load(Ordering::Acquire));
            match (entry.live(), phase) {
                // A group that a slot refers to is not given to others.
                (None, Phase::Free) => slot.group.store(0, Ordering::Relaxed),
                (None, _) if !is_given(index) => forged.push(SlotId {
                    index: index as u16,
                    epoch: entry.epoch(),
                }),
                (Some(live), Phase::Live) if live == epoch => {
                    let known = entry.read().map(|words| decode_vouched(&words).0);
                    if let Some(known) = known {
                        publish_identity(slot, &known);
                    }
                }
                _ => {}
            }
        }
        tables::repair(registry, state);
        let living = self.living();
        for device in &state.devices {
            for bits in [
                &device.members,
                &device.active,
                &device.waiters,
                &device.line,
                &device.promises,
            ] {
                for (word, living) in bits.iter().zip(living) {
                    if word.load(Ordering::Relaxed) & !living != 0 {
                        word.fetch_and(living, Ordering::Relaxed);
                    }
                }
            }
        }
        forged
    }

    /// The slots that processes have, those included whose processes have died and that are being given back.
    fn living(&self) -> [u64; BITMAP] {
        let registry = registry_of(&self.segments);
        let mut living = [0; BITMAP];
        for index in 0..MAX_PROCESSES {
            if registry
                .entry(index)
                .is_some_and(|entry| entry.live().is_some())
            {
                living[index / 64] |= 1 << (index % 64);
            }
        }
        living
    }
}

/// Writes the identity of a slot's process into the slot, unless it is there.
pub(super) fn publish_identity(slot: &Slot, known: &Identity) {
    let mut words = [0; IDENTITY_WORDS];
    let read = seqlock::read(&slot.identity_seq, &slot.identity, &mut words);
    if read.is_none() || words != known.encode() {
        seqlock::write(&slot.identity_seq, &slot.identity, &known.encode());
    }
}
