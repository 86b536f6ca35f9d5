//! The state of a process's eviction, as plain data. [`eviction`](super) changes it.

mod figures;
mod usage;

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
};

use shm_layout::{DEVICES_PER_PROCESS, Phase, Why, clock};

use crate::{sys::futex, turn::drain::Event};
use figures::Figures;
pub use usage::Usage;

/// The process that suspended calls. A forked child finds its parent here.
pub static SUSPENDED_BY: AtomicU32 = AtomicU32::new(0);

/// The driver's error code that calls return after the memory is lost.
pub static ANSWER: AtomicU32 = AtomicU32::new(0);

/// Factor by which a restored process that nobody asks stays for longer than its last eviction and restore took.
const STAYS: u64 = 10;
/// Time for which a request of another process holds, in nanoseconds. A process that still lacks memory asks again.
const REQUEST: u64 = 1_000_000_000;
/// Time in which an eviction elsewhere on the device should have made room, in nanoseconds. After that none is waited for.
const ELSEWHERE: u64 = 3_000_000_000;

/// The cause of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The process was idle for long enough.
    Idle,
    /// Another process needs the memory, and this one does not use it.
    Asked,
    /// Another process needs the memory, and this one has had its turn.
    Turn,
    /// The operator wants it, until the process is resumed.
    Operator,
}

/// The questions to NVML and its figures ([`gauge`](super)); one per process.
#[derive(Default)]
pub struct Gauge {
    /// Number of questions so far; a futex on which the NVML thread sleeps.
    pub asked: AtomicU32,
    /// The question that the figures belong to; a futex on which the asking thread sleeps.
    pub answered: AtomicU32,
    /// Free bytes by ordinal, plus one; 0 is unknown.
    pub free: [AtomicU64; DEVICES_PER_PROCESS],
    /// The NVML thread runs.
    pub is_started: AtomicBool,
}

/// Events behind all work that was submitted up to a number of requests, with their contexts.
#[derive(Default)]
pub struct WorkMarks {
    /// The number of requests.
    pub requests: u64,
    /// The time at which the events were recorded, in nanoseconds.
    pub recorded_ns: u64,
    /// The contexts whose work was not done at the last look.
    pub pending: Vec<(usize, Event)>,
}

/// The state of the eviction of one process.
#[derive(Default)]
pub struct EvictionState {
    /// A [`Phase`], written by the evictor.
    phase: AtomicU32,
    /// The time since which a thread waits for the end of the suspension, in nanoseconds; 0 for none.
    wanted_ns: AtomicU64,
    /// Wakes the evictor: incremented, then a futex wake.
    bell: AtomicU32,
    /// Held by the evictor while the driver returns only from the evictor's calls.
    pub asking: Mutex<()>,
    /// How the application uses its devices.
    pub usage: Usage,
    /// The marks behind submitted work. A hook locks them before a context ends or a capture begins.
    pub marks: Mutex<WorkMarks>,
    /// The time at which eligibility was last checked although no eviction was due, in nanoseconds.
    pub looked_ns: AtomicU64,
    /// The time at which the kept copies were last checked, in nanoseconds.
    pub looked_at_copies_ns: AtomicU64,
    /// Earliest time of the next attempt to make host memory ahead, in nanoseconds.
    pub ahead_not_before_ns: AtomicU64,
    /// Earliest time of the next attempt, in nanoseconds.
    pub retry_ns: AtomicU64,
    /// The time at which another process last asked for the memory, in nanoseconds; 0 for never.
    asked_ns: AtomicU64,
    /// The time since which requests hold without a gap, in nanoseconds.
    asked_since_ns: AtomicU64,
    /// The segment holds a reason published by this process.
    pub spoke: AtomicBool,
    /// The last reason that waiting processes were woken for, plus one.
    pub told: AtomicU32,
    /// The last reason published with an event, plus one.
    pub refused: AtomicU32,
    /// The reason why the driver refuses eviction for good.
    never: Mutex<Option<(Why, u16)>>,
    /// The [`Cause`] of the current or last eviction.
    cause: AtomicU32,
    /// The process ends.
    pub ended: AtomicBool,
    /// No request of the application is in the driver, and none goes in, so `held` is complete. A debug build checks
    /// calls against it.
    pub is_empty: AtomicBool,
    /// The bytes that the process holds on each device while calls are suspended, by ordinal.
    pub held: [AtomicU64; DEVICES_PER_PROCESS],
    /// The free memory reported by NVML.
    pub gauge: Gauge,
    /// The time of the last restore, in nanoseconds.
    pub back_ns: AtomicU64,
    /// Duration of the last eviction and restore together, without the time in which host memory was made, in nanoseconds.
    pub swap_ns: AtomicU64,
    /// All of the memory has left by copies at some time, so the host memory for it was made.
    pub has_left_whole: AtomicBool,
    /// The figures about evictions that the tools show.
    pub figures: Figures,
    /// The last measured eviction rate in bytes per second; 0 before the first.
    pub out_rate: AtomicU64,
    /// The last measured restore rate in bytes per second; 0 before the first.
    pub back_rate: AtomicU64,
    /// Duration of the last restore of what copies had left on the devices, in nanoseconds; 0 before the first.
    pub deep_ns: AtomicU64,
}

