//! Names of things in a segment: slots with their epoch, a slot's device entries, device UUIDs.

/// A device's UUID, as the driver gives it.
pub type Uuid = [u8; 16];

/// One life of one process slot. A re-used slot has a new epoch, so an old name never means a new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId {
    /// Which of the 256 slots.
    pub index: u16,
    /// Which life of it; from 1.
    pub epoch: u32,
}

impl SlotId {
    /// As one word, never zero: how slots are named in event arguments and owner words.
    pub fn to_word(self) -> u64 {
        u64::from(self.epoch) << 16 | u64::from(self.index).wrapping_add(1) & 0xffff
    }

    /// From [`to_word`](Self::to_word); `None` for zero and for what no slot has.
    pub fn from_word(word: u64) -> Option<SlotId> {
        let index = (word & 0xffff).checked_sub(1)?;
        let epoch = u32::try_from(word >> 16).ok()?;
        ((index as usize) < crate::MAX_PROCESSES && epoch != 0).then_some(SlotId {
            index: index as u16,
            epoch,
        })
    }
}

/// A device entry in a process's own slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    pub(crate) index: u8,
    pub(crate) device: u8,
}

impl Entry {
    /// Which of the slot's 16 entries.
    pub fn index(self) -> u8 {
        self.index
    }

    /// The device's index in the segment: locks on several devices are taken in this order.
    pub fn device(self) -> u8 {
        self.device
    }
}
