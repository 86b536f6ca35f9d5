//! The device lock: the right to submit work.

use std::marker::PhantomData;

use crate::{events::Reason, ids::SlotId};

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The lock is ours.
    Held {
        /// How long we waited.
        waited_ns: u64,
    },
    /// The caller gave up; nothing is held.
    GaveUp,
}

/// One device's lock, as one process uses it. One thread at a time acquires or releases.
#[derive(Clone, Copy)]
pub struct DeviceLock<'r> {
    _r: PhantomData<&'r ()>,
}

impl DeviceLock<'_> {
    /// Takes the lock if it is free and nobody else is to have it.
    pub fn try_acquire(&self, _now_ns: u64) -> bool {
        todo!()
    }

    /// Waits for the lock. `give_up` is asked at each wake-up, at most 50 ms apart.
    pub fn acquire(&self, _give_up: &dyn Fn() -> bool) -> Acquire {
        todo!()
    }

    /// Gives the lock up, to the waiter who is next. Says to whom.
    pub fn release(&self, _reason: Reason, _now_ns: u64) -> Option<SlotId> {
        todo!()
    }

    /// Whether the lock is ours; a lock forced away is not.
    pub fn held(&self) -> bool {
        todo!()
    }

    /// Whether somebody eligible waits.
    pub fn contended(&self) -> bool {
        todo!()
    }

    /// When we got it.
    pub fn held_since(&self) -> u64 {
        todo!()
    }

    /// The futex word that changes when a waiter joins this device's queue: a lone holder's keeper sleeps on it.
    pub fn waiters_bell(&self) -> &std::sync::atomic::AtomicU32 {
        todo!()
    }

    /// Nanoseconds until this holder's cap asks it to pause, `Some(0)` when it is over; `None` without a cap.
    pub fn cap_left(&self, _now_ns: u64) -> Option<u64> {
        todo!()
    }
}
