//! The tables of devices and groups: entered once, by anybody, and never half.
//!
//! An entry is claimed by swapping the hash of its name into its `key`. Whoever finds its own hash there writes the
//! rest, and everybody with that hash writes the same words, so it does not matter who dies when.

use crate::{
    codec::{self, NameWords},
    ids::Uuid,
    primitive::{AtomicU64, Ordering},
    state::{Device, Group, State},
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
        let device = &self.devices[index];
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
        Some(index)
    }

    /// A group's index; entered if it is new and there is room.
    pub(crate) fn enter_group(&self, name: &NameWords) -> Option<usize> {
        let index = enter(
            self.groups.iter().map(|group| &group.key),
            codec::key_of(name),
        )?;
        let group = &self.groups[index];
        for (word, value) in group.name.iter().zip(name) {
            word.store(*value, Ordering::Relaxed);
        }
        // ORDER: pairs with the Acquire in Group::name; publishes the words.
        group.ready.store(1, Ordering::Release);
        Some(index)
    }

    /// The name of the group of this index + 1, as a slot says it.
    pub(crate) fn group_name(&self, index_plus_1: u32) -> Option<NameWords> {
        self.groups
            .get((index_plus_1 as usize).checked_sub(1)?)?
            .name()
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
    /// Its name, once it is written.
    pub(crate) fn name(&self) -> Option<NameWords> {
        // ORDER: pairs with the Release in enter_group.
        (self.ready.load(Ordering::Acquire) == 1)
            .then(|| std::array::from_fn(|index| self.name[index].load(Ordering::Relaxed)))
    }
}
