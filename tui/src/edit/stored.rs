//! An edit as the audit log keeps it: enough to do it again or to take it back, and readable.
//!
//! Values are the words a person would type (`32GiB`, `25%`, `timeslice=5ms …`); `inherit` unsets,
//! an absent value leaves the setting alone.

use serde::{Deserialize, Serialize};
use shm_layout::{Boost, Change, LockPolicy, Set, SlotId, Until};

use super::words::{read, word};
use crate::text::quota::{self, INHERIT};
use crate::text::units;
use crate::text::uuids;

/// A [`Change`] in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StoredChange {
    /// A process's memory quota.
    ProcessQuota {
        /// SlotId number.
        slot: u16,
        /// Which life of the slot.
        epoch: u32,
        /// The process's entry; `null` for every device.
        device: Option<u8>,
        /// The quota.
        value: String,
        /// When it reverts, on the segments' clock.
        until_ns: Option<u64>,
        /// To what, where that is not the lasting quota in force.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<String>,
    },
    /// A process's share of the device's time.
    ProcessShare {
        /// SlotId number.
        slot: u16,
        /// Which life of the slot.
        epoch: u32,
        /// 1 to 1000.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<String>,
        /// -20 to 19.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<String>,
        /// 1 to 100 per cent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cap: Option<String>,
        /// `true` or `false`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paused: Option<String>,
        /// `PRIORITY until NS`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        boost: Option<String>,
    },
    /// A device's lock policy, or everybody's.
    Policy {
        /// UUID; `null` for all without one of their own.
        device: Option<String>,
        /// The policy.
        policy: String,
    },
    /// What all processes together may hold on a device.
    DeviceLimit {
        /// UUID.
        device: String,
        /// The limit.
        value: String,
    },
    /// A group.
    Group {
        /// Its name.
        name: String,
        /// What its members may hold together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory: Option<String>,
        /// Each member's weight.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<String>,
        /// Each member's cap.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cap: Option<String>,
        /// Removes it.
        remove: bool,
    },
    /// Whether a process is traced.
    Trace {
        /// SlotId and epoch.
        slot: u16,
        /// Epoch.
        epoch: u32,
        /// Records of its buffer; without them the trace ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        records: Option<u32>,
    },
}

impl From<&Change> for StoredChange {
    fn from(change: &Change) -> Self {
        match change {
            Change::ProcessQuota {
                slot,
                device,
                value,
                until,
            } => Self::ProcessQuota {
                slot: slot.index,
                epoch: slot.epoch,
                device: *device,
                value: quota::format(*value),
                until_ns: until.map(|until| until.ns),
                then: until.and_then(|until| until.then).map(quota::format),
            },
            Change::ProcessShare {
                slot,
                weight,
                priority,
                cap,
                paused,
                boost,
            } => Self::ProcessShare {
                slot: slot.index,
                epoch: slot.epoch,
                weight: word(weight, u32::to_string),
                priority: word(priority, i32::to_string),
                cap: word(cap, u32::to_string),
                paused: word(paused, bool::to_string),
                boost: word(boost, |boost| {
                    format!("{} until {}", boost.priority, boost.until_ns)
                }),
            },
            Change::Policy { device, policy } => Self::Policy {
                device: device.map(|uuid| uuids::format(uuid, false)),
                policy: policy
                    .as_ref()
                    .map_or_else(|| INHERIT.into(), units::format_policy),
            },
            Change::DeviceLimit { uuid, value } => Self::DeviceLimit {
                device: uuids::format(*uuid, false),
                value: quota::format(*value),
            },
            Change::Group {
                name,
                memory,
                weight,
                cap,
                remove,
            } => Self::Group {
                name: name.clone(),
                memory: word(memory, |value| quota::format(*value)),
                weight: word(weight, u32::to_string),
                cap: word(cap, u32::to_string),
                remove: *remove,
            },
            Change::Trace { slot, on } => Self::Trace {
                slot: slot.index,
                epoch: slot.epoch,
                records: *on,
            },
        }
    }
}

