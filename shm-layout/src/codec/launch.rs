//! What a process asked for at launch, as words.

use super::{source_byte, source_of};
use crate::{
    primitive::Ordering,
    state::Slot,
    value::{Source, valid_cap, valid_priority, valid_weight},
};

/// What a process asked for at launch, as its slot says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchShare {
    pub(crate) weight: Option<u32>,
    pub(crate) priority: Option<i32>,
    pub(crate) cap: Option<u32>,
    pub(crate) source: Source,
}

impl LaunchShare {
    /// The slot's two words.
    pub(crate) fn encode(&self) -> [u64; 2] {
        let share = u64::from(self.weight.unwrap_or(0)) | u64::from(self.cap.unwrap_or(0)) << 32;
        let priority =
            u64::from(self.priority.unwrap_or(0) as u32) | u64::from(self.priority.is_some()) << 32;
        [share, priority | source_byte(self.source) << 40]
    }

    pub(crate) fn decode(words: [u64; 2]) -> LaunchShare {
        LaunchShare {
            weight: Some(words[0] as u32).filter(|w| valid_weight(*w)),
            cap: Some((words[0] >> 32) as u32).filter(|c| valid_cap(*c)),
            priority: Some(words[1] as u32 as i32)
                .filter(|p| words[1] >> 32 & 1 == 1 && valid_priority(*p)),
            source: source_of(words[1] >> 40),
        }
    }

    pub(crate) fn of_slot(slot: &Slot) -> LaunchShare {
        LaunchShare::decode([
            slot.launch_share.load(Ordering::Relaxed),
            slot.launch_priority.load(Ordering::Relaxed),
        ])
    }
}
