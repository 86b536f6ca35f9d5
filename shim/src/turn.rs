//! One device's turn: whether this process holds the device's lock, and how its threads come and go.
//!
//! ```text
//!            a submission wants in            the lock is ours
//!   Free ───────────────────────▶ Acquiring ─────────────────▶ Held
//!    ▲                                                           │ slice, count, sync, idle, pause …
//!    └────────── handed over ◀── Draining ◀──────────────────────┘ gate closed
//! ```
//!
//! With policy `off` the gate is open and the turn has nothing to say. With a time slice the gate is open
//! while the lock is held, and the keeper closes it. With a counted policy (`launches=N`, `always`) the gate
//! stays closed and every submission is counted here; when the count is full and somebody waits, the device
//! finishes what it was given, and whose turn it is is decided anew. The mutex is held for moments only: never
//! while waiting for the lock or for the device.

mod pace;
mod watch;
mod yielding;

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use shm_layout::{Acquire, DeviceLock, LockPolicy, PolicyKind, Reason, clock};

use pace::Pace;

use crate::{
    barrier,
    bypass::Bypass,
    drain::Outstanding,
    gate,
    guest::{Device, Guest},
    thread::{self, Thread, Used},
    trace,
};

/// Who has the lock, as far as this process is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Acquiring,
    Held,
    Draining,
}

/// What the settings ask of this process on this device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The policy in force; a cap without a policy is kept by slices of its own.
    pub policy: LockPolicy,
    /// Nothing may be submitted.
    pub paused: bool,
}

struct State {
    phase: Phase,
    rules: Rules,
    /// Counted submissions since the lock was acquired, or since the device last caught up with us.
    submitted: u32,
    /// When the first of them could go in.
    counted_from_ns: u64,
    /// The count was full and the turn is still ours: others wait who deserve it less.
    goes_on: bool,
    /// Explicit synchronisations since the lock was acquired.
    synchronised: u32,
    acquired_ns: u64,
    /// All the process had submitted to the device when the lock was acquired.
    submitted_before: u64,
    pace: Pace,
    /// Streams taken over from the threads that have not drained yet.
    pending: Outstanding,
}

impl State {
    /// Whether so much was submitted that the turn is to be decided anew.
    fn is_full(&self) -> bool {
        match self.rules.policy.kind {
            PolicyKind::Always => self.submitted >= 1,
            PolicyKind::Launches(n) => self.submitted >= n,
            PolicyKind::Off | PolicyKind::Timeslice(_) => false,
        }
    }

    /// Whether submissions need not be counted while the lock is held.
    fn is_open(&self) -> bool {
        !is_counted(self.rules.policy.kind) && !self.pace.is_kept() && barrier::is_cheap()
    }
}

/// So long after somebody waited, others are expected back.
const MOMENT: u64 = 20_000_000;

/// One device's turn.
pub struct Turn {
    state: Mutex<State>,
    changed: Condvar,
    /// Mirrors the phase for those who only want to know whether to look closer.
    held: AtomicBool,
    /// The rules changed: who waits for the lock shall think again.
    think_again: AtomicBool,
    /// What the threads had submitted when the keeper last saw something new, and when that was.
    seen_submitted: AtomicU64,
    seen_ns: AtomicU64,
    /// What they had submitted when the keeper last found all of it done, plus one.
    done_submitted: AtomicU64,
    /// When somebody last waited: for us, as the keeper saw it, or we for somebody.
    waited_ns: AtomicU64,
}

impl Default for Turn {
    /// A turn under policy `off` that nobody holds.
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                phase: Phase::Free,
                rules: Rules::default(),
                submitted: 0,
                counted_from_ns: 0,
                goes_on: false,
                synchronised: 0,
                acquired_ns: 0,
                submitted_before: 0,
                pace: Pace::default(),
                pending: Outstanding::default(),
            }),
            changed: Condvar::new(),
            held: AtomicBool::new(false),
            think_again: AtomicBool::new(false),
            seen_submitted: AtomicU64::new(0),
            seen_ns: AtomicU64::new(0),
            done_submitted: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
        }
    }
}

impl Turn {
    /// Whether this process holds the lock.
    pub fn is_held(&self) -> bool {
        self.held.load(Relaxed)
    }

