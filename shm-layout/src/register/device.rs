//! Entering a device.

use std::sync::PoisonError;

use super::{NoDevice, Registration, enter::await_begun};
use crate::{
    cached_settings::{Entry, LaunchQuota, OwnEntry},
    layout::{codec, private_account::PrivateAccount},
    os::clock,
    protocol::{crash::crash_point, primitive::Ordering},
    register::reap::reap,
    segment::tables::{self, DeviceIdentity},
    value::{MemoryLimit, QuotaValue, Uuid},
};

impl Registration {
    /// Enters a device; entering it again gives the same entry.
    pub fn add_device(
        &self,
        uuid: Uuid,
        ordinal: u8,
        name: &str,
        total_bytes: u64,
        flags: u32,
    ) -> Result<Entry, NoDevice> {
        let _entering = self.entering.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match self.own_slot.entry_on(&uuid) {
            Ok(entry) => return Ok(entry),
            Err(free) => free.ok_or(NoDevice::Process)?,
        };
        let known = DeviceIdentity {
            uuid,
            name,
            total_bytes,
            flags,
        };
        let device = match self.own_slot.private_account() {
            Some(private_account) => self.place_by_registry(private_account, index, &uuid)?,
            None => self.place_by_table(&known)?,
        };
        let (state, slot) = (self.segments().state(), self.own_slot.words());
        state.devices[device].write(&known);
        let entry = &slot.entries[index];
        entry.clear_all();
        let limit = self
            .memory
            .get(usize::from(ordinal))
            .copied()
            .unwrap_or_default();
        let (kind, bytes) = match limit {
            MemoryLimit::Unset => (0, 0),
            MemoryLimit::None => (1, 0),
            MemoryLimit::Bytes(bytes) => (2, bytes),
            MemoryLimit::Percent(percent) => {
                let share = QuotaValue::Percent(percent).of_device(total_bytes);
                (2, share.flatten().unwrap_or(total_bytes))
            }
        };
        let launch = LaunchQuota {
            kind: kind | self.memory_source.code() << 8,
            bytes,
        };
        entry.ordinal.store(u32::from(ordinal), Ordering::Relaxed);
        launch.write(entry);
        // ORDER: pairs with the Acquire loads of snapshots; publishes the words above.
        entry.device.store(device as u32 + 1, Ordering::Release);
        crash_point!("device:entered");
        slot.entry_of_device[device].store(index as u8 + 1, Ordering::Relaxed);
        let (at, bit) = self.slot().bit();
        // ORDER: Release pairs with the Acquire in each_account; a process that finds our bit finds the entry.
        state.devices[device].members[at].fetch_or(bit, Ordering::Release);
        let own = OwnEntry {
            device,
            ordinal: u32::from(ordinal),
            launch,
            uuid,
            name: name.to_owned(),
            total_bytes,
            flags,
        };
        self.own_slot.enter(index, own);
        self.own_slot.refresh();
        Ok(Entry {
            index: index as u8,
            device: device as u8,
        })
    }

    /// Returns a device's place from the broker's registry, once this process's account names the device.
    fn place_by_registry(
        &self,
        private_account: &PrivateAccount,
        entry: usize,
        uuid: &Uuid,
    ) -> Result<usize, NoDevice> {
        let segments = self.segments();
        if !await_begun(segments, self.slot()) {
            let why = "the broker of this machine has not heard that we are there; start the program again";
            return Err(NoDevice::Refused(why.to_owned()));
        }
        crash_point!("page:begun");
        let registry = segments.registry().ok_or(NoDevice::Machine)?;
        let words = codec::uuid_words(uuid).into();
        private_account.name(entry, words);
        crash_point!("page:named");
        let place = match segments.place_in(registry, *uuid, words) {
            Ok(place) => place.ok_or(NoDevice::Machine),
            Err(error) => Err(NoDevice::Refused(error.to_string())),
        };
        if place.is_err() {
            private_account.name(entry, [0; 2]);
        }
        crash_point!("page:placed");
        place
    }

    /// The place of a device in a table that is one user's alone.
    fn place_by_table(&self, known: &DeviceIdentity<'_>) -> Result<usize, NoDevice> {
        let (segments, slot) = (self.segments(), self.slot());
        let place = tables::join_device(segments, slot, known).or_else(|| {
            // The dead count as members until their slots are given back.
            reap(segments, clock::now());
            tables::join_device(segments, slot, known)
        });
        place.ok_or(NoDevice::Machine)
    }
}