impl StoredChange {
    /// The edit again; `None` when the log was written by a later version or by hand, wrongly.
    pub fn to_change(&self) -> Option<Change> {
        Some(match self {
            Self::ProcessQuota {
                slot,
                epoch,
                device,
                value,
                until_ns,
                then,
            } => Change::ProcessQuota {
                slot: SlotId {
                    index: *slot,
                    epoch: *epoch,
                },
                device: *device,
                value: quota::parse(value).ok()?,
                until: match (*until_ns, then) {
                    (None, _) => None,
                    (Some(ns), None) => Some(Until::lasting(ns)),
                    (Some(ns), Some(then)) => Some(Until {
                        ns,
                        then: Some(quota::parse(then).ok()?),
                    }),
                },
            },
            Self::ProcessShare {
                slot,
                epoch,
                weight,
                priority,
                cap,
                paused,
                boost,
            } => Change::ProcessShare {
                slot: SlotId {
                    index: *slot,
                    epoch: *epoch,
                },
                weight: read(weight, |text| text.parse().ok())?,
                priority: read(priority, |text| text.parse().ok())?,
                cap: read(cap, |text| text.parse().ok())?,
                paused: read(paused, |text| text.parse().ok())?,
                boost: read(boost, |text| {
                    let (priority, until) = text.split_once(" until ")?;
                    Some(Boost {
                        priority: priority.parse().ok()?,
                        until_ns: until.parse().ok()?,
                    })
                })?,
            },
            Self::Policy { device, policy } => Change::Policy {
                device: match device {
                    Some(device) => Some(uuids::parse(device)?),
                    None => None,
                },
                policy: match policy.as_str() {
                    INHERIT => None,
                    policy => Some(
                        units::parse_policy(&[policy])
                            .ok()?
                            .apply(LockPolicy::default())
                            .ok()?,
                    ),
                },
            },
            Self::DeviceLimit { device, value } => Change::DeviceLimit {
                uuid: uuids::parse(device)?,
                value: quota::parse(value).ok()?,
            },
            Self::Group {
                name,
                memory,
                weight,
                cap,
                remove,
            } => Change::Group {
                name: name.clone(),
                memory: read(memory, |text| quota::parse(text).ok())?,
                weight: read(weight, |text| text.parse().ok())?,
                cap: read(cap, |text| text.parse().ok())?,
                remove: *remove,
            },
            Self::Trace {
                slot,
                epoch,
                records,
            } => Change::Trace {
                slot: SlotId {
                    index: *slot,
                    epoch: *epoch,
                },
                on: *records,
            },
        })
    }

    /// Whether all it did has ended by itself at a time.
    pub fn has_run_out(&self, now_ns: u64) -> bool {
        match self.to_change() {
            Some(Change::ProcessQuota { until, .. }) => {
                until.is_some_and(|until| until.ns <= now_ns)
            }
            Some(Change::ProcessShare {
                weight: Set::Keep,
                priority: Set::Keep,
                cap: Set::Keep,
                paused: Set::Keep,
                boost: Set::To(boost),
                ..
            }) => boost.until_ns <= now_ns,
            _ => false,
        }
    }

