//! Device turns: one owner word, a bitmap of waiters, and direct hand-off.
//!
//! ```text
//!   free ──take──▶ owner A ──pass──▶ owner B ──pass──▶ … ──▶ free
//!                     └────evict (A is dead or overdue)──▶ owner B
//! ```
//!
//! The owner word holds the owner and counts the turns. It changes only by compare-and-swap from a value that the changing
//! process has looked at, so exactly one of a release, a takeover and a forced release happens.
//!
//! * A waiter first sets its bit and then looks at the word; a releaser first frees the word and then looks at the
//!   bits. One of them sees the other, and no wake-up is lost.
//! * A waiter that gives up first clears its bit and then looks at the word; a giver first writes the word and then
//!   looks at the bit. One of them sees the other, and no turn is lost on a process that has left.

use crate::protocol::primitive::{AtomicU64, Ordering, fence};

/// Words of the waiters' bitmap.
pub const BITMAP: usize = 4;

/// The part of the owner word that names the owner: a slot word, 0 when free. The rest counts turns.
pub const WHO: u64 = (1 << 48) - 1;

/// Marks a turn in `inside` that may not be taken up any more. No slot word has this bit.
const VOID: u64 = 1 << 15;

/// Returns the slot word of the owner in an owner word; 0 if free.
pub fn who(word: u64) -> u64 {
    word & WHO
}

/// The word of the turn after `word`'s.
fn next_turn(word: u64, who: u64) -> u64 {
    (word >> 48).wrapping_add(1) << 48 | who & WHO
}

/// A device's words.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// The owner and the turn's number.
    pub owner: &'a AtomicU64,
    /// The bitmap of waiters: one bit for each slot.
    pub waiters: &'a [AtomicU64],
    /// The turn that was last taken up. It distinguishes that turn from one given to a process that had left, and proves that
    /// there is never a second owner.
    pub inside: &'a AtomicU64,
    /// The turn that was last taken away. Its owner may not have seen that yet.
    pub evicted: &'a AtomicU64,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The turn had ended already: another process changed the owner word.
    Moved,
    /// No eligible process waits; the lock is free.
    Free,
    /// The turn went to this slot word, whose process has to be woken.
    To(u64),
}

