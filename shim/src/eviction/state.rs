//! What a managed process keeps of where its memory is, as plain data. [`eviction`](super) acts on it.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
};

use shm_layout::{DEVICES_PER_PROCESS, Phase, Why};

use crate::sys::futex;

/// The process that closed the door: a forked child finds its parent here.
pub static SUSPENDED_BY: AtomicU32 = AtomicU32::new(0);

/// What calls are answered once the door is shut for good: a driver's error code.
pub static ANSWER: AtomicU32 = AtomicU32::new(0);

/// A process that came back stays so many times as long as its last way out and back took.
const STAYS: u64 = 10;

/// Why a process is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was idle for long enough.
    Idle,
    /// Another process needs the room, and this one does not use it.
    Asked,
    /// Another process needs the room, and this one has had its turn.
    Turn,
    /// The operator wants it, until the process is resumed.
    Operator,
}

/// What NVML is asked, and what it answers ([`gauge`](super)). One for a process.
#[derive(Default)]
pub struct Gauge {
    /// Questions so far; the thread sleeps on it.
    pub asked: AtomicU32,
    /// The question that the figures answer; who asks sleeps on it.
    pub answered: AtomicU32,
    /// Free bytes by ordinal, plus one; 0 is not known.
    pub free: [AtomicU64; DEVICES_PER_PROCESS],
    /// Its thread runs.
    pub is_started: AtomicBool,
}

/// What is kept.
#[derive(Default)]
pub struct EvictionState {
    /// A [`Phase`]; the evictor writes.
    phase: AtomicU32,
    /// A thread waits at the door.
    wanted: AtomicBool,
    /// Wakes the evictor: bump, then futex wake.
    bell: AtomicU32,
    /// Held by the evictor while the driver answers nothing but its own calls.
    pub asking: Mutex<()>,
    /// All calls of the driver when the keeper last looked, and when they last had become more.
    pub seen_calls: AtomicU64,
    /// See `seen_calls`.
    pub used_ns: AtomicU64,
    /// When eligibility was last looked at.
    pub looked_ns: AtomicU64,
    /// Not before.
    pub retry_ns: AtomicU64,
    /// Another process has asked.
    pub asked: AtomicBool,
    /// The segment has a reason of ours.
    pub spoke: AtomicBool,
    /// The last reason for which there was an event, plus one.
    pub refused: AtomicU32,
    /// The driver has refused it for good, and why.
    never: Mutex<Option<(Why, u16)>>,
    /// Why it is away, or was last: a [`Cause`].
    cause: AtomicU32,
    /// The process is at its end.
    pub ended: AtomicBool,
    /// No call of the application's is in the driver, and none goes in. A debug build checks calls by it.
    pub is_empty: AtomicBool,
    /// What NVML says is free.
    pub gauge: Gauge,
    /// When the process last came back.
    pub back_ns: AtomicU64,
    /// What its last way out and back took.
    pub swap_ns: AtomicU64,
    /// Bytes a second that left and came back, as measured last; 0 is not yet.
    pub out_rate: AtomicU64,
    /// See `out_rate`.
    pub back_rate: AtomicU64,
}

impl EvictionState {
    /// Where the memory is.
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

    /// It is there now.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u32, Relaxed);
    }

    /// Whether the driver moves it just now.
    pub fn is_moving(&self) -> bool {
        matches!(self.phase(), Phase::Evicting | Phase::Restoring)
    }

    /// Why it is on its way.
    pub fn cause(&self) -> Cause {
        match self.cause.load(Relaxed) {
            0 => Cause::Idle,
            1 => Cause::Asked,
            2 => Cause::Turn,
            _ => Cause::Operator,
        }
    }

    /// It is on its way for this reason.
    pub fn set_cause(&self, cause: Cause) {
        self.cause.store(cause as u32, Relaxed);
    }

    /// Why the driver refuses it for good, if it does.
    pub fn never(&self) -> Option<(Why, u16)> {
        *self.never.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver has refused: it would again.
    pub fn remember(&self, refusal: (Why, u16)) {
        if refusal.1 != 0 {
            *self.never.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        }
    }

    /// How long so many bytes take out, by what was measured, else by this rate.
    pub fn out_ns(&self, bytes: u64, rate: u64) -> u64 {
        time(bytes, self.out_rate.load(Relaxed), rate)
    }

    /// The same for the way back.
    pub fn back_ns(&self, bytes: u64, rate: u64) -> u64 {
        time(bytes, self.back_rate.load(Relaxed), rate)
    }

    /// So many bytes took so long to leave.
    pub fn measured_out(&self, bytes: u64, ns: u64) {
        self.out_rate.store(rate(bytes, ns), Relaxed);
        self.swap_ns.store(ns, Relaxed);
    }

    /// The same for the way back, which follows.
    pub fn measured_back(&self, bytes: u64, ns: u64) {
        self.back_rate.store(rate(bytes, ns), Relaxed);
        self.swap_ns.fetch_add(ns, Relaxed);
    }

    /// A thread wants it back.
    pub fn want(&self) {
        self.wanted.store(true, Relaxed);
        self.ring();
    }

    /// Whether a thread wants it back.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Forgets who wanted it.
    pub fn unwant(&self) {
        self.wanted.store(false, Relaxed);
    }

    /// Wakes the evictor.
    pub fn ring(&self) {
        self.bell.fetch_add(1, Relaxed);
        futex::wake_private(&self.bell);
    }

    /// What the evictor sleeps on.
    pub fn bell(&self) -> &AtomicU32 {
        &self.bell
    }

    /// Its turn begins, where turns include the memory and it has not come back from the host yet.
    pub fn begin_turn(&self, now_ns: u64) -> bool {
        let first = self.back_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
        first.is_ok()
    }

    /// Until when a process that came back is left alone.
    pub fn stays_until(&self) -> u64 {
        let stays = self.swap_ns.load(Relaxed).saturating_mul(STAYS);
        self.back_ns.load(Relaxed).saturating_add(stays)
    }
}

/// Bytes a second; never zero.
fn rate(bytes: u64, ns: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX).max(1)
}

/// Nanoseconds that so many bytes take at a rate, where it is known.
fn time(bytes: u64, known: u64, otherwise: u64) -> u64 {
    let rate = if known == 0 { otherwise } else { known };
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}
