//! The broker's part in the device table.

use super::{Broker, registry_of};
use crate::{
    layout::{codec, state::Device},
    protocol::primitive::Ordering,
    value::Uuid,
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
pub(super) fn show(device: &Device, uuid: Option<[u64; 2]>) {
    let Some(uuid) = uuid else {
        device.ready.store(0, Ordering::Relaxed);
        return device.key.store(0, Ordering::Relaxed);
    };
    device.key.store(codec::key_of(&uuid), Ordering::Relaxed);
    for (word, value) in device.uuid.iter().zip(uuid) {
        word.store(value, Ordering::Relaxed);
    }
}
