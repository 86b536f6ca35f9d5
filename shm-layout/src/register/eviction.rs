//! A process's report on the residence of its memory, and the requests to evict it.
//!
//! `residence` is one word: phase, reason, the driver's code, whether the driver's checkpoint moves the memory, and whether
//! more could leave. The words beside it belong to it and may be a moment older.

use super::Registration;
use crate::{
    memory::{CHECKPOINT_BIT, PART_BIT, residence_of},
    os::clock,
    protocol::{
        claim,
        primitive::{AtomicU32, Ordering},
    },
    value::{Event, EventKind, Phase, Why},
};

/// A change of the residence of a process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The new phase.
    pub phase: Phase,
    /// The reason that the memory did not move.
    pub why: Option<Why>,
    /// The driver's error code that goes with it; 0 for none.
    pub code: u16,
    /// Number of bytes.
    pub bytes: u64,
    /// Expected duration of the step.
    pub expected_ns: u64,
    /// True if the driver's checkpoint moves the memory, false for copies.
    pub is_checkpoint: bool,
    /// True if a part of the memory is still on its device and could leave too.
    pub is_in_part: bool,
}

fn word(phase: Phase, why: Option<Why>, code: u16) -> u64 {
    phase as u64 | u64::from(Why::byte(why)) << 8 | u64::from(code) << 16
}

impl Registration {
    /// Publishes the residence of the memory, with an event: it has moved, or an attempt has failed.
    pub fn publish_move(&self, moved: &Moved) {
        let (words, now) = (self.own_slot.words(), clock::now());
        let since = words.residence_since.load(Ordering::Relaxed);
        self.publish_phase(moved);
        words.residence_since.store(now, Ordering::Relaxed);
        words
            .residence_expected
            .store(moved.expected_ns, Ordering::Relaxed);
        let took_ms = now.saturating_sub(since) / 1_000_000;
        self.segments().state().publish(Event {
            arg0: word(moved.phase, moved.why, moved.code) | took_ms.min(u64::from(u32::MAX)) << 32,
            arg1: moved.bytes,
            ..Event::of(now, self.slot(), EventKind::Residence)
        });
    }

    /// Says why it would not be evicted just now, or that nothing is in the way.
    pub fn publish_reason(&self, why: Option<Why>, code: u16) {
        self.publish_phase(&Moved {
            why,
            code,
            ..Moved::default()
        });
    }

    /// Says when its context will leave the devices too (0 for never), and how much longer a restore then is expected to take.
    pub fn publish_deepening(&self, at_ns: u64, longer_ns: u64) {
        let words = &self.own_slot.words().entries[0];
        words.deep_at.store(at_ns, Ordering::Relaxed);
        words.deep_ns.store(longer_ns, Ordering::Relaxed);
    }

    /// Publishes the residence of the memory without an event.
    pub fn publish_phase(&self, moved: &Moved) {
        let word = word(moved.phase, moved.why, moved.code);
        let word = word
            | u64::from(moved.is_checkpoint) << CHECKPOINT_BIT
            | u64::from(moved.is_in_part) << PART_BIT;
        let residence = &self.own_slot.words().residence;
        residence.store(word, Ordering::Relaxed);
    }

    /// Says how many bytes of the host its copy takes, or is about to take.
    pub fn publish_host_bytes(&self, bytes: u64) {
        self.own_slot
            .words()
            .host_bytes
            .store(bytes, Ordering::Relaxed);
    }

    /// Says that its turn on its devices begins, where turns include the memory.
    pub fn publish_turn(&self, now_ns: u64) {
        let since = &self.own_slot.words().residence_since;
        since.store(now_ns, Ordering::Relaxed);
    }

    /// Says when the application last submitted work.
    pub fn publish_last_use(&self, at_ns: u64) {
        self.own_slot
            .words()
            .used_ns
            .store(at_ns, Ordering::Relaxed);
    }

    /// Says how much time without a request lies between two phases of use in the mean.
    pub fn publish_gap(&self, gap_ns: u64) {
        for entry in &self.own_slot.words().entries {
            entry.gap_ns.store(gap_ns, Ordering::Relaxed);
        }
    }

    /// Returns a number that changes when a process gets a slot or gives one back.
    pub fn slots_generation(&self) -> u64 {
        let claims = self.segments().state().slots.iter();
        let words = claims.map(|slot| slot.claim.load(Ordering::Relaxed));
        words.fold(0, u64::wrapping_add)
    }

    /// Returns true if a process that gave its slot back has not ended yet. Its memory may still be on its devices.
    pub fn is_anyone_ending(&self) -> bool {
        let Ok(probe) = self.segments().probe() else {
            return false;
        };
        let slots = self.segments().state().slots.iter().enumerate();
        let mut left = slots.filter(|(_, slot)| claim::is_free(&slot.claim));
        left.any(|(index, _)| matches!(probe.is_gone(index), Ok(false)))
    }

    /// Publishes how long the last eviction and restore took.
    pub fn publish_swap_time(&self, ns: u64) {
        self.own_slot.words().swap_ns.store(ns, Ordering::Relaxed);
    }

    /// Returns the futex word that changes with each request for this process's memory.
    pub fn evict_bell(&self) -> &AtomicU32 {
        &self.own_slot.words().evict_bell
    }

    /// Returns true if another process has requested this one's memory since the last call.
    pub fn take_request(&self) -> bool {
        self.own_slot.words().evict_asked.swap(0, Ordering::Relaxed) != 0
    }

    /// Returns the bytes of host memory that other processes' copies are about to take. They still count as free on the host.
    /// Under a broker any tenant may have written these words, so they count for at most what the others have on the devices.
    pub fn host_bytes_under_way(&self) -> u64 {
        match self.host_bytes_said_under_way() {
            0 => 0,
            said => {
                let most = self.own_slot.largest_device();
                let most = self.own_slot.most_of_others(most);
                said.min(most.unwrap_or(u64::MAX))
            }
        }
    }

    fn host_bytes_said_under_way(&self) -> u64 {
        let slots = self.segments().state().slots.iter().enumerate();
        let others = slots.filter(|(index, _)| *index != usize::from(self.slot().index));
        others
            .filter(|(_, slot)| residence_of(slot).phase == Phase::Evicting)
            .map(|(_, slot)| slot.host_bytes.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add)
    }

    /// Returns the bytes of host memory that other processes keep for copies while their memory is on their devices: of those
    /// that moved after this process, and of all. Under a broker any tenant may have written these words, so a tenant can have
    /// a copy given up, which only makes the next eviction of that process slower.
    pub fn host_bytes_kept(&self) -> (u64, u64) {
        let own_since = residence_of(self.own_slot.words()).since_ns;
        let slots = self.segments().state().slots.iter().enumerate();
        let others = slots.filter(|(index, _)| *index != usize::from(self.slot().index));
        others
            .map(|(_, slot)| residence_of(slot))
            .filter(|residence| residence.phase == Phase::Resident)
            .fold((0, 0), |(newer, all): (u64, u64), residence| {
                let is_newer = residence.since_ns > own_since;
                let of_newer = if is_newer { residence.host_bytes } else { 0 };
                (
                    newer.saturating_add(of_newer),
                    all.saturating_add(residence.host_bytes),
                )
            })
    }

    /// Bytes of this process that are evicted, over all its devices.
    pub fn evicted_bytes(&self) -> u64 {
        self.own_slot.evicted_bytes()
    }
}
