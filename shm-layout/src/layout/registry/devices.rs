//! The places of devices in the table.
//!
//! A process names a device in its [private account](crate::layout::private_account) and then looks for it here. The broker
//! that takes a place back removes it here and then looks at the accounts. So one of the two sees the other.

use super::Registry;
use crate::{
    layout::shared,
    protocol::primitive::{AtomicU64, Ordering, fence},
};

shared! {
    /// A device, in its place in the table.
    pub(crate) struct RegistryDevice: 24 align 8 {
        /// Counts; odd while the place is taken.
        0 taken: AtomicU64,
        8 uuid: [AtomicU64; 2],
    }
}

impl RegistryDevice {
    /// Returns the UUID of the device that has this place.
    pub(crate) fn uuid(&self) -> Option<[u64; 2]> {
        // ORDER: Acquire pairs with the Release in take; the words are those of that device. SeqCst pairs with the store in
        // take_back: a process that named the device before sees that the place is taken back, or its name is seen.
        let taken = self.taken.load(Ordering::SeqCst);
        let uuid = [0, 1].map(|index| self.uuid[index].load(Ordering::Relaxed));
        // ORDER: pairs with the Release fence in take; a newer word makes the look below fail.
        fence(Ordering::Acquire);
        (taken & 1 == 1 && self.taken.load(Ordering::Relaxed) == taken).then_some(uuid)
    }

    /// Gives a free place to a device.
    pub(crate) fn take(&self, uuid: [u64; 2]) {
        let free = self.taken.load(Ordering::Relaxed);
        // ORDER: Release, between taking the old name back and writing the new one; pairs with the Acquire fence in uuid.
        fence(Ordering::Release);
        for (word, value) in self.uuid.iter().zip(uuid) {
            word.store(value, Ordering::Relaxed);
        }
        // ORDER: pairs with the Acquire in uuid; publishes the words.
        self.taken
            .store(free.wrapping_add(1) | 1, Ordering::Release);
    }

    /// Takes a place back, unless a process uses the device. Returns true if the place is free then.
    pub(crate) fn take_back(&self, is_used: impl Fn([u64; 2]) -> bool) -> bool {
        let Some(uuid) = self.uuid() else { return true };
        let taken = self.taken.load(Ordering::Relaxed);
        // ORDER: SeqCst, as the fence before the private accounts are read; pairs with the fence of a process that names the
        // device there (PrivateAccount::name) and then reads this word.
        self.taken.store(taken.wrapping_add(1), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let used = is_used(uuid);
        if used {
            self.take(uuid);
        }
        !used
    }
}

impl Registry {
    /// The place of a device.
    pub(crate) fn device(&self, uuid: [u64; 2]) -> Option<usize> {
        let mut places = self.devices.iter();
        places.position(|device| device.uuid() == Some(uuid))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn who_names_a_device_and_finds_its_place_keeps_it_however_the_broker_takes_it_back_meanwhile()
    {
        const DEVICE: [u64; 2] = [7, 9];
        let place = RegistryDevice {
            taken: AtomicU64::new(0),
            uuid: [AtomicU64::new(0), AtomicU64::new(0)],
        };
        assert_eq!(place.uuid(), None);
        let (named, both) = (AtomicU64::new(0), Barrier::new(2));
        for _ in 0..5000 {
            place.take(DEVICE);
            named.store(0, Ordering::SeqCst);
            let (found, taken_back) = std::thread::scope(|scope| {
                let process = scope.spawn(|| {
                    both.wait();
                    // As Page::name does.
                    named.store(1, Ordering::Relaxed);
                    fence(Ordering::SeqCst);
                    place.uuid() == Some(DEVICE)
                });
                both.wait();
                let is_used = |of| of == DEVICE && named.load(Ordering::Relaxed) == 1;
                let taken_back = place.take_back(is_used);
                (process.join().expect("no panic"), taken_back)
            });
            assert!(!(found && taken_back));
            assert_eq!(place.uuid().is_none(), taken_back);
        }
    }
}
