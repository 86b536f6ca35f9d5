//! The identity segment of a machine with a broker: the process that has each slot, as the kernel reports it, and the members
//! of each group. Only the broker writes it. Tenants and tools map it read-only, and believe it where `state` differs. It also
//! names the place of each device in the table. Otherwise a tenant that writes over the table could have one device locked in
//! two places.

mod devices;

pub(crate) use devices::RegistryDevice;

use crate::{
    layout::{shared, state::Header},
    protocol::{
        primitive::{AtomicU64, Ordering},
        seqlock,
        turn::BITMAP,
    },
    value::{MAX_DEVICES, MAX_PROCESSES, SlotId},
};

/// Words of an entry.
pub(crate) const REGISTRY_WORDS: usize = 112;

shared! {
    /// The identity segment: only the broker writes it.
    pub(crate) struct Registry: 280320 align 64 {
        0 header: Header,
        /// Inode of the state segment that belongs to it. A new state is made when all processes that had the old one are gone.
        128 state: AtomicU64,
        /// The broker.
        136 pid: AtomicU64,
        /// The slots that are taken.
        144 slots: [AtomicU64; BITMAP],
        /// Upper bounds of a launch: the priority in the low half, the weight above it.
        176 launch: AtomicU64,
        /// Number of processes that found no slot. Where there is no broker, `state` holds this count.
        184 unmanaged: AtomicU64,
        /// Time when the last process found no slot.
        192 unmanaged_ns: AtomicU64,
        200 _reserved: [AtomicU64; 7],
        256 entries: [RegistryEntry; MAX_PROCESSES],
        /// A process is in one group at most, so each finds a place for its own.
        262400 groups: [RegistryGroup; MAX_PROCESSES],
        278784 devices: [RegistryDevice; MAX_DEVICES],
    }
}

shared! {
    /// A group.
    pub(crate) struct RegistryGroup: 64 align 64 {
        /// Written while the group has no slots.
        0 name: [AtomicU64; 4],
        /// The slots whose processes are in it.
        32 slots: [AtomicU64; BITMAP],
    }
}

shared! {
    /// The owner of a slot, as the broker recorded it.
    pub(crate) struct RegistryEntry: 1024 align 64 {
        /// Life of the slot, [`TAKEN`] while a process has it, and [`BEGUN`].
        0 taken: AtomicU64,
        /// A seqlock over the words.
        8 seq: AtomicU64,
        /// End of an administrator's pause, which the process's user may not undo; all ones for a pause without an end.
        16 held: AtomicU64,
        24 words: [AtomicU64; REGISTRY_WORDS],
        /// Inode of the process's accounts (`private_account`).
        920 page: AtomicU64,
        928 _reserved: [AtomicU64; 12],
    }
}

/// A process has the slot.
const TAKEN: u64 = 1;
/// The broker hands out the process's account to others: from now on the process may hold something.
const BEGUN: u64 = 2;

impl RegistryEntry {
    /// The life of the slot, if a process has it.
    pub(crate) fn live(&self) -> Option<u32> {
        // ORDER: pairs with the Release in `take` and `free`: a reader that sees the life sees its owner.
        let taken = self.taken.load(Ordering::Acquire);
        (taken & TAKEN != 0).then_some((taken >> 32) as u32)
    }

    /// The life of the slot, if its process may hold something.
    pub(crate) fn begun(&self) -> Option<u32> {
        // ORDER: pairs with the Release in `begin`.
        let taken = self.taken.load(Ordering::Acquire);
        (taken & BEGUN != 0).then_some((taken >> 32) as u32)
    }

    /// Marks that the process of this life may hold something.
    pub(crate) fn begin(&self, epoch: u32) {
        self.turn(epoch, TAKEN, TAKEN | BEGUN);
    }

    /// Clears [`BEGUN`]: other processes can no longer see what this one holds.
    pub(crate) fn withdraw(&self, epoch: u32) {
        self.turn(epoch, TAKEN | BEGUN, TAKEN);
    }

    /// Changes the bits beside the life of a slot, unless another thread takes the slot back.
    fn turn(&self, epoch: u32, from: u64, to: u64) {
        let word = |bits| u64::from(epoch) << 32 | bits;
        // ORDER: Release pairs with the Acquire in `begun`.
        let _ =
            self.taken
                .compare_exchange(word(from), word(to), Ordering::Release, Ordering::Relaxed);
    }

    /// The inode of its accounts.
    pub(crate) fn account_inode(&self) -> u64 {
        self.page.load(Ordering::Relaxed)
    }

