//! The turn of a process on a device: whether the process holds the device's lock, and which of its threads may
//! submit.
//!
//! ```text
//!               a submission                 lock acquired
//!   Free ───────────────────────▶ Acquiring ─────────────────▶ Held
//!    ▲                                                           │ slice, count, sync, idle, pause …
//!    └────────── handed over ◀── Draining ◀──────────────────────┘ gate closed
//! ```
//!
//! With policy `off` the gate is open and the turn does nothing. Under `overlap` there are no turns
//! (`turn/overlap.rs`). With a time slice the gate is open while the lock is held, and the keeper closes it at the
//! end. With a counted policy (`launches=N`, `always`) the gate stays closed and every submission is counted here.
//! When the count is full and another process waits, the device finishes the submitted work, and the next owner of
//! the lock is chosen. The mutex is never held during a wait for the lock or for the device.

pub mod alone;
pub mod context_end;
pub mod drain;
mod overlap;
pub mod phase;
pub mod queue_depth;
mod release;
pub mod rounds;
pub mod state;
mod watch;

use std::{
    sync::{MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use context_end::ContextEnd;
use gpushare_abi::types::CUdevice;
use shm_layout::{Acquire, DeviceLock, PolicyKind, Reason, clock};
use state::{Phase, State, Turn, is_counted, is_evicted, is_locked};

use crate::{
    gate,
    managed_process::{self, Bypass, Device, ManagedProcess},
    thread::{self, Thread, Used},
    trace,
};

/// Time after another process waited during which it is expected to wait again, in nanoseconds.
const MOMENT: u64 = 20_000_000;

impl Turn {
    /// Waits until a submission may go to the device. On `Ok` the thread is inside the gate; the value is the number of
    /// submissions to the same stream that the thread may make before the next check, this one included, or 0 if they
    /// are not counted. The caller has marked the thread as inside a call, because the driver may be queried here. The
    /// thread is outside while it waits.
    pub fn admit(
        &self,
        process: &ManagedProcess,
        device: &Device,
        thread: &Thread,
    ) -> Result<u32, Bypass> {
        let lock = process.registration.lock(device.entry);
        give_back_allotment(process);
        let mut state = self.lock();
        // Before any wait: the time that other processes use the device is no gap of the application's.
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
                return Ok(0);
            }
            match state.phase {
                Phase::Held if state.overlapping => {
                    match self.admit_overlap(state, process, device, thread) {
                        Ok(counted) => return Ok(counted),
                        Err(again) => state = again,
                    }
                }
                // Only once: work that is not done within `grace` may itself be waiting for this submission.
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
                    match self.admit_holder(state, process, device, thread) {
                        Ok(allotted) => return Ok(allotted),
                        Err(again) => state = again,
                    }
                }
                Phase::Held => self.lost(&mut state, device),
                Phase::Acquiring | Phase::Draining => state = self.wait_outside(state, thread),
                Phase::Free if !state.rules.policy.kind.has_turns() => {
                    self.begin_overlap(&mut state, process, device);
                }
                Phase::Free => state = self.acquire(state, process, device, thread, &lock),
            }
        }
    }

    /// Lets a submission of the holder go, and returns the number that it may make; or waits if the queue has no room.
    fn admit_holder<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        process: &ManagedProcess,
        device: &Device,
        thread: &Thread,
    ) -> Result<u32, MutexGuard<'s, State>> {
        let mut allotted = u32::from(is_counted(state.rules.policy.kind));
        if let (true, Some(depth_ns)) = (state.limited, state.depth_ns()) {
            let room = self.queue_depth().room(depth_ns, clock::now());
            match room {
                Ok(count) => allotted = meter_gate(&state, device, count),
                Err(nap) => return Err(self.let_catch_up(state, process, device, thread, nap)),
            }
        }
        state.submitted = state.submitted.saturating_add(1);
        state.allowance = state.allowance.map(|left| left.saturating_sub(1));
        if state.is_open() {
            open_gate(device);
        }
        thread.begin_admitted(device.ordinal);
        Ok(allotted)
    }

    /// Waits for the lock, outside the gate.
    fn acquire<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        process: &ManagedProcess,
        device: &Device,
        thread: &Thread,
        lock: &DeviceLock<'_>,
    ) -> MutexGuard<'s, State> {
        state.phase.begin_to_acquire();
        self.recheck.store(false, Relaxed);
        drop(state);
        release_later_devices(process, device);
        let gives_up = || process.is_leaving() || self.recheck.load(Relaxed);
        let acquired = thread.outside(|| lock.acquire(&gives_up));
        let mut state = self.lock();
        self.acquired(&mut state, device, acquired);
        if state.phase == Phase::Held {
            process.ring();
        }
        state
    }

    /// Returns true if a process that may have the lock waits, or waited less than [`MOMENT`] ago. A process that has
    /// just handed the lock over needs some time to ask for it again, more on a busy machine.
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
                self.limit(state, device);
            }
            state.submitted = 0;
            state.synchronised = 0;
            self.queue_depth().begin(true);
            state.acquired_ns = clock::now();
            state.counted_from_ns = state.acquired_ns;
            state.goes_on = false;
            self.held.store(true, Relaxed);
            self.seen_ns.store(state.acquired_ns, Relaxed);
            if state.is_open() {
                open_gate(device);
            }
        }
        self.changed.notify_all();
    }

    /// Records that another process took the lock away by force while this one was stopped or stuck.
    fn lost(&self, state: &mut State, device: &Device) {
        gate_of(device).close();
        trace::held(device.ordinal, state.acquired_ns, Reason::Forced);
        state.phase.lose();
        state.allowance = None;
        self.held.store(false, Relaxed);
        self.queue_depth().forget_all();
        self.changed.notify_all();
    }

    /// Returns true if admitted work may still go to the device: there are no turns, or this process still holds the
    /// lock, even if a drain already waits for the calling thread.
    pub fn is_ours(&self, process: &ManagedProcess, device: &Device) -> bool {
        let state = self.lock();
        match state.phase {
            Phase::Free => !state.rules.policy.kind.has_turns(),
            Phase::Held | Phase::Draining | Phase::Acquiring if state.overlapping => true,
            Phase::Held | Phase::Draining => process.registration.lock(device.entry).held(),
            Phase::Acquiring => false,
        }
    }

    /// Stops querying streams that are about to end or to be captured: events stand for their work. Waits for a drain in progress.
    fn seal_streams(&self, which: impl Fn(&Used) -> bool, end: Option<&ContextEnd>) {
        let mut state = self.lock();
        while state.phase == Phase::Draining {
            state = self.wait(state);
        }
        let mut used = Vec::new();
        for thread in thread::all() {
            thread.take_streams(&which, &mut used);
        }
        if is_locked() {
            state.pending.abandon(&which);
            return;
        }
        // Without a turn there is no drain.
        if state.phase == Phase::Held || state.overlapping {
            used.into_iter().for_each(|used| state.pending.add(used));
        }
        state.pending.seal(&which, end);
        self.queue_depth().seal(&which, end, clock::now());
    }

    /// Closes the gate because the process locks itself for a checkpoint. Returns true if no turn is held.
    pub fn shut(&self, device: &Device) -> bool {
        let state = self.lock();
        gate_of(device).close();
        self.recheck.store(true, Relaxed);
        self.changed.notify_all();
        state.phase == Phase::Free
    }

    /// Waits for a change while the thread counts as outside: the driver must not be called again before the caller
    /// checks the state.
    fn wait_outside<'s>(
        &self,
        state: MutexGuard<'s, State>,
        thread: &Thread,
    ) -> MutexGuard<'s, State> {
        thread.outside(|| self.wait(state))
    }

    /// Waits for a change, at most 50 ms, so that the caller also notices when the process ends.
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

