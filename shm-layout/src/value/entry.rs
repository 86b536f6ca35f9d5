//! A device entry in a process's own slot.

/// A device entry in a process's own slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    pub(crate) index: u8,
    pub(crate) device: u8,
}

impl Entry {
    /// Returns the index among the slot's 16 entries.
    pub fn index(self) -> u8 {
        self.index
    }

    /// The device's index in the segment: locks on several devices are taken in this order.
    pub fn device(self) -> u8 {
        self.device
    }
}
