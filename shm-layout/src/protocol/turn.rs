//! Whose turn it is on a device: one owner word, a bitmap of waiters, and direct hand-off.
//!
//! ```text
//!   free ──take──▶ owner A ──pass──▶ owner B ──pass──▶ … ──▶ free
//!                     └────evict (A is dead or overdue)──▶ owner B
//! ```
//!
//! The owner word changes only by compare-and-swap from a value its changer has looked at, so of a release, a
//! takeover and a forced release exactly one happens. A waiter first sets its bit and then looks at the word; a
//! releaser first frees the word and then looks at the bits: one of them sees the other, and no wake-up is lost.

use crate::primitive::{AtomicU64, Ordering};

/// Words of the waiters' bitmap.
pub const BITMAP: usize = 4;

/// A device's words.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// The owner, as a slot word; 0 when free.
    pub owner: &'a AtomicU64,
    /// One bit for each slot that waits.
    pub waiters: &'a [AtomicU64],
    /// Who is inside: written only to prove that there is never a second one.
    pub inside: &'a AtomicU64,
    /// Who was last put out: it may not know yet.
    pub evicted: &'a AtomicU64,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The owner was not who we thought: somebody else changed it.
    Moved,
    /// Nobody eligible waits; the lock is free.
    Free,
    /// It is this one's turn, who has to be woken.
    To(u64),
}

impl Turn<'_> {
    /// Takes a free lock.
    pub fn take(&self, me: u64) -> bool {
        // ORDER: Acquire pairs with the owner's last pass; SeqCst orders us against its look at the waiters.
        self.owner
            .compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Whose turn it is.
    pub fn owner(&self) -> u64 {
        // ORDER: SeqCst, after our own bit in the total order (see join).
        self.owner.load(Ordering::SeqCst)
    }

    /// Queues a slot.
    pub fn join(&self, slot: usize) {
        if let Some(word) = self.waiters.get(slot / 64) {
            // ORDER: SeqCst, before our next look at the owner; pairs with pass, which frees first and looks then.
            word.fetch_or(1 << (slot % 64), Ordering::SeqCst);
        }
    }

    /// Takes a slot out of the queue.
    pub fn leave(&self, slot: usize) {
        if let Some(word) = self.waiters.get(slot / 64) {
            // ORDER: SeqCst, before our next look at the owner: a turn given before this is seen by it.
            word.fetch_and(!(1 << (slot % 64)), Ordering::SeqCst);
        }
    }

    /// The waiters, as a copy of the bitmap.
    pub fn waiting(&self) -> [u64; BITMAP] {
        let mut bits = [0; BITMAP];
        for (bit, word) in bits.iter_mut().zip(self.waiters) {
            // ORDER: SeqCst, after the owner word was freed (see pass).
            *bit = word.load(Ordering::SeqCst);
        }
        bits
    }

    /// Whether anybody waits.
    pub fn anybody(&self) -> bool {
        self.waiting() != [0; BITMAP]
    }

    /// Gives the turn of `from` to whom `choose` names, or to nobody. `from` is the caller itself, or 0, or an owner
    /// who is dead or overdue and was [evicted](Self::evict).
    pub fn pass(&self, from: u64, mut choose: impl FnMut(&[u64; BITMAP]) -> Option<u64>) -> Passed {
        let mut from = from;
        loop {
            let bits = self.waiting();
            let to = if bits == [0; BITMAP] {
                None
            } else {
                choose(&bits)
            };
            if from == 0 && to.is_none() {
                return Passed::Free;
            }
            // ORDER: Release publishes what the last holder did; SeqCst puts a freed word before our next look at
            // the waiters.
            if self
                .owner
                .compare_exchange(from, to.unwrap_or(0), Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
            {
                return Passed::Moved;
            }
            match to {
                Some(next) => return Passed::To(next),
                None => from = 0,
            }
        }
    }

    /// Before passing on somebody else's turn: it counts as outside from here on.
    pub fn evict(&self, owner: u64) {
        self.evicted.store(owner, Ordering::Relaxed);
        self.exit(owner);
    }

    /// Our turn has begun. False if somebody else was still inside, which must never be.
    pub fn enter(&self, me: u64) -> bool {
        let before = self.inside.swap(me, Ordering::Relaxed);
        before == 0 || before == me || before == self.evicted.load(Ordering::Relaxed)
    }

    /// Our turn is about to end.
    pub fn exit(&self, owner: u64) {
        let _ = self
            .inside
            .compare_exchange(owner, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}