impl Turn<'_> {
    /// Takes a free lock, as seen; the word of our turn if we got it.
    pub fn take(&self, seen: u64, me: u64) -> Option<u64> {
        let mine = next_turn(seen, me);
        // ORDER: Acquire pairs with the Release in pass that freed it; we see what its owner did.
        let taken = who(seen) == 0
            && self
                .owner
                .compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        taken.then_some(mine)
    }

    /// The owner word: whose turn it is, and which.
    pub fn owner(&self) -> u64 {
        // ORDER: Acquire pairs with the Release in pass that made it so.
        self.owner.load(Ordering::Acquire)
    }

    /// Queues a slot.
    pub fn join(&self, slot: usize) {
        if let Some(word) = self.waiters.get(slot / 64) {
            word.fetch_or(1 << (slot % 64), Ordering::Relaxed);
        }
        // ORDER: SeqCst, between our bit and our next look at the owner; pairs with the fence in pass between freeing
        // and looking at the bits.
        fence(Ordering::SeqCst);
    }

    /// Takes a slot out of the queue: because it gives up, or after it has [entered](Self::enter).
    pub fn leave(&self, slot: usize) {
        if let Some(word) = self.waiters.get(slot / 64) {
            // ORDER: Release pairs with the Acquire in abandoned: a process that sees us gone sees us inside.
            word.fetch_and(!(1 << (slot % 64)), Ordering::Release);
        }
        // ORDER: SeqCst, between our bit and our next look at the owner; pairs with the fence in pass between giving
        // and looking at the bit.
        fence(Ordering::SeqCst);
    }

    /// The waiters, as a copy of the bitmap.
    pub fn waiting(&self) -> [u64; BITMAP] {
        let mut bits = [0; BITMAP];
        for (bit, word) in bits.iter_mut().zip(self.waiters) {
            *bit = word.load(Ordering::Relaxed);
        }
        bits
    }

    /// Returns true if a process waits.
    pub fn has_waiters(&self) -> bool {
        self.waiting() != [0; BITMAP]
    }

    /// Ends the turn of the owner word `from` and gives the next one to the waiter that `choose` names, if any. `from` is the
    /// caller's own turn, or a free word, or that of an owner that is dead or overdue and was [evicted](Self::evict).
    pub fn pass(&self, from: u64, mut choose: impl FnMut(&[u64; BITMAP]) -> Option<u64>) -> Passed {
        let mut from = from;
        loop {
            let bits = self.waiting();
            let to = if bits == [0; BITMAP] {
                None
            } else {
                choose(&bits)
            };
            if who(from) == 0 && to.is_none() {
                return Passed::Free;
            }
            let next = next_turn(from, to.unwrap_or(0));
            // ORDER: Release publishes what the last holder did; Acquire, so that it holds through us when we pass on
            // a turn that was not ours.
            if self
                .owner
                .compare_exchange(from, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                return Passed::Moved;
            }
            // ORDER: SeqCst, between the owner word and our next look at the bits; pairs with the fences in join and
            // leave.
            fence(Ordering::SeqCst);
            match to {
                Some(to) if !self.abandoned(next) => return Passed::To(to),
                // A waiter may have joined while we freed it, or left while we gave it: look again.
                _ => from = next,
            }
        }
    }

    /// Returns true if a turn was given to a process that no longer waits. The turn is then void and cannot be taken up.
    fn abandoned(&self, turn: u64) -> bool {
        let slot = (turn & 0x7fff).wrapping_sub(1) as usize;
        // ORDER: Acquire pairs with the Release in leave: an owner that took its turn up is seen inside.
        let waits = self
            .waiters
            .get(slot / 64)
            .is_some_and(|word| word.load(Ordering::Acquire) >> (slot % 64) & 1 == 1);
        !waits && self.owner() == turn && self.void(turn)
    }

    /// Makes sure that a turn is not taken up from here on. Returns false if it has been taken up already, or is over.
    fn void(&self, turn: u64) -> bool {
        loop {
            // ORDER: Acquire pairs with the Release in exit: what was done inside is done before the next turn. Pairs with
            // the Release in enter as well: if a later owner is inside, its turn is seen next.
            let inside = self.inside.load(Ordering::Acquire);
            // A process that is this late must not write over a later owner's turn.
            if inside == turn || self.owner() != turn {
                return false;
            }
            // ORDER: AcqRel, one chain of entries and exits with enter and exit.
            let swapped = self.inside.compare_exchange(
                inside,
                turn | VOID,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if swapped.is_ok() {
                return true;
            }
        }
    }

    /// Prepares to pass on another process's turn, whose owner loses it and cannot take it up any more. An owner that finds its
    /// turn [void](Entry::TooLate) and still its own passes it on itself, because the evicting process may have died here.
    pub fn evict(&self, turn: u64) {
        loop {
            let before = self.evicted.load(Ordering::Relaxed);
            if self.owner() != turn {
                return; // over, and a later turn may be named there
            }
            // Read by an owner that gets the turn by a later pass.
            let named =
                self.evicted
                    .compare_exchange(before, turn, Ordering::Relaxed, Ordering::Relaxed);
            if named.is_ok() {
                break;
            }
        }
        if !self.void(turn) {
            self.exit(turn);
        }
    }

    /// Takes a turn up. An owner that is slow may have lost the turn already.
    pub fn enter(&self, turn: u64) -> Entry {
        loop {
            // ORDER: Acquire pairs with the Release below; if a process is inside already, its turn is seen next.
            let before = self.inside.load(Ordering::Acquire);
            if self.owner() != turn || before == turn | VOID {
                return Entry::TooLate;
            }
            // ORDER: AcqRel: a process that sees us inside sees that it is our turn.
            let swapped =
                self.inside
                    .compare_exchange(before, turn, Ordering::AcqRel, Ordering::Relaxed);
            if swapped.is_err() {
                continue;
            }
            // ORDER: SeqCst, between our entry and our last look at the owner.
            fence(Ordering::SeqCst);
            if self.owner() != turn {
                self.exit(turn);
                return Entry::TooLate;
            }
            let evicted = self.evicted.load(Ordering::Relaxed);
            let alone = before == 0 || before == turn || before & VOID != 0 || before == evicted;
            return if alone { Entry::Alone } else { Entry::NotAlone };
        }
    }

    /// Our turn is about to end.
    pub fn exit(&self, turn: u64) {
        // ORDER: Release pairs with the Acquire in void, for a turn that is passed on between this and our own pass.
        let _ = self
            .inside
            .compare_exchange(turn, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// The result of an [entry](Turn::enter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The turn was taken up and no other process is inside.
    Alone,
    /// Another process was inside, which must never be.
    NotAlone,
    /// The turn was taken from us before we took it up.
    TooLate,
}

#[cfg(test)]
mod tests {
    use super::{WHO, next_turn, who};

    #[test]
    fn the_next_turn_has_the_next_number_and_its_own_owner() {
        let number = |word: u64| word >> 48;
        let second = next_turn(next_turn(0, 7), 9);
        assert_eq!((number(second), who(second)), (2, 9));
        let freed = next_turn(second, 0);
        assert_eq!((number(freed), who(freed)), (3, 0));
        // The number begins anew behind the last one, and never reaches into the owner.
        assert_eq!(next_turn(u64::MAX, WHO), WHO);
    }
}
