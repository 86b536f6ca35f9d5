//! Giving the lock up: close the gate, wait until all is done, hand over.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use shm_layout::{DeviceLock, PolicyKind, Reason, clock};

use super::{Phase, Turn, gate_of, submitted};
use crate::{
    barrier,
    drain::Outstanding,
    futex,
    guest::{Device, Guest},
    thread, trace,
};

/// A turn that was stopped: nothing more goes in.
struct Stopped {
    pending: Outstanding,
    grace_ns: u64,
}

impl Turn {
    /// A counted submission has reached the driver: yield if the count is full and somebody waits.
    pub fn after_counted(&self, guest: &Guest, device: &Device) {
        let state = self.lock();
        let full = match state.rules.policy.kind {
            PolicyKind::Always => true,
            PolicyKind::Launches(n) => state.submitted >= n,
            PolicyKind::Off | PolicyKind::Timeslice(_) => false,
        };
        drop(state);
        if full && guest.registration.lock(device.entry).contended() {
            self.give_way(guest, device, Reason::Count);
        }
    }

    /// The application has synchronised: yield if somebody waits and the skips are used up.
    pub fn at_release_point(&self, guest: &Guest, device: &Device) {
        let mut state = self.lock();
        if state.phase != Phase::Held {
            return;
        }
        state.synchronised = state.synchronised.saturating_add(1);
        let kept = state.synchronised <= state.rules.policy.sync_skips;
        drop(state);
        if !kept && guest.registration.lock(device.entry).contended() {
            self.give_way(guest, device, Reason::Sync);
        }
    }

    /// Closes the gate, waits until what was submitted is done, and hands the lock over. What is not done
    /// within `grace` is left to itself: a forced release. Returns whether there was a lock to give.
    pub fn give_way(&self, guest: &Guest, device: &Device, reason: Reason) -> bool {
        let Some(Stopped {
            mut pending,
            grace_ns,
        }) = self.stop(device)
        else {
            return false;
        };
        let lock = guest.registration.lock(device.entry);
        let deadline = clock::now().saturating_add(grace_ns);
        let drained = quiet(device, deadline) && {
            take_streams(device, &mut pending);
            pending.finish(deadline)
        };
        if reason == Reason::Slice {
            self.learn(device);
        }
        let counters = guest.registration.count(device.entry);
        counters.drains.fetch_add(1, Relaxed);
        let reason = if drained {
            reason
        } else {
            counters.drain_timeouts.fetch_add(1, Relaxed);
            pending = Outstanding::default();
            Reason::Forced
        };
        self.hand_over(device, &lock, reason, pending);
        true
    }

    /// Gives the lock up if everything submitted is done, else goes on as before.
    pub fn give_way_if_done(&self, guest: &Guest, device: &Device) -> bool {
        let Some(Stopped { mut pending, .. }) = self.stop(device) else {
            return false;
        };
        let done = quiet(device, 0) && {
            take_streams(device, &mut pending);
            pending.is_finished()
        };
        if done {
            let lock = guest.registration.lock(device.entry);
            self.hand_over(device, &lock, Reason::Idle, pending);
        } else {
            self.go_on(device, pending);
        }
        done
    }

    /// We ran as far ahead as the pace allows: lets the device catch up for a moment, and goes on holding the lock
    /// unless it is due.
    pub(super) fn catch_up(&self, guest: &Guest, device: &Device, slice_ns: u64) {
        let Some(Stopped { mut pending, .. }) = self.stop(device) else {
            return;
        };
        let since = trace::begin_wait();
        let deadline = clock::now().saturating_add(slice_ns);
        let caught_up = quiet(device, deadline) && {
            take_streams(device, &mut pending);
            pending.finish(deadline)
        };
        guest
            .registration
            .count(device.entry)
            .drains
            .fetch_add(1, Relaxed);
        self.go_on(device, pending);
        trace::waited_since(since);
        let mut state = self.lock();
        if caught_up {
            state.submitted = 0;
        }
        let due = clock::now() >= state.acquired_ns.saturating_add(slice_ns);
        drop(state);
        if due && guest.registration.lock(device.entry).contended() {
            self.give_way(guest, device, Reason::Slice);
        } else {
            guest.ring(); // the keeper did not look meanwhile
        }
    }

    /// Goes on after a stop that was not the end.
    fn go_on(&self, device: &Device, pending: Outstanding) {
        let mut state = self.lock();
        state.pending = pending;
        state.phase = Phase::Held;
        if state.is_open() {
            gate_of(device).open();
        }
        self.changed.notify_all();
    }

    /// Nothing more goes in. `None` when the lock is not held, or somebody else stops it already.
    fn stop(&self, device: &Device) -> Option<Stopped> {
        let mut state = self.lock();
        if state.phase != Phase::Held {
            return None;
        }
        state.phase = Phase::Draining;
        gate_of(device).close();
        let pending = std::mem::take(&mut state.pending);
        let grace_ns = state.rules.policy.grace_ns;
        drop(state);
        barrier::heavy();
        Some(Stopped { pending, grace_ns })
    }

    /// How much of a slice's submissions fit into a slice: next time no more go in while somebody waits.
    fn learn(&self, device: &Device) {
        let mut state = self.lock();
        let PolicyKind::Timeslice(slice) = state.rules.policy.kind else {
            return;
        };
        let took = clock::now().saturating_sub(state.acquired_ns);
        let count = submitted(device).saturating_sub(state.submitted_before);
        state.pace.learn(count, took, slice);
    }

    fn hand_over(
        &self,
        device: &Device,
        lock: &DeviceLock<'_>,
        reason: Reason,
        pending: Outstanding,
    ) {
        let ours = lock.held();
        if ours {
            lock.release(reason, clock::now());
        }
        let mut state = self.lock();
        let reason = if ours { reason } else { Reason::Forced };
        trace::held(device.ordinal, state.acquired_ns, reason);
        state.pending = pending;
        state.phase = Phase::Free;
        self.held.store(false, Relaxed);
        self.changed.notify_all();
    }
}

/// Waits until no thread is inside the closed gate; a deadline of zero only looks.
fn quiet(device: &Device, deadline_ns: u64) -> bool {
    let mut spins = 0_u32;
    while thread::all().any(|thread| thread.is_inside(device.ordinal)) {
        if clock::now() >= deadline_ns {
            return false;
        }
        spins += 1;
        if spins < 100 {
            std::hint::spin_loop();
        } else {
            futex::nap(Duration::from_micros(20));
        }
    }
    true
}

fn take_streams(device: &Device, pending: &mut Outstanding) {
    let mut used = Vec::new();
    for thread in thread::all() {
        thread.take_streams(|used| used.ordinal == device.ordinal, &mut used);
    }
    for used in used {
        pending.add(used);
    }
}
