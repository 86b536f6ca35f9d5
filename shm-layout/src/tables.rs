//! The tables of devices and groups: entered by any process, and never half.
//!
//! A device stays. Its entry is claimed by swapping the hash of its UUID into its `key`; a process that finds its own hash
//! there writes the rest, and every process with that hash writes the same words, so it does not matter who dies when.
//!
//! A group is removed when it has no members. A process that joins one holds a byte of the file, which the dead lose,
//! until its slot refers to the entry.

use std::time::Duration;

use crate::{
    codec::{self, NameWords},
    crash::crash_point,
    primitive::{AtomicU64, Ordering, fence},
    segment::Segments,
    state::{Device, Group, Slot, State},
    value::{MAX_PROCESSES, Uuid},
};

/// The index of `key`, entered where there is room.
fn enter<'a>(keys: impl Iterator<Item = &'a AtomicU64>, key: u64) -> Option<usize> {
    for (index, word) in keys.enumerate() {
        let found = match word.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => key,
            Err(found) => found,
        };
        if found == key {
            return Some(index);
        }
    }
    None
}

impl State {
    /// A device's index; entered if it is new and there is room.
    pub(crate) fn enter_device(
        &self,
        uuid: &Uuid,
        name: &str,
        total_bytes: u64,
        flags: u32,
    ) -> Option<usize> {
        let (low, high) = codec::uuid_words(uuid);
        let index = enter(
            self.devices.iter().map(|device| &device.key),
            codec::key_of(&[low, high]),
        )?;
        self.write_device(index, uuid, name, total_bytes, flags);
        Some(index)
    }

    /// Writes a device's words, its key too: where it was entered, that changes nothing.
    pub(crate) fn write_device(
        &self,
        index: usize,
        uuid: &Uuid,
        name: &str,
        total_bytes: u64,
        flags: u32,
    ) {
        let (low, high) = codec::uuid_words(uuid);
        let device = &self.devices[index];
        device
            .key
            .store(codec::key_of(&[low, high]), Ordering::Relaxed);
        let mut words = [0; 8];
        codec::text_words(name, &mut words);
        device.uuid[0].store(low, Ordering::Relaxed);
        device.uuid[1].store(high, Ordering::Relaxed);
        device.total_bytes.store(total_bytes, Ordering::Relaxed);
        device.flags.store(flags, Ordering::Relaxed);
        for (word, value) in device.name.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        // ORDER: pairs with the Acquire in Device::is_ready; publishes the words.
        device.ready.store(1, Ordering::Release);
    }

    /// The name of the group of this index + 1, as a slot says it.
    pub(crate) fn group_name(&self, index_plus_1: u32) -> Option<NameWords> {
        self.groups
            .get((index_plus_1 as usize).checked_sub(1)?)?
            .name()
    }
}

/// The byte behind the slots' that a process holds while it joins a group.
const GROUPS: usize = MAX_PROCESSES;

/// Enters a slot's group, written where there is room: its index + 1, or 0 if there is none.
pub(crate) fn join_group(segments: &Segments, slot: &Slot, name: &NameWords) -> u32 {
    let Ok(bytes) = segments.slot_bytes(true) else {
        return 0;
    };
    for _ in 0..500 {
        if matches!(bytes.try_lock(GROUPS), Ok(true)) {
            let entered = segments
                .state()
                .enter_group(name)
                .map_or(0, |index| index as u32 + 1);
            crash_point!("group:entered");
            slot.group.store(entered, Ordering::Relaxed);
            return entered;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    0
}

impl State {
    pub(crate) fn enter_group(&self, name: &NameWords) -> Option<usize> {
        let known = self
            .groups
            .iter()
            .position(|group| group.name().as_ref() == Some(name));
        if known.is_some() {
            return known;
        }
        let used = |index: usize| {
            self.slots
                .iter()
                .any(|slot| slot.group.load(Ordering::Relaxed) as usize == index + 1)
        };
        let index = (0..self.groups.len())
            .find(|index| self.groups[*index].name().is_none() || !used(*index))?;
        self.write_group(index, name);
        Some(index)
    }

    /// Writes a group's name.
    pub(crate) fn write_group(&self, index: usize, name: &NameWords) {
        let group = &self.groups[index];
        group.ready.store(0, Ordering::Relaxed);
        // ORDER: Release, between taking the old name back and writing the new one; pairs with the Acquire in name.
        fence(Ordering::Release);
        for (word, value) in group.name.iter().zip(name) {
            word.store(*value, Ordering::Relaxed);
        }
        crash_point!("group:writing");
        // ORDER: pairs with the Acquire in Group::name; publishes the words.
        group.ready.store(1, Ordering::Release);
    }
}

impl Segments {
    /// The name of the group that a slot is in: by the roll where there is a broker, else as the slot says it.
    pub(crate) fn group_name_of(&self, slot: usize) -> Option<NameWords> {
        if let Some(roll) = self.roll() {
            return roll.group_name(slot);
        }
        let words = self.state().slots.get(slot)?;
        let member = words.group.load(Ordering::Relaxed);
        self.state().group_name(member)
    }

    /// Whether a slot's process is gone; an error where the byte cannot be looked at.
    pub(crate) fn is_gone(&self, slot: usize) -> std::io::Result<bool> {
        self.probe()?.is_gone(slot)
    }
}

impl Device {
    /// Whether its words are written.
    pub(crate) fn is_ready(&self) -> bool {
        // ORDER: pairs with the Release in enter_device.
        self.ready.load(Ordering::Acquire) == 1
    }

    pub(crate) fn uuid(&self) -> Uuid {
        codec::uuid_of(
            self.uuid[0].load(Ordering::Relaxed),
            self.uuid[1].load(Ordering::Relaxed),
        )
    }
}

impl Group {
    /// Its name, if it is whole.
    pub(crate) fn name(&self) -> Option<NameWords> {
        // ORDER: pairs with the Release in enter_group.
        if self.ready.load(Ordering::Acquire) != 1 {
            return None;
        }
        let name = std::array::from_fn(|index| self.name[index].load(Ordering::Relaxed));
        // ORDER: pairs with the Release fence in enter_group; a newer word makes the look below fail.
        fence(Ordering::Acquire);
        (self.ready.load(Ordering::Relaxed) == 1).then_some(name)
    }
}
