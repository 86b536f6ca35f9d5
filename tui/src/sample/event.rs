//! Events as samples carry them: resolved to a process and a device.

use serde::{Deserialize, Serialize};

use shm_layout::{SlotId, What};

/// One event of the ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventLine {
    /// Its number in the ring.
    pub seq: u64,
    /// When it happened.
    pub time_ns: u64,
    /// The process it is about; it may be gone.
    pub slot: Option<SlotId>,
    /// That process's pid on this host, where known.
    pub pid: Option<u32>,
    /// That process's name, where known.
    pub name: String,
    /// Position of the device in [`Snapshot::devices`](super::Snapshot::devices).
    pub gpu: Option<usize>,
    /// What happened.
    pub what: What,
}
