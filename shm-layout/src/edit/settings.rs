//! The operator's lasting settings that concern no single process: the content of a settings file.

use crate::{
    layout::{
        codec::{self, DeviceSettings, GroupSettings},
        control::SMALL_WORDS,
    },
    segment::{Segments, records::RecordId},
    value::{DeviceRecord, GroupRecord, LockPolicy, QuotaValue, Rule, Uuid},
};

/// The settings of a device, or of all that have none of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSet {
    /// Lock policy.
    pub policy: Option<LockPolicy>,
    /// Quota of all processes together.
    pub limit: QuotaValue,
    /// The settings of the memory of processes on the device.
    pub memory: DeviceRecord,
}

/// The settings of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSet {
    /// Name.
    pub name: String,
    /// The settings that its members inherit, and their common quota.
    pub set: GroupRecord,
}

/// All lasting settings. In place of a temporary setting they hold the one that follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// For every device without settings of its own.
    pub common: DeviceSet,
    /// Settings of single devices.
    pub devices: Vec<(Uuid, DeviceSet)>,
    /// The groups.
    pub groups: Vec<GroupSet>,
    /// The rules, each with its place; the first that matches holds.
    pub rules: Vec<(u8, Rule)>,
}

/// Reads the settings. A record that cannot be read completely is left out.
pub fn settings(segments: &Segments) -> Settings {
    let control = segments.control();
    let small = |id| control.read::<SMALL_WORDS>(id).unwrap_or([0; SMALL_WORDS]);
    let devices = (0..control.devices.len())
        .map(|index| DeviceSettings::decode(&small(RecordId::Device(index))))
        .filter(|device| device.present)
        .map(|device| (device.uuid, set(&device)));
    let groups = (0..control.groups.len())
        .map(|index| GroupSettings::decode(&small(RecordId::Group(index))))
        .filter(|group| group.present)
        .map(|group| GroupSet {
            name: codec::text_of(&group.name),
            set: group.set.settled(u64::MAX),
        });
    let rules = (0u8..)
        .zip(0..control.rules.len())
        .filter_map(|(place, index)| Some((place, control.rule(index).ok()??)));
    Settings {
        common: set(&control.common_settings().unwrap_or_default()),
        devices: devices.collect(),
        groups: groups.collect(),
        rules: rules.collect(),
    }
}

fn set(device: &DeviceSettings) -> DeviceSet {
    DeviceSet {
        policy: device.policy.lasting(),
        limit: device.limit,
        memory: device.memory.settled(u64::MAX),
    }
}
