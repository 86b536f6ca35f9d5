//! Events as samples carry them: resolved to a process and a device.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use shm_layout::{SlotId, What};

/// An event of the ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventLine {
    /// The event's number in the ring.
    pub seq: u64,
    /// The time of the event.
    pub time_ns: u64,
    /// The process of the event; it may be gone.
    pub slot: Option<SlotId>,
    /// The process's pid on this host, if known.
    pub pid: Option<u32>,
    /// The process's name, if known; its events share it, because there are hundreds of them.
    #[serde(with = "shared")]
    pub name: Arc<str>,
    /// Position of the device in [`Snapshot::devices`](super::Snapshot::devices).
    pub gpu: Option<usize>,
    /// The kind of event and its values.
    pub what: What,
}

/// Serialises a shared text as a plain text.
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
