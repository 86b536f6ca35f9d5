//! Changes that an operator can make.

use crate::policy::LockPolicy;
use crate::rule::Rule;
use crate::table::{DeviceEdit, GroupEdit, ShareEdit};
#[cfg(feature = "serde")]
use crate::value::stored;
use crate::value::{QuotaValue, SlotId, Until, Uuid};

/// One of a process's quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OneQuota {
    /// On which of its entries; `None` for every device that has none of its own.
    pub device: Option<u8>,
    /// The quota.
    pub value: QuotaValue,
    /// End of the value; `None` for a lasting one.
    #[cfg_attr(feature = "serde", serde(flatten, with = "stored::until"))]
    pub until: Option<Until<QuotaValue>>,
}

/// An edit.
///
/// As JSON it is what the audit log keeps: values are the words that a person would type (`32GiB`, `25%`,
/// `timeslice=5ms …`); `inherit` unsets, an absent value leaves the setting alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", tag = "kind")
)]
pub enum Change {
    /// A process's memory quota.
    ProcessQuota {
        /// Slot of the process.
        #[cfg_attr(feature = "serde", serde(flatten, with = "stored::slot"))]
        slot: SlotId,
        /// The entry; `None` for every device, later ones included, which replaces the values of single devices. When it ends
        /// or is undone, those are restored.
        device: Option<u8>,
        /// The quota.
        value: QuotaValue,
        /// End of the value; `None` for a lasting one.
        #[cfg_attr(feature = "serde", serde(flatten, with = "stored::until"))]
        until: Option<Until<QuotaValue>>,
    },
    /// All quotas of a process, as an edit for every device found them; entries that are not named have none.
    ProcessQuotas {
        /// Slot of the process.
        #[cfg_attr(feature = "serde", serde(flatten, with = "stored::slot"))]
        slot: SlotId,
        /// The quotas.
        quotas: Vec<OneQuota>,
    },
    /// A process's share.
    ProcessShare {
        /// Slot of the process.
        #[cfg_attr(feature = "serde", serde(flatten, with = "stored::slot"))]
        slot: SlotId,
        /// The new share.
        #[cfg_attr(feature = "serde", serde(flatten))]
        share: ShareEdit,
    },
    /// A device's lock policy.
    Policy {
        /// The device; `None` for all that have no policy of their own.
        #[cfg_attr(feature = "serde", serde(default, with = "stored::uuid_or_all"))]
        device: Option<Uuid>,
        /// The policy; `None` unsets it.
        #[cfg_attr(feature = "serde", serde(with = "stored::or_inherit"))]
        policy: Option<LockPolicy>,
        /// End of the value; `None` for a lasting one.
        #[cfg_attr(feature = "serde", serde(flatten, with = "stored::ends"))]
        until: Option<Until<Option<LockPolicy>>>,
    },
    /// Sets the quota of all processes together on a device.
    DeviceLimit {
        /// The device.
        #[cfg_attr(feature = "serde", serde(rename = "device", with = "stored::uuid"))]
        uuid: Uuid,
        /// The limit.
        value: QuotaValue,
    },
    /// Sets what happens to the memory of processes on a device.
    DeviceMemory {
        /// The device; `None` for all that have no setting of their own.
        #[cfg_attr(feature = "serde", serde(default, with = "stored::uuid_or_all"))]
        device: Option<Uuid>,
        /// The new settings.
        #[cfg_attr(feature = "serde", serde(flatten))]
        settings: DeviceEdit,
    },
    /// A group; created when it is not there.
    Group {
        /// Name of the group, 1 to 31 bytes.
        name: String,
        /// The new settings.
        #[cfg_attr(feature = "serde", serde(flatten))]
        settings: GroupEdit,
        /// Removes it.
        remove: bool,
    },
    /// A rule.
    Rule {
        /// Place of the rule: the first that matches applies.
        index: u8,
        /// The rule; `None` removes the one at this place.
        rule: Option<Rule>,
    },
    /// Starts or stops the trace of a process. Its buffer is made first (`shm_layout::trace::create`).
    Trace {
        /// Slot of the process.
        #[cfg_attr(feature = "serde", serde(flatten, with = "stored::slot"))]
        slot: SlotId,
        /// Records of the buffer; `None` ends the trace.
        #[cfg_attr(
            feature = "serde",
            serde(default, rename = "records", skip_serializing_if = "Option::is_none")
        )]
        on: Option<u32>,
    },
    /// Sets a process's label. Where a broker vouches for identities, only the broker changes it; elsewhere the launch sets it.
    Label {
        /// Slot of the process.
        #[cfg_attr(feature = "serde", serde(flatten, with = "stored::slot"))]
        slot: SlotId,
        /// The label; empty for none.
        label: String,
    },
}

/// A done edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Generation of the edit, which the slots acknowledge.
    pub generation: u64,
    /// The change that undoes this one.
    pub old: Change,
}

impl Change {
    /// The edit that removes a group.
    pub fn remove_group(name: String) -> Change {
        Change::Group {
            name,
            settings: GroupEdit::default(),
            remove: true,
        }
    }

    /// Returns the slot of the process that the edit changes; `None` for an edit of a device, a group or a rule.
    pub fn slot(&self) -> Option<SlotId> {
        match self {
            Change::ProcessQuota { slot, .. }
            | Change::ProcessQuotas { slot, .. }
            | Change::ProcessShare { slot, .. }
            | Change::Trace { slot, .. }
            | Change::Label { slot, .. } => Some(*slot),
            Change::Policy { .. }
            | Change::DeviceLimit { .. }
            | Change::DeviceMemory { .. }
            | Change::Group { .. }
            | Change::Rule { .. } => None,
        }
    }
}

impl ShareEdit {
    /// The edit of one process.
    pub fn change(self, slot: SlotId) -> Change {
        Change::ProcessShare { slot, share: self }
    }
}
