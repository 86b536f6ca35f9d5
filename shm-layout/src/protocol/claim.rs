//! The claim word of a process slot: whose it is, and which life of it.
//!
//! ```text
//!   free ──claim──▶ claiming ──publish──▶ live
//!    ▲                  │                  │
//!    └──────free──── reaping ◀────reap─────┘        epoch + 1 at every claim
//! ```
//!
//! Both claimant and reaper hold the slot's byte lock (see `liveness`), which a dead process loses by itself. So a
//! word that is not `free` while the byte is unlocked belongs to a dead process, whatever step it died in, and the
//! next reaper starts over. The compare-and-swap makes a claim exclusive on its own even so.

use crate::protocol::primitive::{AtomicU64, Ordering};

/// State of a slot, as its claim word holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No process has the slot.
    Free,
    /// Claimed; its identity is not published yet.
    Claiming,
    /// Published.
    Live,
    /// The slot's process is gone; another process gives back what it held.
    Reaping,
}

fn word(epoch: u32, phase: Phase) -> u64 {
    u64::from(epoch) << 32 | phase as u64
}

/// The epoch and phase a word says; a phase that is never written reads as `Reaping`, so that it is cleaned up.
pub fn parse(word: u64) -> (u32, Phase) {
    let phase = match word & 0xffff_ffff {
        0 => Phase::Free,
        1 => Phase::Claiming,
        2 => Phase::Live,
        _ => Phase::Reaping,
    };
    ((word >> 32) as u32, phase)
}

/// Returns true if the slot is free to be claimed.
pub fn is_free(claim: &AtomicU64) -> bool {
    parse(claim.load(Ordering::Relaxed)).1 == Phase::Free
}

/// Claims a free slot; the new epoch if we were the one.
pub fn claim(claim: &AtomicU64) -> Option<u32> {
    let seen = claim.load(Ordering::Relaxed);
    let (epoch, phase) = parse(seen);
    if phase != Phase::Free {
        return None;
    }
    let epoch = epoch.wrapping_add(1).max(1);
    // ORDER: Acquire pairs with the Release in free; the last owner's clearing is visible to us.
    claim
        .compare_exchange(
            seen,
            word(epoch, Phase::Claiming),
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .ok()
        .map(|_| epoch)
}

/// Begins a life that a broker gave out: it alone gives slots, whatever stands in the word.
pub fn begin(claim: &AtomicU64, epoch: u32) {
    // ORDER: Release; the registry names the process before it is told, so nothing reads this one's words too early.
    claim.store(word(epoch, Phase::Claiming), Ordering::Release);
}

/// Publishes a claimed slot.
pub fn publish(claim: &AtomicU64, epoch: u32) {
    // ORDER: pairs with the Acquire in live; publishes the slot's words.
    claim.store(word(epoch, Phase::Live), Ordering::Release);
}

/// The epoch, if the slot is published.
pub fn live(claim: &AtomicU64) -> Option<u32> {
    // ORDER: pairs with the Release in publish.
    match parse(claim.load(Ordering::Acquire)) {
        (epoch, Phase::Live) => Some(epoch),
        _ => None,
    }
}

/// Marks a slot as being cleared; `None` if it is free already. The caller holds the slot's byte lock.
pub fn begin_reaping(claim: &AtomicU64) -> Option<u32> {
    let seen = claim.load(Ordering::Relaxed);
    let (epoch, phase) = parse(seen);
    if phase == Phase::Free {
        return None;
    }
    // ORDER: Acquire pairs with the Release in publish, so that we clear what the dead published.
    claim
        .compare_exchange(
            seen,
            word(epoch, Phase::Reaping),
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .ok()
        .map(|_| epoch)
}

/// Frees the slot for the next claim.
pub fn free(claim: &AtomicU64, epoch: u32) {
    // ORDER: pairs with the Acquire in claim; publishes the clearing.
    claim.store(word(epoch, Phase::Free), Ordering::Release);
}
