//! The identity segment of a machine with a broker: who has each slot, by the kernel's account. The broker alone writes
//! it; tenants and tools map it read-only, and believe it where `state` says otherwise.

use crate::{
    layout::shared,
    primitive::{AtomicU64, Ordering},
    protocol::seqlock,
    state::Header,
    value::{MAX_PROCESSES, SlotId},
};

/// Words of an entry.
pub(crate) const ROLL_WORDS: usize = 112;

shared! {
    /// The identity segment: only the broker writes it.
    pub(crate) struct Roll: 262400 align 64 {
        0 header: Header,
        /// The inode of the state segment that belongs to it: a new one was made when all who had the old one were gone.
        128 state: AtomicU64,
        /// The broker.
        136 pid: AtomicU64,
        144 _reserved: [AtomicU64; 14],
        256 entries: [RollEntry; MAX_PROCESSES],
    }
}

shared! {
    /// Who has a slot.
    pub(crate) struct RollEntry: 1024 align 64 {
        /// Life of the slot, and 1 while a process has it.
        0 taken: AtomicU64,
        /// A seqlock over the words.
        8 seq: AtomicU64,
        /// Until when an administrator has paused it, which its user may not undo; all ones for a pause without an end.
        16 held: AtomicU64,
        24 words: [AtomicU64; ROLL_WORDS],
        920 _reserved: [AtomicU64; 13],
    }
}

impl RollEntry {
    /// The life of the slot, if a process has it.
    pub(crate) fn live(&self) -> Option<u32> {
        // ORDER: pairs with the Release in `take` and `free`; who sees the life sees who has it.
        let taken = self.taken.load(Ordering::Acquire);
        (taken & 1 == 1).then_some((taken >> 32) as u32)
    }

    /// The newest life.
    pub(crate) fn epoch(&self) -> u32 {
        (self.taken.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Gives the slot to a process.
    pub(crate) fn take(&self, epoch: u32, words: &[u64; ROLL_WORDS]) {
        self.held.store(0, Ordering::Relaxed);
        seqlock::write(&self.seq, &self.words, words);
        // ORDER: pairs with the Acquire in `live`; publishes the words.
        self.taken
            .store(u64::from(epoch) << 32 | 1, Ordering::Release);
    }

    /// Says something else of who has it. Only the label's words may differ: see [`settle`](Self::settle).
    pub(crate) fn rewrite(&self, words: &[u64; ROLL_WORDS]) {
        seqlock::write(&self.seq, &self.words, words);
    }

    /// A broker that was killed while it changed a label left the words unreadable. All others are what they were.
    pub(crate) fn settle(&self) {
        if self.live().is_some() && self.read().is_none() {
            let words: [u64; ROLL_WORDS] =
                std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
            self.rewrite(&words);
        }
    }

    /// Takes it back. Who had it stays to be read until the next one has it.
    pub(crate) fn free(&self) {
        let epoch = u64::from(self.epoch());
        // ORDER: pairs with the Acquire in `live`; the slot was cleared before.
        self.taken.store(epoch << 32, Ordering::Release);
    }

    /// Who has it, or had it last, as [`identity`](crate::identity) writes it.
    pub(crate) fn read(&self) -> Option<[u64; ROLL_WORDS]> {
        let mut words = [0; ROLL_WORDS];
        seqlock::read(&self.seq, &self.words, &mut words)?;
        Some(words)
    }
}

impl Roll {
    /// The inode of the state that belongs to it.
    pub(crate) fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    /// A broker begins to serve, with this state.
    pub(crate) fn begin(&self, state: u64, pid: u32) {
        self.state.store(state, Ordering::Relaxed);
        self.pid.store(u64::from(pid), Ordering::Relaxed);
    }

    /// The entry of a slot.
    pub(crate) fn entry(&self, index: usize) -> Option<&RollEntry> {
        self.entries.get(index)
    }

    /// Whether this life of a slot goes on.
    pub(crate) fn lives(&self, slot: SlotId) -> bool {
        let entry = self.entry(usize::from(slot.index));
        entry.and_then(RollEntry::live) == Some(slot.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::AtomicU64;

    #[test]
    fn an_entry_whose_broker_died_over_a_label_is_read_again_by_the_next() {
        let entry = RollEntry {
            taken: AtomicU64::new(0),
            seq: AtomicU64::new(0),
            held: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            _reserved: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        let words = std::array::from_fn(|index| index as u64);
        entry.take(3, &words);
        entry.seq.fetch_or(1, Ordering::Relaxed);
        assert_eq!(entry.read(), None);
        entry.settle();
        assert_eq!(entry.read(), Some(words));
        assert_eq!(entry.live(), Some(3));
    }
}
