//! The state of a process's eviction, as plain data. [`eviction`](super) changes it.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
};

use shm_layout::{DEVICES_PER_PROCESS, Phase, Why};

use crate::sys::futex;

/// The process that suspended calls. A forked child finds its parent here.
pub static SUSPENDED_BY: AtomicU32 = AtomicU32::new(0);

/// The driver's error code that calls return after the memory is lost.
pub static ANSWER: AtomicU32 = AtomicU32::new(0);

/// Factor by which a restored process is left alone for longer than its last eviction and restore took.
const STAYS: u64 = 10;

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

/// The state of the eviction of one process.
#[derive(Default)]
pub struct EvictionState {
    /// A [`Phase`], written by the evictor.
    phase: AtomicU32,
    /// A thread waits for the end of the suspension.
    wanted: AtomicBool,
    /// Wakes the evictor: incremented, then a futex wake.
    bell: AtomicU32,
    /// Held by the evictor while the driver returns only from the evictor's calls.
    pub asking: Mutex<()>,
    /// The number of requests at the keeper's last poll.
    pub seen_requests: AtomicU64,
    /// The time at which `seen_requests` last increased, in nanoseconds.
    pub used_ns: AtomicU64,
    /// The time at which eligibility was last checked, in nanoseconds.
    pub looked_ns: AtomicU64,
    /// Earliest time of the next attempt, in nanoseconds.
    pub retry_ns: AtomicU64,
    /// Another process has asked for the memory.
    pub asked: AtomicBool,
    /// The segment holds a reason published by this process.
    pub spoke: AtomicBool,
    /// The last reason published with an event, plus one.
    pub refused: AtomicU32,
    /// The reason why the driver refuses eviction for good.
    never: Mutex<Option<(Why, u16)>>,
    /// The [`Cause`] of the current or last eviction.
    cause: AtomicU32,
    /// The process ends.
    pub ended: AtomicBool,
    /// No call of the application is in the driver, and none goes in. A debug build checks calls against it.
    pub is_empty: AtomicBool,
    /// The free memory reported by NVML.
    pub gauge: Gauge,
    /// The time of the last restore, in nanoseconds.
    pub back_ns: AtomicU64,
    /// Duration of the last eviction and restore together, in nanoseconds.
    pub swap_ns: AtomicU64,
    /// The last measured eviction rate in bytes per second; 0 before the first.
    pub out_rate: AtomicU64,
    /// The last measured restore rate in bytes per second; 0 before the first.
    pub back_rate: AtomicU64,
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
        self.swap_ns.store(ns, Relaxed);
    }

    /// Records that the restore of `bytes` after it took `ns` nanoseconds.
    pub fn measured_back(&self, bytes: u64, ns: u64) {
        self.back_rate.store(rate(bytes, ns), Relaxed);
        self.swap_ns.fetch_add(ns, Relaxed);
    }

    /// Requests the restore and wakes the evictor.
    pub fn want(&self) {
        self.wanted.store(true, Relaxed);
        self.ring();
    }

    /// Returns true if a thread wants the memory.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Clears the request.
    pub fn unwant(&self) {
        self.wanted.store(false, Relaxed);
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

    /// Returns the time until which a restored process is left alone, in nanoseconds.
    pub fn stays_until(&self) -> u64 {
        let stays = self.swap_ns.load(Relaxed).saturating_mul(STAYS);
        self.back_ns.load(Relaxed).saturating_add(stays)
    }
}

/// Returns a rate in bytes per second, never 0.
fn rate(bytes: u64, ns: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX).max(1)
}

/// Returns the nanoseconds that `bytes` take at the rate `known`, or at `otherwise` if that is 0.
fn time(bytes: u64, known: u64, otherwise: u64) -> u64 {
    let rate = if known == 0 { otherwise } else { known };
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}
