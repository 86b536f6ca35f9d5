//! The broker's part in the tables of devices and groups. The registry names both, and the groups' members. The tables in the
//! state serve only the tools, because tenants can write them: a tenant that renamed a group there would otherwise give the
//! group's next member a second group with its own limit.

use super::{Broker, registry_of};
use crate::{
    layout::{
        codec::{self, NameWords},
        registry::{Registry, RegistryGroup},
        state::{Device, State},
    },
    protocol::primitive::Ordering,
    value::{SlotId, Uuid},
};

impl Broker {
    /// Lists the devices that have a place in the registry.
    pub fn devices(&self) -> impl Iterator<Item = Uuid> {
        let devices = registry_of(&self.segments).devices.iter();
        devices.filter_map(|device| device.uuid().map(|[low, high]| codec::uuid_of(low, high)))
    }

    /// Gives a device a place: one that no device had, so that a device that returns finds its own, else that of a device which
    /// no process uses. Returns false if there is none.
    pub fn place_device(&self, uuid: Uuid, is_used: impl Fn(Uuid) -> bool) -> bool {
        let devices = &registry_of(&self.segments).devices;
        let is_used = |[low, high]: [u64; 2]| is_used(codec::uuid_of(low, high));
        let place = devices.iter().find(|device| device.uuid().is_none());
        let place = place.or_else(|| devices.iter().find(|device| device.take_back(is_used)));
        if let Some(place) = place {
            place.take(codec::uuid_words(&uuid).into());
        }
        place.is_some()
    }
}

/// Corrects the table's words of a place by the registry.
fn show_device(device: &Device, uuid: Option<[u64; 2]>) {
    let Some(uuid) = uuid else {
        device.ready.store(0, Ordering::Relaxed);
        return device.key.store(0, Ordering::Relaxed);
    };
    device.key.store(codec::key_of(&uuid), Ordering::Relaxed);
    for (word, value) in device.uuid.iter().zip(uuid) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Returns the place of the group of this name, with or without members. There are as many places as slots, so a slot in no
/// group finds a free one.
pub(super) fn group_place(registry: &Registry, name: &NameWords) -> Option<usize> {
    let is_it = |group: &RegistryGroup| group.is_used() && group.name() == *name;
    let known = registry.groups.iter().position(is_it);
    known.or_else(|| registry.groups.iter().position(|group| !group.is_used()))
}

/// Enters a slot in the group of this name at its place, or in none: the group's index + 1, or 0.
pub(super) fn enter_group(
    registry: &Registry,
    state: &State,
    slot: SlotId,
    group: Option<(usize, NameWords)>,
) -> u32 {
    let Some((index, name)) = group else {
        registry.enter(slot, 0);
        return 0;
    };
    registry.groups[index].rename(&name);
    let member = index as u32 + 1;
    registry.enter(slot, member);
    write_group(registry, state, index);
    member
}

/// Repairs words of both tables that tenants overwrote.
pub(super) fn repair(registry: &Registry, state: &State) {
    for (index, group) in registry.groups.iter().enumerate() {
        if group.is_used() {
            write_group(registry, state, index);
        }
    }
    for (device, place) in state.devices.iter().zip(&registry.devices) {
        show_device(device, place.uuid());
    }
}

fn write_group(registry: &Registry, state: &State, index: usize) {
    let name = registry.groups[index].name();
    if state.group_name(index as u32 + 1) != Some(name) {
        state.write_group(index, &name);
    }
}