    /// Whether both edits concern the same settings, so that one hides the other.
    pub fn same_subject(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::ProcessQuota {
                    slot,
                    epoch,
                    device,
                    ..
                },
                Self::ProcessQuota {
                    slot: s,
                    epoch: e,
                    device: d,
                    ..
                },
            ) => (slot, epoch) == (s, e) && (device == d || device.is_none() || d.is_none()),
            (
                Self::ProcessShare { slot, epoch, .. },
                Self::ProcessShare {
                    slot: s, epoch: e, ..
                },
            ) => (slot, epoch) == (s, e),
            (Self::Policy { device, .. }, Self::Policy { device: d, .. }) => device == d,
            (Self::DeviceLimit { device, .. }, Self::DeviceLimit { device: d, .. }) => device == d,
            (Self::Group { name, .. }, Self::Group { name: n, .. }) => name == n,
            (
                Self::Trace { slot, epoch, .. },
                Self::Trace {
                    slot: s, epoch: e, ..
                },
            ) => (slot, epoch) == (s, e),
            _ => false,
        }
    }

    /// The new values in few words, as the audit shows them: `quota 32GiB`, `weight=200 cap=30`.
    pub fn summary(&self) -> String {
        let pairs = |pairs: &[(&str, &Option<String>)]| {
            let said = pairs
                .iter()
                .filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
            said.collect::<Vec<_>>().join(" ")
        };
        match self {
            Self::ProcessQuota {
                value, until_ns, ..
            } => {
                format!(
                    "quota {value}{}",
                    if until_ns.is_some() {
                        " for a while"
                    } else {
                        ""
                    }
                )
            }
            Self::ProcessShare {
                weight,
                priority,
                cap,
                paused,
                boost,
                ..
            } => {
                // Nobody reads the segments' clock.
                let boost = boost.as_ref().map(|text| match text.split_once(" until ") {
                    Some((priority, _)) => format!("{priority} for a while"),
                    None => text.clone(),
                });
                pairs(&[
                    ("weight", weight),
                    ("priority", priority),
                    ("cap", cap),
                    ("paused", paused),
                    ("boost", &boost),
                ])
            }
            Self::Policy { policy, .. } => format!("policy {policy}"),
            Self::DeviceLimit { value, .. } => format!("limit {value}"),
            Self::Group { remove: true, .. } => "removed".into(),
            Self::Group {
                memory,
                weight,
                cap,
                ..
            } => pairs(&[("memory", memory), ("weight", weight), ("cap", cap)]),
            Self::Trace { records: None, .. } => "trace off".into(),
            Self::Trace {
                records: Some(records),
                ..
            } => format!("trace of {records} records"),
        }
    }
}

#[cfg(test)]
mod tests {
    use shm_layout::QuotaValue;

    use super::*;

    fn examples() -> Vec<Change> {
        let slot = SlotId { index: 3, epoch: 9 };
        vec![
            Change::ProcessQuota {
                slot,
                device: Some(1),
                value: QuotaValue::Bytes(32 << 30),
                until: Some(Until {
                    ns: 7,
                    then: Some(QuotaValue::Unlimited),
                }),
            },
            Change::ProcessQuota {
                slot,
                device: None,
                value: QuotaValue::Percent(25),
                until: None,
            },
            Change::ProcessShare {
                slot,
                weight: Set::To(200),
                priority: Set::Inherit,
                cap: Set::Keep,
                paused: Set::To(true),
                boost: Set::To(Boost {
                    priority: -3,
                    until_ns: 99,
                }),
            },
            Change::Policy {
                device: None,
                policy: Some(LockPolicy::default()),
            },
            Change::Policy {
                device: Some([7; 16]),
                policy: None,
            },
            Change::DeviceLimit {
                uuid: [9; 16],
                value: QuotaValue::Unlimited,
            },
            Change::Group {
                name: "team".into(),
                memory: Set::To(QuotaValue::Inherit),
                weight: Set::Keep,
                cap: Set::To(30),
                remove: false,
            },
        ]
    }

    #[test]
    fn a_stored_edit_is_the_same_edit_again() {
        for change in examples() {
            let line = serde_json::to_string(&StoredChange::from(&change)).expect("plain data");
            let stored: StoredChange = serde_json::from_str(&line).expect("our own line");
            let again = stored.to_change().expect("our own words");
            // `Set::To(Inherit)` and `Set::Inherit` mean the same to a group's memory.
            assert_eq!(
                StoredChange::from(&again),
                StoredChange::from(&change),
                "{line}"
            );
        }
    }

    #[test]
    fn edits_of_one_subject_are_told_from_edits_of_another() {
        let stored: Vec<StoredChange> = examples().iter().map(StoredChange::from).collect();
        assert!(
            stored[0].same_subject(&stored[1]),
            "a quota for all devices covers one device"
        );
        assert!(!stored[0].same_subject(&stored[2]));
        assert!(!stored[3].same_subject(&stored[4]));
    }
}
