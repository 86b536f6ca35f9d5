//! What can be edited.

use crate::{
    ids::{SlotId, Uuid},
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

/// When a quota reverts by itself, and to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// On the segments' clock.
    pub ns: u64,
    /// What holds from then on; `None` is the lasting quota that is in force at the edit. An edit that names it may
    /// come late: it then sets this value at once.
    pub then: Option<QuotaValue>,
}

impl Until {
    /// A time at which the lasting quota returns.
    pub const fn lasting(ns: u64) -> Self {
        Self { ns, then: None }
    }
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
        /// On which of its entries; `None` for every device, later ones included: that replaces what was set for
        /// single ones, and undoing it does not bring those back.
        device: Option<u8>,
        /// The quota.
        value: QuotaValue,
        /// When it reverts by itself; `None` is a lasting one.
        until: Option<Until>,
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
    /// Whether a process's calls are traced. Its buffer is made first ([`trace::create`](crate::trace::create)).
    Trace {
        /// Whose.
        slot: SlotId,
        /// Records of the buffer; `None` ends the trace.
        on: Option<u32>,
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