    /// The newest life.
    pub(crate) fn epoch(&self) -> u32 {
        (self.taken.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Gives the slot to a process.
    pub(crate) fn take(&self, epoch: u32, words: &[u64; REGISTRY_WORDS], page: u64) {
        self.held.store(0, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
        seqlock::write(&self.seq, &self.words, words);
        // ORDER: pairs with the Acquire in `live`; publishes the words.
        self.taken
            .store(u64::from(epoch) << 32 | TAKEN, Ordering::Release);
    }

    /// Rewrites the words of the owner. Only the label's words may differ: see [`settle`](Self::settle).
    pub(crate) fn rewrite(&self, words: &[u64; REGISTRY_WORDS]) {
        seqlock::write(&self.seq, &self.words, words);
    }

    /// Makes the words readable again after a broker was killed while it changed a label. All other words are unchanged.
    pub(crate) fn settle(&self) {
        if self.live().is_some() && self.read().is_none() {
            let words: [u64; REGISTRY_WORDS] =
                std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
            self.rewrite(&words);
        }
    }

    /// Takes the slot back. The last owner's words stay readable until the next one has it.
    pub(crate) fn free(&self) {
        let epoch = u64::from(self.epoch());
        // ORDER: pairs with the Acquire in `live`; the slot was cleared before.
        self.taken.store(epoch << 32, Ordering::Release);
    }

    /// Reads the words of the slot's present or last owner, as [`identity`](crate::segment::identity) writes them.
    pub(crate) fn read(&self) -> Option<[u64; REGISTRY_WORDS]> {
        let mut words = [0; REGISTRY_WORDS];
        seqlock::read(&self.seq, &self.words, &mut words)?;
        Some(words)
    }
}

impl Registry {
    /// The inode of the state that belongs to it.
    pub(crate) fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    /// A broker begins to serve, with this state.
    pub(crate) fn begin(&self, state: u64, pid: u32) {
        self.state.store(state, Ordering::Relaxed);
        self.pid.store(u64::from(pid), Ordering::Relaxed);
    }

    /// A launch may ask for this priority and this weight at most.
    pub(crate) fn bound_launches(&self, (priority, weight): (i32, u32)) {
        let word = u64::from(priority as u32) | u64::from(weight) << 32;
        self.launch.store(word, Ordering::Relaxed);
    }

    /// Returns the highest priority and the highest weight that a launch may ask for.
    pub(crate) fn launch_bounds(&self) -> (i32, u32) {
        let word = self.launch.load(Ordering::Relaxed);
        (word as u32 as i32, (word >> 32) as u32)
    }

    /// Counts a process that found no slot.
    pub(crate) fn count_unmanaged(&self, now_ns: u64) {
        self.unmanaged_ns.store(now_ns, Ordering::Relaxed);
        self.unmanaged.fetch_add(1, Ordering::Relaxed);
    }

    /// The entry of a slot.
    pub(crate) fn entry(&self, index: usize) -> Option<&RegistryEntry> {
        self.entries.get(index)
    }

    /// A slot is taken, in the group of this index + 1; 0 for none.
    pub(crate) fn enter(&self, slot: SlotId, group: u32) {
        let (at, bit) = slot.bit();
        let group = self.group(group).map(|group| &group.slots);
        for slots in group.into_iter().chain([&self.slots]) {
            slots[at].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// A slot is free.
    pub(crate) fn leave(&self, slot: SlotId) {
        let (at, bit) = slot.bit();
        let groups = self.groups.iter().map(|group| &group.slots);
        for slots in groups.chain([&self.slots]) {
            slots[at].fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The group of this index + 1.
    pub(crate) fn group(&self, index_plus_1: u32) -> Option<&RegistryGroup> {
        self.groups.get((index_plus_1 as usize).checked_sub(1)?)
    }

    /// The index + 1 of the group with this name that has members; 0 for none.
    pub(crate) fn group_named(&self, name: &[u64; 4]) -> u32 {
        let mut groups = self.groups.iter();
        let found = groups.position(|group| group.is_used() && group.name() == *name);
        found.map_or(0, |index| index as u32 + 1)
    }

    /// The name of the group that a slot is in.
    pub(crate) fn group_name(&self, slot: usize) -> Option<[u64; 4]> {
        let group = self.groups.iter().find(|group| group.has(slot));
        group.map(RegistryGroup::name)
    }

    /// Lists the slots whose accounts count towards a limit: all that may hold something, or those in a group (its index + 1).
    pub(crate) fn members(&self, group: Option<u32>) -> impl Iterator<Item = SlotId> {
        let slots = match group {
            None => Some(&self.slots),
            Some(group) => self.group(group).map(|group| &group.slots),
        };
        let words = slots.into_iter().flatten().enumerate();
        words.flat_map(|(at, word)| {
            let mut bits = word.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(at * 64 + bit as usize)
            })
            .filter_map(|index| {
                Some(SlotId {
                    index: index as u16,
                    epoch: self.entry(index)?.begun()?,
                })
            })
        })
    }

    /// Returns true while this life of a slot has not ended.
    pub(crate) fn is_current(&self, slot: SlotId) -> bool {
        let entry = self.entry(usize::from(slot.index));
        entry.and_then(RegistryEntry::live) == Some(slot.epoch)
    }
}

impl RegistryGroup {
    /// Returns the group's name.
    pub(crate) fn name(&self) -> [u64; 4] {
        std::array::from_fn(|index| self.name[index].load(Ordering::Relaxed))
    }

    /// Names it anew.
    pub(crate) fn rename(&self, name: &[u64; 4]) {
        for (word, value) in self.name.iter().zip(name) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// Returns true if a slot is in the group.
    pub(crate) fn has(&self, slot: usize) -> bool {
        let word = self.slots.get(slot / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (slot % 64) != 0)
    }

    /// Returns true if any slot is in the group.
    pub(crate) fn is_used(&self) -> bool {
        self.slots
            .iter()
            .any(|word| word.load(Ordering::Relaxed) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::primitive::AtomicU64;

    #[test]
    fn an_entry_whose_broker_died_over_a_label_is_read_again_by_the_next() {
        let entry = RegistryEntry {
            taken: AtomicU64::new(0),
            seq: AtomicU64::new(0),
            held: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            page: AtomicU64::new(0),
            _reserved: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        let words = std::array::from_fn(|index| index as u64);
        entry.take(3, &words, 0);
        entry.seq.fetch_or(1, Ordering::Relaxed);
        assert_eq!(entry.read(), None);
        entry.settle();
        assert_eq!(entry.read(), Some(words));
        assert_eq!((entry.live(), entry.begun()), (Some(3), None));
        entry.begin(2);
        assert_eq!(entry.begun(), None, "it was another life's");
        entry.begin(3);
        assert_eq!((entry.live(), entry.begun()), (Some(3), Some(3)));
        entry.free();
        assert_eq!((entry.live(), entry.begun()), (None, None));
    }
}
