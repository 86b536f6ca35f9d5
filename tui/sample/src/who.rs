//! The identity of a process, stable from sample to sample.

use super::{ProcessSample, SlotId};

/// A process: an epoch of a slot, or the pid of a process without a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// A managed process.
    Slot(SlotId),
    /// A process that only NVML sees.
    Pid(u32),
}

impl Who {
    /// Returns the identity of a process.
    pub fn of(process: &ProcessSample) -> Self {
        match process.slot() {
            Some(slot) => Who::Slot(slot),
            None => Who::Pid(process.shown_pid()),
        }
    }
}
