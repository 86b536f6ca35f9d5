//! One device's turn: whether this process holds the device's lock, and how its threads come and go.
//!
//! ```text
//!            a submission wants in            the lock is ours
//!   Free ───────────────────────▶ Acquiring ─────────────────▶ Held
//!    ▲                                                           │ slice, count, sync, idle, pause …
//!    └────────── handed over ◀── Draining ◀──────────────────────┘ gate closed
//! ```
//!
//! With policy `off` the gate is open and the turn has nothing to say. Under `overlap` there are no turns (`turn/overlap.rs`).
//! With a time slice the gate is open while the lock is held, and the keeper closes it. With a counted policy (`launches=N`, `always`) the gate
//! stays closed and every submission is counted here; when the count is full and another process waits, the device
//! finishes what it was given, and whose turn it is is decided anew. The mutex is held for moments only: never
//! while waiting for the lock or for the device.

pub mod drain;
pub mod idle_estimate;
mod overlap;
pub mod phase;
pub mod queue_depth;
mod release;
pub mod state;
mod watch;

use std::{
    sync::{MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use gpushare_abi::types::CUdevice;
use shm_layout::{Acquire, DeviceLock, PolicyKind, Reason, clock};
use state::{Phase, State, Turn, is_counted, is_evicted, is_locked};

use crate::{
    gate,
    managed_process::{self, Bypass, Device, ManagedProcess},
    thread::{self, Thread, Used},
    trace,
};

/// So long after another process waited, it is expected back.
const MOMENT: u64 = 20_000_000;

impl Turn {
    /// Lets a submission in: inside the gate when this returns `Ok`, which says whether it is counted. The thread is inside a call
    /// before, for the driver may be asked here, and outside while it waits.
    pub fn admit(
        &self,
        process: &ManagedProcess,
        device: &Device,
        thread: &Thread,
    ) -> Result<bool, Bypass> {
        let lock = process.registration.lock(device.entry);
        let mut state = self.lock();
        // Before any wait: what others do with the device meanwhile is no gap of the application's.
        state.learn_idle();
        let mut decided = false;
        loop {
            if is_evicted() || thread::is_suspended() {
                return Err(Bypass::Evicted);
            }
            if process.is_leaving() {
                return Err(Bypass::Leaving);
            }
            if state.rules.paused || is_locked() {
                state = self.wait_outside(state, thread);
                continue;
            }
            if state.rules.policy.kind == PolicyKind::Off && state.phase == Phase::Free {
                open_gate(device);
                thread.begin_admitted(device.ordinal);
                return Ok(false);
            }
            match state.phase {
                Phase::Held if state.overlapping => {
                    match self.admit_overlap(state, process, device, thread) {
                        Ok(counted) => return Ok(counted),
                        Err(again) => state = again,
                    }
                }
                // Once: what is not done within grace may be waiting for this very submission.
                Phase::Held if !decided && state.is_full() && self.is_contended(&lock) => {
                    decided = true;
                    drop(state);
                    self.decide(process, device);
                    state = self.lock();
                }
                Phase::Held if state.allowance == Some(0) => {
                    state = self.wait_outside(state, thread);
                }
                Phase::Held if lock.held() => {
                    let kind = state.rules.policy.kind;
                    if let (true, Some(depth_ns)) = (state.limited, state.depth_ns()) {
                        let full = self.queue_depth().full(depth_ns, clock::now());
                        if let Some(nap) = full {
                            state.was_full = true;
                            let grace = state.rules.policy.grace_ns;
                            drop(state);
                            self.let_catch_up(process, device, thread, nap, grace);
                            state = self.lock();
                            continue;
                        }
                    }
                    state.submitted = state.submitted.saturating_add(1);
                    state.allowance = state.allowance.map(|left| left.saturating_sub(1));
                    if state.is_open() {
                        open_gate(device);
                    }
                    thread.begin_admitted(device.ordinal);
                    return Ok(is_counted(kind) || state.limited);
                }
                Phase::Held => self.lost(&mut state, device),
                Phase::Acquiring | Phase::Draining => state = self.wait_outside(state, thread),
                Phase::Free if !state.rules.policy.kind.has_turns() => {
                    self.begin_overlap(&mut state, process, device);
                }
                Phase::Free => {
                    state.phase.begin_to_acquire();
                    self.recheck.store(false, Relaxed);
                    drop(state);
                    release_later_devices(process, device);
                    let gives_up = || process.is_leaving() || self.recheck.load(Relaxed);
                    let acquired = thread.outside(|| lock.acquire(&gives_up));
                    state = self.lock();
                    self.acquired(&mut state, device, acquired);
                    if state.phase == Phase::Held {
                        process.ring();
                    }
                }
            }
        }
    }

    /// Whether a process that may have the lock waits, or did a moment ago: one that has just handed it over needs a moment to
    /// come back for it, the longer the busier the machine is.
    fn is_contended(&self, lock: &DeviceLock<'_>) -> bool {
        let now = clock::now();
        if lock.is_wanted() {
            self.waited_ns.store(now, Relaxed);
            return true;
        }
        now.saturating_sub(self.waited_ns.load(Relaxed)) < MOMENT
    }

    fn acquired(&self, state: &mut State, device: &Device, acquired: Acquire) {
        state
            .phase
            .acquired(matches!(acquired, Acquire::Held { .. }));
        if let Acquire::Held { waited_ns } = acquired {
            trace::waited(waited_ns);
            if waited_ns > 0 {
                self.waited_ns.store(clock::now(), Relaxed);
            }
            state.submitted = 0;
            state.synchronised = 0;
            state.acquired_ns = clock::now();
            state.counted_from_ns = state.acquired_ns;
            state.goes_on = false;
            state.was_full = false;
            self.held.store(true, Relaxed);
            self.seen_ns.store(state.acquired_ns, Relaxed);
            if state.is_open() {
                open_gate(device);
            }
        }
        self.changed.notify_all();
    }

    /// The lock was forced away from us while we were stopped or wedged.
    fn lost(&self, state: &mut State, device: &Device) {
        gate_of(device).close();
        trace::held(device.ordinal, state.acquired_ns, Reason::Forced);
        state.phase.lose();
        self.held.store(false, Relaxed);
        self.queue_depth().forget_all();
        self.changed.notify_all();
    }

    /// Whether what was admitted may still go to the device: nothing is locked, or the lock is still ours, even if a
    /// drain waits for us already.
    pub fn is_ours(&self, process: &ManagedProcess, device: &Device) -> bool {
        let state = self.lock();
        match state.phase {
            Phase::Free => !state.rules.policy.kind.has_turns(),
            Phase::Held | Phase::Draining | Phase::Acquiring if state.overlapping => true,
            Phase::Held | Phase::Draining => process.registration.lock(device.entry).held(),
            Phase::Acquiring => false,
        }
    }

    /// Streams that vanish are no longer asked about. Waits for a drain in progress.
    pub fn forget_streams(&self, which: impl Fn(&Used) -> bool) {
        let mut state = self.lock();
        while state.phase == Phase::Draining {
            state = self.wait(state);
        }
        state.pending.forget(&which);
        self.queue_depth().forget(&which);
        let mut gone = Vec::new();
        for thread in thread::all() {
            thread.take_streams(&which, &mut gone);
        }
    }

    /// The process is locked from now on, by itself: no submission passes the gate. Says whether none holds a turn.
    pub fn shut(&self, device: &Device) -> bool {
        let state = self.lock();
        gate_of(device).close();
        self.recheck.store(true, Relaxed);
        self.changed.notify_all();
        state.phase == Phase::Free
    }

    /// Waits for a change in no call: the driver is not to be asked before the door is looked at again.
    fn wait_outside<'s>(
        &self,
        state: MutexGuard<'s, State>,
        thread: &Thread,
    ) -> MutexGuard<'s, State> {
        thread.outside(|| self.wait(state))
    }

    /// Waits for a change, but not long: who waits here also wants to hear that the process ends.
    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let since = trace::begin_wait();
        let waited = self.changed.wait_timeout(state, Duration::from_millis(50));
        trace::waited_since(since);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn gate_of(device: &Device) -> &'static gate::Gate {
    managed_process::gate_of(device.ordinal).unwrap_or(thread::always_closed())
}

