//! Events as samples carry them: resolved to a process and a device.

use std::sync::Arc;

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
    /// That process's name, where known; its events share it, for they come by the hundred.
    #[serde(with = "shared")]
    pub name: Arc<str>,
    /// Position of the device in [`Snapshot::devices`](super::Snapshot::devices).
    pub gpu: Option<usize>,
    /// What happened.
    pub what: What,
}

/// Text that several share, as any text.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        Ok(String::deserialize(from)?.into())
    }
}