impl EvictionState {
    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            1 => Phase::Evicting,
            2 => Phase::Evicted,
            3 => Phase::Returning,
            4 => Phase::Restoring,
            5 => Phase::Lost,
            _ => Phase::Resident,
        }
    }

    /// Sets the phase.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u32, Relaxed);
    }

    /// Returns true while memory is being moved.
    pub fn is_moving(&self) -> bool {
        matches!(self.phase(), Phase::Evicting | Phase::Restoring)
    }

    /// Returns the cause of the current or last eviction.
    pub fn cause(&self) -> Cause {
        match self.cause.load(Relaxed) {
            0 => Cause::Idle,
            1 => Cause::Asked,
            2 => Cause::Turn,
            _ => Cause::Operator,
        }
    }

    /// Sets the cause of an eviction.
    pub fn set_cause(&self, cause: Cause) {
        self.cause.store(cause as u32, Relaxed);
    }

    /// Returns the reason why the driver refuses eviction for good, or `None`.
    pub fn never(&self) -> Option<(Why, u16)> {
        *self.never.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a refusal with an error code of the driver, which would refuse again.
    pub fn remember(&self, refusal: (Why, u16)) {
        if refusal.1 != 0 {
            *self.never.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        }
    }

    /// Estimates the time to evict `bytes`, in nanoseconds, by the measured rate or else by `rate`.
    pub fn out_ns(&self, bytes: u64, rate: u64) -> u64 {
        time(bytes, self.out_rate.load(Relaxed), rate)
    }

    /// Estimates the time to restore `bytes`, in nanoseconds, by the measured rate or else by `rate`.
    pub fn back_ns(&self, bytes: u64, rate: u64) -> u64 {
        time(bytes, self.back_rate.load(Relaxed), rate)
    }

    /// Records that an eviction of `bytes` took `ns` nanoseconds.
    pub fn measured_out(&self, bytes: u64, ns: u64) {
        self.out_rate.store(rate(bytes, ns), Relaxed);
        self.swap_ns.store(ns.max(1), Relaxed);
    }

    /// Records that the eviction of another `bytes` took `ns` nanoseconds more.
    pub fn measured_more_out(&self, bytes: u64, ns: u64) {
        self.out_rate.store(rate(bytes, ns), Relaxed);
        self.swap_ns.fetch_add(ns, Relaxed);
    }

    /// Records that the restore of `bytes` after it took `ns` nanoseconds.
    pub fn measured_back(&self, bytes: u64, ns: u64) {
        self.back_rate.store(rate(bytes, ns), Relaxed);
        self.swap_ns.fetch_add(ns, Relaxed);
    }

    /// Requests the restore and wakes the evictor.
    pub fn want(&self) {
        let _ = self
            .wanted_ns
            .compare_exchange(0, clock::now().max(1), Relaxed, Relaxed);
        self.ring();
    }

    /// Returns true if a thread wants the memory.
    pub fn is_wanted(&self) -> bool {
        self.wanted_since().is_some()
    }

    /// Returns the time since which a thread wants the memory, in nanoseconds.
    pub fn wanted_since(&self) -> Option<u64> {
        Some(self.wanted_ns.load(Relaxed)).filter(|since_ns| *since_ns != 0)
    }

    /// Clears the request.
    pub fn unwant(&self) {
        self.wanted_ns.store(0, Relaxed);
    }

    /// Wakes the evictor.
    pub fn ring(&self) {
        self.bell.fetch_add(1, Relaxed);
        futex::wake_private(&self.bell);
    }

    /// Returns the futex word on which the evictor sleeps.
    pub fn bell(&self) -> &AtomicU32 {
        &self.bell
    }

    /// Starts the process's turn if it was never restored before. Returns true if it did. Used where turns include
    /// the memory.
    pub fn begin_turn(&self, now_ns: u64) -> bool {
        let first = self.back_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
        first.is_ok()
    }

    /// Records that the memory is on the devices again.
    pub fn restored(&self, now: u64) {
        self.back_ns.store(now, Relaxed);
        // It has been met. Otherwise the process would leave a second time for the same request, beside another that is asked now.
        self.forget_request();
        self.usage.restored(self.wanted_since(), now);
    }

    /// Records a request of another process for the memory.
    pub fn request(&self, now: u64) {
        if !self.is_requested(now) {
            self.asked_since_ns.store(now, Relaxed);
        }
        self.asked_ns.store(now, Relaxed);
    }

    /// Returns true if a request of another process still holds.
    pub fn is_requested(&self, now: u64) -> bool {
        let asked_ns = self.asked_ns.load(Relaxed);
        asked_ns != 0 && now.saturating_sub(asked_ns) < REQUEST
    }

    /// Forgets the requests of other processes.
    pub fn forget_request(&self) {
        self.asked_ns.store(0, Relaxed);
    }

    /// Returns how long requests hold without a gap, in nanoseconds.
    pub fn requested_for(&self, now: u64) -> u64 {
        now.saturating_sub(self.asked_since_ns.load(Relaxed))
    }

    /// Returns true if requests hold for so long that evictions elsewhere on the device do not make the room.
    pub fn is_sole_hope(&self, now: u64) -> bool {
        self.requested_for(now) >= ELSEWHERE
    }

    /// Returns the time until which a restored process is left alone, in nanoseconds: `stay_ns` after the restore while others lack
    /// its memory.
    pub fn stays_until(&self, cause: Cause, stay_ns: u64) -> u64 {
        let stays = match cause {
            Cause::Asked | Cause::Turn => stay_ns,
            Cause::Idle | Cause::Operator => self.swap_ns.load(Relaxed).saturating_mul(STAYS),
        };
        self.back_ns.load(Relaxed).saturating_add(stays)
    }
}

