//! What an edit does to a process's share of its devices.

#[cfg(feature = "serde")]
use super::stored;
use super::{Boost, Change, Set};
use crate::value::{EvictAfter, OnFull, SlotId};

/// What an edit does to a process's share of its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShareEdit {
    /// 1 to 1000.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "stored::set", skip_serializing_if = "Set::is_keep")
    )]
    pub weight: Set<u32>,
    /// -20 to 19.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "stored::set", skip_serializing_if = "Set::is_keep")
    )]
    pub priority: Set<i32>,
    /// 1 to 100 per cent.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "stored::set", skip_serializing_if = "Set::is_keep")
    )]
    pub cap: Set<u32>,
    /// Not eligible for the lock until resumed.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "stored::set", skip_serializing_if = "Set::is_keep")
    )]
    pub paused: Set<bool>,
    /// Another priority for a while.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "stored::set", skip_serializing_if = "Set::is_keep")
    )]
    pub boost: Set<Boost>,
    /// What it does when memory is refused.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "stored::set", skip_serializing_if = "Set::is_keep")
    )]
    pub on_full: Set<OnFull>,
    /// Whether its memory leaves its devices while it is paused.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "stored::set", skip_serializing_if = "Set::is_keep")
    )]
    pub evict: Set<bool>,
    /// After which idle time it is evicted.
    #[cfg_attr(
        feature = "serde",
        serde(default, with = "stored::set", skip_serializing_if = "Set::is_keep")
    )]
    pub evict_after: Set<EvictAfter>,
}

impl ShareEdit {
    /// The edit of one process.
    pub fn change(self, slot: SlotId) -> Change {
        Change::ProcessShare { slot, share: self }
    }
}
