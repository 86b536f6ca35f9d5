//! The repair of what another tenant has written over: a process has a copy of all that its slot shows.

use super::{LaunchQuota, OwnEntry, OwnSlot};
use crate::{
    layout::state::{Device, DeviceEntry, Slot},
    protocol::{account::granted, memory_queue, primitive::Ordering},
};

impl OwnSlot {
    /// Restores entries of ours that were written over; returns true if there were any.
    pub(crate) fn restore(&self) -> bool {
        let (state, slot) = (self.segments.state(), self.words());
        let mut restored = slot.group.swap(self.group, Ordering::Relaxed) != self.group;
        restored |= self.restore_launch(slot);
        for (index, own) in self.own().iter().enumerate() {
            let Some((own, words)) = own.as_ref().zip(slot.entries.get(index)) else {
                continue;
            };
            let device = &state.devices[own.device];
            restored |= self.restore_entry(index, own, words, device);
            restored |= self.restore_figures(index, words);
            self.restore_marks(index, device);
        }
        restored
    }

    fn restore_launch(&self, slot: &Slot) -> bool {
        let words = slot.launch_words().into_iter().zip(self.launch.encode());
        words.fold(false, |restored, (word, ours)| {
            restored | (word.swap(ours, Ordering::Relaxed) != ours)
        })
    }

    /// Restores an entry and its device.
    fn restore_entry(
        &self,
        index: usize,
        own: &OwnEntry,
        words: &DeviceEntry,
        device: &Device,
    ) -> bool {
        let (at, bit) = self.slot.bit();
        let slot = self.words();
        let total = device.total_bytes.load(Ordering::Relaxed);
        let is_known = device.is_ready() && device.uuid() == own.uuid && total == own.total_bytes;
        if !is_known {
            device.write(&own.known());
        }
        let place = own.device as u32 + 1;
        let sound = words.device.load(Ordering::Relaxed) == place
            && words.ordinal.load(Ordering::Relaxed) == own.ordinal
            && LaunchQuota::of(words) == own.launch
            && slot.entry_of_device[own.device].load(Ordering::Relaxed) == index as u8 + 1
            && device.members[at].load(Ordering::Relaxed) & bit != 0;
        if !sound {
            words.ordinal.store(own.ordinal, Ordering::Relaxed);
            own.launch.write(words);
            // ORDER: as in add_device.
            words.device.store(place, Ordering::Release);
            slot.entry_of_device[own.device].store(index as u8 + 1, Ordering::Relaxed);
            // ORDER: as in add_device.
            device.members[at].fetch_or(bit, Ordering::Release);
        }
        !is_known || !sound
    }

    /// Restores what an entry says about the memory of the process.
    fn restore_figures(&self, index: usize, words: &DeviceEntry) -> bool {
        let limits = &self.cache.limits[index];
        let mps = limits.mps.load(Ordering::Relaxed);
        let mut restored = words.mps.swap(mps, Ordering::Relaxed) != mps;
        for (said, shown) in [
            (&limits.lost_ns, &words.lost_ns),
            (&limits.evicted, &words.evicted),
        ] {
            let said = said.load(Ordering::Relaxed);
            restored |= shown.swap(said, Ordering::Relaxed) != said;
        }
        if let Some(private_account) = self.private_account() {
            restored |= private_account.kept(index).show(words.account());
            let reserve = granted(private_account.reserve(index).load(Ordering::Relaxed));
            restored |= words.reserve.swap(reserve, Ordering::Relaxed) != reserve;
        }
        restored
    }

    /// Restores the marks of the process in the queue for memory.
    fn restore_marks(&self, index: usize, device: &Device) {
        let me = usize::from(self.slot.index);
        if let Ok(_queued) = self.cache.limits[index].queued.try_lock() {
            // No thread of this process is queued, and none can be queued until this ends.
            memory_queue::leave(&device.line, me);
            memory_queue::leave(&device.promises, me);
        } else if self
            .private_account()
            .is_some_and(|private_account| private_account.is_promised(index))
        {
            memory_queue::join(&device.promises, me);
        }
    }
}
