//! The channel groups of this process, learned from the driver's own requests (`face::ioctl`).
//!
//! Any thread adds and removes entries, in a call of the driver's; the keeper reads them. No lock is taken: an entry has a serial
//! number that is written last and never used twice, and a reader discards an entry whose number has changed. The table is on
//! the page that is empty in a forked child ([`managed_process`](crate::managed_process)), because the child has none of the groups.

use std::{
    ffi::c_int,
    sync::atomic::{
        AtomicI32, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
};

use crate::sys::resource_manager::{File, Object};

/// Most groups that are known at once. A context has four.
const MOST: usize = 128;

/// Serial numbers of an entry without a group.
const FREE: u64 = 0;
const FILLING: u64 = 1;
const FIRST: u64 = 2;

/// A channel group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group.
    pub object: Object,
    /// The handle of the object that it belongs to.
    pub parent: u32,
    /// The descriptor on which it was made.
    pub descriptor: c_int,
    /// The file that the descriptor was then.
    pub file: File,
    /// The time slice that the driver itself set last, in microseconds; 0 if it set none.
    pub slice_us: u64,
}

/// The table; all-zero is an empty one.
pub struct ChannelGroups {
    /// The number of serial numbers that were used.
    serials: AtomicU64,
    /// The number of groups for which there was no room.
    missed: AtomicU64,
    entries: [Entry; MOST],
}

struct Entry {
    serial: AtomicU64,
    client: AtomicU32,
    handle: AtomicU32,
    parent: AtomicU32,
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    slice_us: AtomicU64,
}

impl ChannelGroups {
    /// Adds a group.
    pub fn add(&self, group: Group) {
        let claim = |entry: &&Entry| {
            entry
                .serial
                .compare_exchange(FREE, FILLING, Relaxed, Relaxed)
                .is_ok()
        };
        let Some(entry) = self.entries.iter().find(claim) else {
            self.missed.fetch_add(1, Relaxed);
            return;
        };
        entry.fill(group, self.next_serial());
    }

    /// Takes note that the driver set the slice of a group: it is another group to the keeper, which sets its own slice again.
    /// The driver gives a context's compute group its slice some 30 ms after it made it (580.159.04).
    pub fn slice_was_set(&self, object: Object, slice_us: u64) {
        for entry in &self.entries {
            let Some((serial, group)) = entry.read() else {
                continue;
            };
            let claim = || {
                entry
                    .serial
                    .compare_exchange(serial, FILLING, Relaxed, Relaxed)
            };
            if group.object == object && claim().is_ok() {
                entry.fill(Group { slice_us, ..group }, self.next_serial());
            }
        }
    }

    fn next_serial(&self) -> u64 {
        FIRST + self.serials.fetch_add(1, Relaxed)
    }

    /// Removes what the driver releases: a group, or those of a parent or of a client.
    pub fn remove(&self, released: Object) {
        for entry in &self.entries {
            let Some((serial, group)) = entry.read() else {
                continue;
            };
            let handle = released.handle;
            let is_part = [group.object.handle, group.parent, released.client].contains(&handle);
            if group.object.client == released.client && is_part {
                // Fails where another thread removes it too.
                let _ = entry
                    .serial
                    .compare_exchange(serial, FREE, Relaxed, Relaxed);
            }
        }
    }

    /// Lists the groups with their serial numbers.
    pub fn all(&self) -> impl Iterator<Item = (u64, Group)> {
        self.entries.iter().filter_map(Entry::read)
    }

    /// Returns true if no group was ever added.
    pub fn is_untouched(&self) -> bool {
        self.serials.load(Relaxed) == 0
    }

    /// Returns true if there was no room for a group.
    pub fn is_overrun(&self) -> bool {
        self.missed.load(Relaxed) != 0
    }
}

