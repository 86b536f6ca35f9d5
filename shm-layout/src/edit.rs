//! The operator's edits.

use std::fmt;

use crate::{
    ids::{SlotId, Uuid},
    segment::Segments,
    settings::LockPolicy,
};

/// A memory quota the operator sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaValue {
    /// Not set here: what the launch, group or default says.
    #[default]
    Inherit,
    /// No limit.
    Unlimited,
    /// So many bytes.
    Bytes(u64),
    /// A share of the device's memory, 1 to 100.
    Percent(u8),
}

/// What an edit does to one setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Set<T> {
    /// Leaves it.
    #[default]
    Keep,
    /// Unsets it: launch, group or default.
    Inherit,
    /// Sets it.
    To(T),
}

/// Another priority for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boost {
    /// -20 to 19.
    pub priority: i32,
    /// When it ends by itself.
    pub until_ns: u64,
}

/// One edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A process's memory quota.
    ProcessQuota {
        /// Whose.
        slot: SlotId,
        /// On which of its entries; `None` for every device, later ones included.
        device: Option<u8>,
        /// The quota.
        value: QuotaValue,
        /// When it reverts by itself to what it was.
        until_ns: Option<u64>,
    },
    /// A process's share.
    ProcessShare {
        /// Whose.
        slot: SlotId,
        /// 1 to 1000.
        weight: Set<u32>,
        /// -20 to 19.
        priority: Set<i32>,
        /// 1 to 100 per cent.
        cap: Set<u32>,
        /// Not eligible for the lock until resumed.
        paused: Set<bool>,
        /// Another priority for a while.
        boost: Set<Boost>,
    },
    /// A device's lock policy.
    Policy {
        /// Which device; `None` for all that have no policy of their own.
        device: Option<Uuid>,
        /// The policy; `None` unsets it.
        policy: Option<LockPolicy>,
    },
    /// What all processes together may hold on a device.
    DeviceLimit {
        /// Which.
        uuid: Uuid,
        /// The limit.
        value: QuotaValue,
    },
    /// A group; created when it is not there.
    Group {
        /// Its name, 1 to 31 bytes.
        name: String,
        /// What its members may hold together on each device.
        memory: Set<QuotaValue>,
        /// Each member's weight.
        weight: Set<u32>,
        /// Each member's cap.
        cap: Set<u32>,
        /// Removes it.
        remove: bool,
    },
}

/// A done edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Its generation: wait for the slots to acknowledge it.
    pub generation: u64,
    /// The change that restores what was.
    pub old: Change,
}

/// Why an edit was refused. Nothing changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum EditError {
    /// Somebody else edited in between.
    Moved {
        /// The generation expected.
        expected: u64,
        /// The generation found.
        found: u64,
    },
    /// The process, device entry or group is not there.
    NoSuchTarget,
    /// A value is out of range.
    Invalid {
        /// Which.
        field: &'static str,
        /// Why.
        why: String,
    },
    /// No room for another group or device.
    TooMany,
    /// This user may not write the control segment.
    NotPermitted,
    /// The system refused.
    Io(std::io::Error),
}

impl fmt::Display for EditError {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl std::error::Error for EditError {}

/// Somebody who may edit.
pub struct Operator {
    segments: Segments,
}

impl Operator {
    /// The segments.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Checks a change without doing it.
    pub fn check(&self, _change: &Change) -> Result<(), EditError> {
        todo!()
    }

    /// Does a change, if the generation is still the one expected.
    pub fn edit(
        &self,
        _expected_generation: Option<u64>,
        _change: &Change,
        _now_ns: u64,
    ) -> Result<Edit, EditError> {
        todo!()
    }

    /// The living that have not obeyed this generation yet.
    pub fn unacknowledged(&self, _generation: u64) -> Vec<SlotId> {
        todo!()
    }

    /// Holds a short claim on a device for `gpushare pick`, so that the next pick looks elsewhere.
    pub fn claim_pick(
        &self,
        _uuid: Uuid,
        _name: &str,
        _total_bytes: u64,
        _until_ns: u64,
        _now_ns: u64,
    ) -> bool {
        todo!()
    }
}