/// Opens the gate of a device; during a trace, for the path that measures submissions. While the process is locked
/// for a checkpoint the gate stays closed.
fn open_gate(device: &Device) {
    if !is_locked() {
        gate_of(device).open(trace::is_on());
    }
}

/// Opens the gate of a device for `count` submissions of the calling thread, if they may go past it. Returns how many may.
fn meter_gate(state: &State, device: &Device, count: u32) -> u32 {
    if !state.is_metered() || trace::is_on() || is_locked() {
        return 1;
    }
    gate_of(device).meter();
    count
}

/// Records that the calling thread will not make the rest of its allotted submissions.
pub fn give_back_allotment(process: &ManagedProcess) {
    let rest = thread::current().and_then(Thread::take_allotment);
    if let Some((ordinal, key, count)) = rest {
        let mut devices = process.devices.iter();
        if let Some(device) = devices.find(|device| device.ordinal == ordinal) {
            device.turn.queue_depth().give_back(key, count);
        }
    }
}

/// Stops querying streams that are about to be captured or to end, with `end` or alone, on one device or on all. Waits for a drain
/// that queries them.
pub fn seal_streams(
    process: &ManagedProcess,
    ordinal: Option<CUdevice>,
    which: impl Fn(&Used) -> bool,
    end: Option<&ContextEnd>,
) {
    for device in &process.devices {
        if ordinal.is_none_or(|ordinal| ordinal == i32::from(device.ordinal)) {
            let which = |used: &Used| used.ordinal == device.ordinal && which(used);
            device.turn.seal_streams(which, end);
        }
    }
}

/// Releases the locks of later devices, because locks are acquired in device order only; this prevents a deadlock.
fn release_later_devices(process: &ManagedProcess, wanted: &Device) {
    for device in &process.devices {
        if device.entry.device() > wanted.entry.device() && device.turn.is_held() {
            device.turn.release(process, device, Reason::Explicit);
        }
    }
}

/// Returns the number of operations that the process has ever submitted to a device.
fn submitted(device: &Device) -> u64 {
    let launches = thread::launches(device.ordinal);
    thread::all().fold(launches, |sum, thread| {
        let tally = thread.tally(device.ordinal);
        [&tally.graphs, &tally.copies, &tally.memsets]
            .iter()
            .fold(sum, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    })
}
