//! Entering a device, and a process's report on its context there: the state of MPS, and the loss of the context.

use std::sync::PoisonError;

use super::{NoDevice, Registration, enter::await_begun};
use crate::{
    cached_settings::{Entry, LaunchQuota, OwnEntry},
    layout::{codec, private_account::PrivateAccount, state::DeviceEntry},
    os::clock,
    protocol::{crash::crash_point, primitive::Ordering},
    register::reap::reap,
    segment::tables::{self, DeviceIdentity},
    value::{
        CardSlice, DEVICES_PER_PROCESS, Event, EventKind, Loss, MemoryLimit, QuotaValue, Uuid,
    },
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

impl Registration {
    fn words(&self, entry: Entry) -> &DeviceEntry {
        &self.own_slot.words().entries[usize::from(entry.index) % DEVICES_PER_PROCESS]
    }

    /// Publishes whether the contexts on this device are made by an MPS server, and whether MPS runs other clients first.
    pub fn publish_mps(&self, entry: Entry, mps: bool, below_normal: bool) {
        let word = codec::mps_word(mps, below_normal);
        let said = &self.own_slot.cached_limits(entry).mps;
        said.store(word, Ordering::Relaxed);
        self.words(entry).mps.store(word, Ordering::Relaxed);
    }

    /// Returns true if the contexts were reported to belong to MPS.
    pub fn is_mps(&self, entry: Entry) -> bool {
        self.own_slot.is_mps(entry)
    }

    /// Publishes the time slice that the card gives to the process on this device.
    pub fn publish_card_slice(&self, entry: Entry, slice: CardSlice) {
        let word = slice.word();
        let said = &self.own_slot.cached_limits(entry).card_slice;
        said.store(word, Ordering::Relaxed);
        self.words(entry).card_slice.store(word, Ordering::Relaxed);
    }

    /// Returns true if the context on this device is lost.
    pub fn is_lost(&self, entry: Entry) -> bool {
        let said = &self.own_slot.cached_limits(entry).lost_ns;
        said.load(Ordering::Relaxed) != 0
    }

    /// Says that the context on this device is lost. Only the first loss counts; says whether this one was.
    pub fn lose(&self, entry: Entry, code: u16, call: Option<u16>, idle_ms: u32) -> bool {
        let (words, said) = (
            self.words(entry),
            &self.own_slot.cached_limits(entry).lost_ns,
        );
        if said.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let now = clock::now();
        let first = said.compare_exchange(0, now.max(1), Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err() {
            return false;
        }
        words.lost_ns.store(now.max(1), Ordering::Relaxed);
        let loss = Loss {
            code,
            call,
            time_ns: now,
            idle_ms,
        };
        // ORDER: pairs with the Acquire in snapshots; the time is there.
        words.lost.store(codec::loss_word(&loss), Ordering::Release);
        self.segments().state().publish(Event {
            device: entry.device,
            arg0: u64::from(code) | u64::from(words.mps.load(Ordering::Relaxed)) << 16,
            arg1: u64::from(self.pid) | u64::from(idle_ms) << 32,
            call: call.unwrap_or(u16::MAX),
            ..Event::of(now, self.slot(), EventKind::Lost)
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Entry, Identity, LaunchLimits, Loss, Registration, Segments, What, os::clock,
        protocol::primitive::Ordering, register, snapshot,
    };

    fn on_a_device(segments: &Segments) -> (Registration, Entry) {
        let (identity, limits) = (Identity::of_self("x"), LaunchLimits::default());
        let process = register(segments, &identity, &limits).expect("a slot");
        let entry = process.add_device([1; 16], 0, "GPU", 1 << 30, 0);
        (process, entry.expect("room"))
    }

    #[test]
    fn what_others_write_of_its_context_and_its_memory_a_process_does_not_believe() {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let (process, entry) = on_a_device(&segments);
        let slot = &segments.state().slots[usize::from(process.slot().index)];
        let words = &slot.entries[usize::from(entry.index())];
        let scribble = |value: u64| {
            words.lost_ns.store(value, Ordering::Relaxed);
            words.lost.store(value, Ordering::Relaxed);
            words.mps.store(value as u32, Ordering::Relaxed);
            words.evicted.store(value, Ordering::Relaxed);
        };
        process.publish_mps(entry, false, false);
        scribble(2);
        assert!(!process.is_lost(entry) && !process.is_mps(entry));
        assert_eq!(
            (process.evicted_bytes(), process.ledger(entry).evicted()),
            (0, 0)
        );

        process.publish_mps(entry, true, false);
        assert!(process.lose(entry, 719, None, 0), "the first loss");
        process.ledger(entry).charge_unchecked(7);
        process.ledger(entry).evict(7, 0);
        scribble(0);
        assert!(process.is_lost(entry) && process.is_mps(entry));
        assert_eq!(
            (process.evicted_bytes(), process.ledger(entry).evicted()),
            (7, 7)
        );
        assert!(!process.lose(entry, 700, None, 0), "the second");
    }

    #[test]
    fn the_first_loss_of_a_context_is_the_one_that_is_shown() {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let (process, entry) = on_a_device(&segments);
        let view = || {
            snapshot(&segments, clock::now())
                .processes
                .remove(0)
                .devices
        };
        assert_eq!((view()[0].mps, view()[0].loss), (None, None));
        for below_normal in [false, true] {
            process.publish_mps(entry, true, below_normal);
            assert_eq!(view()[0].mps, Some(true));
            process.publish_mps(entry, false, below_normal);
            assert_eq!(view()[0].mps, Some(false));
        }

        let mut events = segments.state().events();
        assert!(process.lose(entry, 700, Some(3), 20));
        assert!(
            !process.lose(entry, 719, None, 0),
            "the second follows from it"
        );
        let loss = view()[0].loss.expect("shown");
        let first = Loss {
            code: 700,
            call: Some(3),
            time_ns: loss.time_ns,
            idle_ms: 20,
        };
        assert_eq!(loss, first);
        let event = events.next(segments.state()).expect("one").expect("whole");
        assert_eq!(event.time_ns, loss.time_ns);
        let what = What::Lost {
            code: 700,
            call: Some(3),
            mps: Some(false),
            idle_ms: 20,
            ns_pid: std::process::id(),
        };
        assert_eq!(event.what(), what);
        assert!(
            events.next(segments.state()).is_none(),
            "one event for one loss"
        );

        drop(process);
        let _next = on_a_device(&segments);
        let anew = (view()[0].mps, view()[0].loss);
        assert_eq!(anew, (None, None), "the slot's next process begins anew");
    }

    #[test]
    fn any_bytes_are_read_as_some_loss_or_none() {
        assert_eq!(crate::layout::codec::loss_of(0, 5), None);
        let odd = crate::layout::codec::loss_of(u64::MAX, u64::MAX).expect("some");
        assert_eq!((odd.code, odd.call), (u16::MAX, None));
    }
}