impl Entry {
    /// Fills an entry that the caller has claimed.
    fn fill(&self, group: Group, serial: u64) {
        // ORDER: pairs with the fence in `read`: a reader that sees a word below sees the changed serial number too.
        fence(Release);
        self.client.store(group.object.client, Relaxed);
        self.handle.store(group.object.handle, Relaxed);
        self.parent.store(group.parent, Relaxed);
        self.descriptor.store(group.descriptor, Relaxed);
        self.device.store(group.file.device, Relaxed);
        self.inode.store(group.file.inode, Relaxed);
        self.slice_us.store(group.slice_us, Relaxed);
        // ORDER: publishes the words; pairs with the Acquire in `read`.
        self.serial.store(serial, Release);
    }

    fn read(&self) -> Option<(u64, Group)> {
        // ORDER: pairs with the Release in `add`.
        let serial = self.serial.load(Acquire);
        let group = Group {
            object: Object {
                client: self.client.load(Relaxed),
                handle: self.handle.load(Relaxed),
            },
            parent: self.parent.load(Relaxed),
            descriptor: self.descriptor.load(Relaxed),
            file: File {
                device: self.device.load(Relaxed),
                inode: self.inode.load(Relaxed),
            },
            slice_us: self.slice_us.load(Relaxed),
        };
        // ORDER: pairs with the fence in `add`.
        fence(Acquire);
        (serial >= FIRST && self.serial.load(Relaxed) == serial).then_some((serial, group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<ChannelGroups> {
        // SAFETY: all-zero is a valid table.
        #[expect(unsafe_code, reason = "the table begins as a zeroed page does")]
        unsafe {
            Box::<ChannelGroups>::new_zeroed().assume_init()
        }
    }

    fn group(client: u32, parent: u32, handle: u32) -> Group {
        Group {
            object: Object { client, handle },
            parent,
            descriptor: 7,
            file: File {
                device: 5,
                inode: 9,
            },
            slice_us: 0,
        }
    }

    fn handles(groups: &ChannelGroups) -> Vec<u32> {
        groups.all().map(|(_, group)| group.object.handle).collect()
    }

    #[test]
    fn a_group_goes_by_itself_with_its_parent_or_with_its_client() {
        for (client, handle, left) in [
            (1, 10, vec![11, 20]),
            (1, 2, vec![20]),
            (1, 1, vec![20]),
            (3, 20, vec![10, 11]),
            (3, 10, vec![10, 11, 20]),
        ] {
            let groups = empty();
            for group in [group(1, 2, 10), group(1, 2, 11), group(3, 4, 20)] {
                groups.add(group);
            }
            groups.remove(Object { client, handle });
            assert_eq!(handles(&groups), left, "{client} {handle}");
        }
    }

    #[test]
    fn a_handle_that_is_used_again_is_another_group() {
        let groups = empty();
        groups.add(group(1, 2, 10));
        let (first, _) = groups.all().next().expect("a group");
        groups.remove(group(1, 2, 10).object);
        groups.add(group(1, 2, 10));
        let (second, again) = groups.all().next().expect("a group");
        assert_eq!(again, group(1, 2, 10));
        assert_ne!(first, second);
    }

    #[test]
    fn a_group_whose_slice_the_driver_sets_is_another_one_with_that_slice() {
        let groups = empty();
        groups.add(group(1, 2, 10));
        groups.add(group(1, 2, 11));
        let before: Vec<_> = groups.all().collect();
        groups.slice_was_set(group(1, 2, 10).object, 2_048);
        let after: Vec<_> = groups.all().collect();
        assert_eq!(after[0].1.slice_us, 2_048);
        assert_ne!(after[0].0, before[0].0);
        assert_eq!(after[1], before[1]);
        groups.slice_was_set(group(3, 2, 11).object, 2_048);
        assert_eq!(groups.all().collect::<Vec<_>>(), after);
    }

    #[test]
    fn groups_without_room_are_counted() {
        let groups = empty();
        for handle in 0..MOST as u32 {
            groups.add(group(1, 2, 100 + handle));
        }
        assert!(!groups.is_overrun());
        groups.add(group(1, 2, 99));
        assert!(groups.is_overrun());
        assert_eq!(handles(&groups).len(), MOST);
    }
}