/// Returns a rate in bytes per second, never 0.
fn rate(bytes: u64, ns: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX).max(1)
}

/// Returns the nanoseconds that `bytes` take at the rate `known`, or at `otherwise` if that is 0.
pub(super) fn time(bytes: u64, known: u64, otherwise: u64) -> u64 {
    let rate = if known == 0 { otherwise } else { known };
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use shm_layout::memory::queue::IDLE_NS;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_restored_process_is_not_idle_before_it_could_call() {
        let state = EvictionState::default();
        state.usage.note(1, 1000 * MS);
        state.restored(5000 * MS);
        assert_eq!(state.usage.idle_at(IDLE_NS), 5000 * MS + IDLE_NS);
    }

    #[test]
    fn while_others_lack_memory_a_process_stays_for_less_time() {
        let state = EvictionState::default();
        state.measured_out(1 << 30, 300 * MS);
        state.measured_back(1 << 30, 100 * MS);
        state.restored(1000 * MS);
        assert_eq!(state.stays_until(Cause::Asked, 200 * MS), 1200 * MS);
        assert_eq!(state.stays_until(Cause::Idle, 200 * MS), 5000 * MS);
    }

    #[test]
    fn a_request_that_is_not_repeated_ends() {
        let state = EvictionState::default();
        assert!(!state.is_requested(500 * MS));
        state.request(1000 * MS);
        state.request(1900 * MS);
        assert!(state.is_requested(2800 * MS));
        assert_eq!(state.requested_for(2800 * MS), 1800 * MS);
        assert!(!state.is_requested(3000 * MS));
        state.request(9000 * MS);
        assert_eq!(state.requested_for(9000 * MS), 0);
        state.restored(9300 * MS);
        assert!(!state.is_requested(9301 * MS), "it was met");
    }
}
