//! The tables of devices and groups: entered by any process, and never half.
//!
//! A device's place is claimed by swapping the hash of its UUID into its `key`. A process that finds its own hash there writes
//! the rest. Every process with that hash writes the same words, so it does not matter which one dies when. A process becomes a
//! member before it checks that the place is still its device's. When all places are taken, one without members passes to
//! another device: MIG instances that are made anew have other names. The process that does this holds a byte of the file, and
//! marks the place before it looks at the members, so one of the two sees the other. Where there is a broker it gives the
//! places ([`registry`](crate::layout::registry)), and the table only shows them.
//!
//! A group is removed when it has no members. A process that joins one holds another byte of the file, which the dead lose,
//! until its slot refers to the entry.

use std::time::Duration;

use crate::{
    layout::{
        codec::{self, NameWords},
        state::{Device, Group, Slot, State},
    },
    os::liveness::Bytes,
    protocol::{
        crash::crash_point,
        primitive::{AtomicU64, Ordering, fence},
    },
    segment::Segments,
    value::{MAX_PROCESSES, SlotId, Uuid},
};

/// Properties of a device that a process reports when it enters it into the table.
pub(crate) struct DeviceIdentity<'a> {
    pub(crate) uuid: Uuid,
    pub(crate) name: &'a str,
    pub(crate) total_bytes: u64,
    pub(crate) flags: u32,
}

impl DeviceIdentity<'_> {
    fn key(&self) -> u64 {
        codec::key_of(&<[u64; 2]>::from(codec::uuid_words(&self.uuid)))
    }
}

/// The key of a place that may pass to another device.
const GOING: u64 = u64::MAX;

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
    pub(crate) fn enter_device(&self, known: &DeviceIdentity<'_>) -> Option<usize> {
        enter(self.devices.iter().map(|device| &device.key), known.key())
    }

    /// Returns the index + 1 of the group with this name; 0 for one that no process has named.
    pub(crate) fn group_named(&self, name: &NameWords) -> u32 {
        let mut groups = self.groups.iter();
        let found = groups.position(|group| group.name().as_ref() == Some(name));
        found.map_or(0, |index| index as u32 + 1)
    }

    /// Returns the name of a group by its index + 1, as slots hold it.
    pub(crate) fn group_name(&self, index_plus_1: u32) -> Option<NameWords> {
        self.groups
            .get((index_plus_1 as usize).checked_sub(1)?)?
            .name()
    }
}

/// The index of a device in a table that is one user's alone. The slot is among its members then, and the place is the device's
/// as long as it is.
pub(crate) fn join_device(
    segments: &Segments,
    slot: SlotId,
    known: &DeviceIdentity<'_>,
) -> Option<usize> {
    let (at, bit) = slot.bit();
    // An attempt fails only if the place passed to another device at that moment.
    for _ in 0..100 {
        let state = segments.state();
        let entered = state.enter_device(known);
        let index = entered.or_else(|| take_over(segments, known.key()))?;
        let device = &state.devices[index];
        // ORDER: SeqCst, as the look at the key; pairs with pass_to, which marks the key and looks at the members.
        device.members[at].fetch_or(bit, Ordering::SeqCst);
        crash_point!("device:joined");
        if device.key.load(Ordering::SeqCst) == known.key() {
            return Some(index);
        }
        device.members[at].fetch_and(!bit, Ordering::Relaxed);
    }
    None
}

/// Takes over the place of a device that no process uses.
fn take_over(segments: &Segments, key: u64) -> Option<usize> {
    let _alone = hold(segments, DEVICES)?;
    let devices = &segments.state().devices;
    let is_it = |device: &Device| device.key.load(Ordering::Relaxed) == key;
    // Another process may have done so for the same device.
    let known = devices.iter().position(is_it);
    known.or_else(|| devices.iter().position(|device| device.pass_to(key)))
}