    /// Lets a submission in: inside the gate when this returns `Ok`, which says whether it is counted.
    pub fn admit(&self, guest: &Guest, device: &Device, thread: &Thread) -> Result<bool, Bypass> {
        let lock = guest.registration.lock(device.entry);
        let mut state = self.lock();
        let mut decided = false;
        loop {
            if guest.is_leaving() {
                return Err(Bypass::Leaving);
            }
            if state.rules.paused {
                state = self.wait(state);
                continue;
            }
            if state.rules.policy.kind == PolicyKind::Off && state.phase == Phase::Free {
                gate_of(device).open();
                thread.begin_admitted(device.ordinal);
                return Ok(false);
            }
            match state.phase {
                // Once: what is not done within grace may be waiting for this very submission.
                Phase::Held if !decided && state.is_full() && self.is_contended(&lock) => {
                    decided = true;
                    drop(state);
                    self.decide(guest, device);
                    state = self.lock();
                }
                Phase::Held if lock.held() => {
                    let kind = state.rules.policy.kind;
                    if let PolicyKind::Timeslice(slice) = kind
                        && !state.pace.allows(state.submitted)
                    {
                        drop(state);
                        self.catch_up(guest, device, slice);
                        state = self.lock();
                        continue;
                    }
                    state.submitted = state.submitted.saturating_add(1);
                    thread.begin_admitted(device.ordinal);
                    return Ok(is_counted(state.rules.policy.kind));
                }
                Phase::Held => self.lost(&mut state, device),
                Phase::Acquiring | Phase::Draining => state = self.wait(state),
                Phase::Free => {
                    state.phase = Phase::Acquiring;
                    self.think_again.store(false, Relaxed);
                    drop(state);
                    release_later_devices(guest, device);
                    let acquired =
                        lock.acquire(&|| guest.is_leaving() || self.think_again.load(Relaxed));
                    state = self.lock();
                    self.acquired(&mut state, device, acquired);
                    if state.phase == Phase::Held {
                        guest.ring();
                    }
                }
            }
        }
    }

    /// Whether anybody who may have the lock waits, or did a moment ago: who has just handed it over needs a moment to
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
        if let Acquire::Held { waited_ns } = acquired {
            trace::waited(waited_ns);
            if waited_ns > 0 {
                self.waited_ns.store(clock::now(), Relaxed);
            }
            state.phase = Phase::Held;
            state.submitted = 0;
            state.synchronised = 0;
            state.acquired_ns = clock::now();
            state.counted_from_ns = state.acquired_ns;
            state.goes_on = false;
            state.submitted_before = submitted(device);
            self.held.store(true, Relaxed);
            self.seen_ns.store(state.acquired_ns, Relaxed);
            if state.is_open() {
                gate_of(device).open();
            }
        } else {
            state.phase = Phase::Free;
        }
        self.changed.notify_all();
    }

    /// The lock was forced away from us while we were stopped or wedged.
    fn lost(&self, state: &mut State, device: &Device) {
        gate_of(device).close();
        trace::held(device.ordinal, state.acquired_ns, Reason::Forced);
        state.phase = Phase::Free;
        self.held.store(false, Relaxed);
        self.changed.notify_all();
    }

    /// Whether what was admitted may still go to the device: nothing is locked, or the lock is still ours, be it that
    /// a drain waits for us already.
    pub fn is_ours(&self, guest: &Guest, device: &Device) -> bool {
        let state = self.lock();
        match state.phase {
            Phase::Free => state.rules.policy.kind == PolicyKind::Off,
            Phase::Held | Phase::Draining => guest.registration.lock(device.entry).held(),
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
        let mut gone = Vec::new();
        for thread in thread::all() {
            thread.take_streams(&which, &mut gone);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, but not long: who waits here also wants to hear that the process ends.
    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let since = trace::begin_wait();
        let waited = self.changed.wait_timeout(state, Duration::from_millis(50));
        trace::waited_since(since);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn is_counted(kind: PolicyKind) -> bool {
    matches!(kind, PolicyKind::Always | PolicyKind::Launches(_))
}

fn gate_of(device: &Device) -> &'static gate::Gate {
    gate::page()
        .and_then(|page| page.gates.get(usize::from(device.ordinal)))
        .unwrap_or(gate::always_closed())
}

/// Locks are waited for in device order only: what we hold of later devices goes first.
fn release_later_devices(guest: &Guest, wanted: &Device) {
    for device in &guest.devices {
        if device.entry.device() > wanted.entry.device() && device.turn.is_held() {
            device.turn.give_way(guest, device, Reason::Explicit);
        }
    }
}

/// Everything the process ever submitted to a device.
fn submitted(device: &Device) -> u64 {
    thread::all()
        .map(|thread| {
            let tally = thread.tally(device.ordinal);
            [&tally.graphs, &tally.copies, &tally.memsets]
                .iter()
                .fold(thread.launches(device.ordinal), |sum, word| {
                    sum.wrapping_add(word.load(Relaxed))
                })
        })
        .fold(0, u64::wrapping_add)
}
