//! Evictions on the simulator: a process's memory leaves its devices and returns. The program notices nothing, and other
//! processes use the freed memory.

mod ahead;
mod allocators;
mod chaos;
#[allow(dead_code, reason = "not all of its helpers are used here")]
#[path = "../memory/client.rs"]
mod client;
mod code;
mod deep;
mod duplex;
mod edits;
mod ends;
mod figures;
mod overcommit;
mod pins;
mod queries;
mod refusals;
mod requests;
mod reserves;
mod room;
mod rules;
mod swap;
mod there_and_back;
mod threads;
mod turns;

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{Change, EvictAfter, Operator, Phase, Residence, Set, ShareEdit, Why, clock};

use client::{Client, PATIENCE};

/// The operator's setting for the process.
#[derive(Clone, Copy)]
enum Wish {
    Evict,
    Resume,
    After(EvictAfter),
    Pin(bool),
}

impl Client<'_> {
    /// Edits the process's settings, as `gpushare pause --evict`, `resume` and `set` do.
    fn wish(&self, bed: &Testbed, wish: Wish) {
        let mut share = ShareEdit::default();
        match wish {
            Wish::Evict => (share.paused, share.evict) = (Set::To(true), Set::To(true)),
            Wish::Resume => (share.paused, share.evict) = (Set::To(false), Set::Inherit),
            Wish::After(after) => share.evict_after = Set::To(after),
            Wish::Pin(on) => share.pinned = Set::To(on),
        }
        let change = Change::ProcessShare {
            slot: self.process().slot,
            share,
        };
        let operator = Operator::open(bed.dir()).expect("our own segment");
        operator
            .edit(None, &change, clock::now())
            .expect("a valid edit");
    }

    fn residence(&self) -> Residence {
        self.process().residence
    }

    fn reaches(&self, phase: Phase) {
        eventually(&format!("it is {phase:?}"), PATIENCE, || {
            self.residence().phase == phase
        });
    }

    fn is_refused(&self, why: Why) {
        // Between two attempts, which may follow each other at once.
        eventually(&format!("it is refused: {why:?}"), PATIENCE, || {
            let residence = self.residence();
            residence.why == Some(why) && residence.phase == Phase::Resident
        });
    }

    /// Evicts the process and waits until that is complete.
    fn evict(&self, bed: &Testbed) {
        self.wish(bed, Wish::Evict);
        self.reaches(Phase::Evicted);
    }

    /// Has the process leave because it is idle, and no more after that.
    fn leaves_once(&self, bed: &Testbed) {
        self.wish(bed, Wish::After(EvictAfter::Idle(200_000_000)));
        self.reaches(Phase::Evicted);
        self.wish(bed, Wish::After(EvictAfter::Never));
    }

    /// Returns the number of times that it has begun this phase. A phase may be over before it is seen.
    fn beginnings(&self, bed: &Testbed, phase: Phase) -> usize {
        let slot = self.process().slot.index;
        let moves = turns::moves(bed);
        moves
            .iter()
            .filter(|one| (one.0, one.1) == (slot, phase))
            .count()
    }

    /// Waits until it has begun this phase once more than `before` times.
    fn begins(&self, bed: &Testbed, phase: Phase, before: usize) {
        eventually(&format!("it begins {phase:?}"), PATIENCE, || {
            self.beginnings(bed, phase) > before
        });
    }

    fn evicted_bytes(&self) -> u64 {
        self.process().devices[0].evicted
    }
}