impl Device {
    /// Passes the place to another device unless a process uses it. The caller holds the table's byte.
    fn pass_to(&self, key: u64) -> bool {
        let is_used = || {
            let mut members = self.members.iter();
            members.any(|word| word.load(Ordering::SeqCst) != 0)
        };
        let stays = match self.key.load(Ordering::Relaxed) {
            // An earlier caller died before it had finished.
            GOING => codec::key_of(&[0, 1].map(|at| self.uuid[at].load(Ordering::Relaxed))),
            _ if is_used() => return false,
            key => key,
        };
        // ORDER: SeqCst; pairs with join_device.
        self.key.store(GOING, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        crash_point!("device:going");
        if is_used() {
            self.key.store(stays, Ordering::SeqCst);
            return false;
        }
        self.ready.store(0, Ordering::Relaxed);
        crash_point!("device:unready");
        for word in [&self.outside, &self.outside_ns, &self.crowded_ns] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [&self.handoffs, &self.forced, &self.takeovers] {
            word.store(0, Ordering::Relaxed);
        }
        self.handoff_times.clear();
        self.key.store(key, Ordering::SeqCst);
        true
    }

    /// Writes all of it: for a process to which the place is its device's.
    pub(crate) fn write(&self, known: &DeviceIdentity<'_>) {
        self.key.store(known.key(), Ordering::Relaxed);
        self.describe(known);
    }

    /// Writes the device's properties, except its key.
    pub(crate) fn describe(&self, known: &DeviceIdentity<'_>) {
        let (low, high) = codec::uuid_words(&known.uuid);
        let mut words = [0; 8];
        codec::text_words(known.name, &mut words);
        self.uuid[0].store(low, Ordering::Relaxed);
        self.uuid[1].store(high, Ordering::Relaxed);
        self.total_bytes.store(known.total_bytes, Ordering::Relaxed);
        self.flags.store(known.flags, Ordering::Relaxed);
        for (word, value) in self.name.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        // ORDER: pairs with the Acquire in is_ready; publishes the words.
        self.ready.store(1, Ordering::Release);
    }
}

/// The bytes behind the slots' that a process holds while it joins a group, and while it takes over a device's place.
const GROUPS: usize = MAX_PROCESSES;
const DEVICES: usize = MAX_PROCESSES + 1;

/// Locks a table for as long as the result lives; `None` if another process has the lock all the time.
fn hold(segments: &Segments, byte: usize) -> Option<Bytes> {
    let bytes = segments.slot_bytes(true).ok()?;
    for _ in 0..500 {
        if matches!(bytes.try_lock(byte), Ok(true)) {
            return Some(bytes);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Enters a slot's group: its index + 1. `None` where another process is entering one and does not go on.
pub(crate) fn join_group(segments: &Segments, slot: &Slot, name: &NameWords) -> Option<u32> {
    let _alone = hold(segments, GROUPS)?;
    let entered = segments.state().enter_group(name)? as u32 + 1;
    crash_point!("group:entered");
    slot.group.store(entered, Ordering::Relaxed);
    Some(entered)
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
    /// A place of the table that a device has, and its UUID: by the registry where there is a broker.
    pub(crate) fn device(&self, index: usize) -> Option<(&Device, Uuid)> {
        let device = self.state().devices.get(index)?;
        let uuid = match self.registry() {
            Some(registry) => {
                let [low, high] = registry.devices[index].uuid()?;
                codec::uuid_of(low, high)
            }
            None => device.uuid(),
        };
        device.is_ready().then_some((device, uuid))
    }

    /// Returns the name of a slot's group: from the registry where there is a broker, else as the slot holds it.
    pub(crate) fn group_name_of(&self, slot: usize) -> Option<NameWords> {
        if let Some(registry) = self.registry() {
            return registry.group_name(slot);
        }
        let words = self.state().slots.get(slot)?;
        let member = words.group.load(Ordering::Relaxed);
        self.state().group_name(member)
    }

    /// Returns true if a slot's process is gone; an error if its lock byte cannot be queried.
    pub(crate) fn is_gone(&self, slot: usize) -> std::io::Result<bool> {
        self.probe()?.is_gone(slot)
    }
}

impl Device {
    /// Returns true once the device's words are written.
    pub(crate) fn is_ready(&self) -> bool {
        // ORDER: pairs with the Release in describe.
        self.ready.load(Ordering::Acquire) == 1
    }

    /// Returns the UUID in the table.
    pub(crate) fn uuid(&self) -> Uuid {
        let [low, high] = [0, 1].map(|at| self.uuid[at].load(Ordering::Relaxed));
        codec::uuid_of(low, high)
    }
}

impl Group {
    /// Returns the group's name, if it was written completely.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, LaunchLimits, RegisterError, os::clock, register, snapshot};

    #[test]
    fn who_is_kept_from_its_group_gets_no_slot_and_one_without_a_group_does() {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let asks = |group: Option<&str>| {
            let limits = LaunchLimits {
                group: group.map(str::to_owned),
                ..LaunchLimits::default()
            };
            register(&segments, &Identity::default(), &limits)
        };
        // Acts as a process that is stopped while it enters a group.
        let stopped = segments.slot_bytes(true).expect("ours");
        assert!(stopped.try_lock(GROUPS).expect("ours"));
        let refused = asks(Some("prod")).err();
        assert!(
            matches!(&refused, Some(RegisterError::NoGroup { name }) if name == "prod"),
            "{refused:?}"
        );
        let other = asks(None).expect("a slot");
        assert_eq!(other.slot().index, 0, "the refused one keeps none");
        drop(stopped);
        let member = asks(Some("prod")).expect("a slot");
        let view = snapshot(&segments, clock::now());
        assert_eq!(view.groups[0].members, [member.slot()]);
    }
}
