//! The name of a process that stays the same from sample to sample.

use super::{ProcessSample, SlotId};

/// Which process: a life of a slot, or the pid of one that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// A managed process.
    Slot(SlotId),
    /// One that only NVML sees.
    Pid(u32),
}

impl Who {
    /// The name of this process.
    pub fn of(process: &ProcessSample) -> Self {
        match process.slot() {
            Some(slot) => Who::Slot(slot),
            None => Who::Pid(process.shown_pid()),
        }
    }
}