/// Lets submissions to a device through; while a trace is on, on the path where they are timed. Not while the process is
/// locked: behind its turn's mutex no gate opens any more.
fn open_gate(device: &Device) {
    if !is_locked() {
        gate_of(device).open(trace::is_on());
    }
}

/// Streams that are about to vanish are no longer asked about; waits for a drain that uses them.
pub fn forget_streams(
    process: &ManagedProcess,
    ordinal: Option<CUdevice>,
    which: impl Fn(&Used) -> bool,
) {
    for device in &process.devices {
        if ordinal.is_none_or(|ordinal| ordinal == i32::from(device.ordinal)) {
            device
                .turn
                .forget_streams(|used| used.ordinal == device.ordinal && which(used));
        }
    }
}

/// Locks are waited for in device order only: what we hold of later devices goes first.
fn release_later_devices(process: &ManagedProcess, wanted: &Device) {
    for device in &process.devices {
        if device.entry.device() > wanted.entry.device() && device.turn.is_held() {
            device.turn.release(process, device, Reason::Explicit);
        }
    }
}

/// Everything the process ever submitted to a device.
fn submitted(device: &Device) -> u64 {
    let launches = thread::launches(device.ordinal);
    thread::all().fold(launches, |sum, thread| {
        let tally = thread.tally(device.ordinal);
        [&tally.graphs, &tally.copies, &tally.memsets]
            .iter()
            .fold(sum, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    })
}
