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
//! stays closed and every submission is counted here. The mutex is held for moments only: never while
//! waiting for the lock or for the device.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use shm_layout::{Acquire, DeviceLock, LockPolicy, PolicyKind, Reason, clock};

use crate::{
    barrier,
    bypass::Bypass,
    drain::Outstanding,
    futex, gate,
    guest::{Device, Guest},
    thread::{self, Thread, Used},
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

/// How often a hold that is over its time is looked at.
const OVERTIME: u64 = 1_000_000;

struct State {
    phase: Phase,
    rules: Rules,
    /// Submissions and synchronisations since the lock was acquired.
    submitted: u32,
    synchronised: u32,
    acquired_ns: u64,
    /// Streams taken over from the threads that have not drained yet.
    pending: Outstanding,
}

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
}

impl Default for Turn {
    /// A turn under policy `off` that nobody holds.
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                phase: Phase::Free,
                rules: Rules::default(),
                submitted: 0,
                synchronised: 0,
                acquired_ns: 0,
                pending: Outstanding::default(),
            }),
            changed: Condvar::new(),
            held: AtomicBool::new(false),
            think_again: AtomicBool::new(false),
            seen_submitted: AtomicU64::new(0),
            seen_ns: AtomicU64::new(0),
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
                thread.begin_admitted();
                return Ok(false);
            }
            match state.phase {
                Phase::Held if lock.held() => {
                    state.submitted = state.submitted.saturating_add(1);
                    thread.begin_admitted();
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

    fn acquired(&self, state: &mut State, device: &Device, acquired: Acquire) {
        if let Acquire::Held { .. } = acquired {
            state.phase = Phase::Held;
            state.submitted = 0;
            state.synchronised = 0;
            state.acquired_ns = clock::now();
            self.held.store(true, Relaxed);
            self.seen_ns.store(state.acquired_ns, Relaxed);
            if !is_counted(state.rules.policy.kind) && barrier::is_cheap() {
                gate_of(device).open();
            }
        } else {
            state.phase = Phase::Free;
        }
        self.changed.notify_all();
    }

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
        let Some((mut pending, grace_ns)) = self.stop(device) else {
            return false;
        };
        let lock = guest.registration.lock(device.entry);
        let deadline = clock::now().saturating_add(grace_ns);
        let drained = quiet(device, deadline) && {
            take_streams(device, &mut pending);
            pending.finish(deadline)
        };
        let counters = guest.registration.count(device.entry);
        counters.drains.fetch_add(1, Relaxed);
        let reason = if drained {
            reason
        } else {
            counters.drain_timeouts.fetch_add(1, Relaxed);
            pending = Outstanding::default();
            Reason::Forced
        };
        self.hand_over(&lock, reason, pending);
        true
    }

    /// Gives the lock up if everything submitted is done, else goes on as before.
    pub fn give_way_if_done(&self, guest: &Guest, device: &Device) -> bool {
        let Some((mut pending, _)) = self.stop(device) else {
            return false;
        };
        let done = quiet(device, 0) && {
            take_streams(device, &mut pending);
            pending.is_finished()
        };
        if done {
            self.hand_over(
                &guest.registration.lock(device.entry),
                Reason::Idle,
                pending,
            );
        } else {
            let mut state = self.lock();
            state.pending = pending;
            state.phase = Phase::Held;
            if !is_counted(state.rules.policy.kind) && barrier::is_cheap() {
                gate_of(device).open();
            }
            self.changed.notify_all();
        }
        done
    }

    /// Nothing more goes in. `None` when the lock is not held, or somebody else stops it already.
    fn stop(&self, device: &Device) -> Option<(Outstanding, u64)> {
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
        Some((pending, grace_ns))
    }

    fn hand_over(&self, lock: &DeviceLock<'_>, reason: Reason, pending: Outstanding) {
        if lock.held() {
            lock.release(reason, clock::now());
        }
        let mut state = self.lock();
        state.pending = pending;
        state.phase = Phase::Free;
        self.held.store(false, Relaxed);
        self.changed.notify_all();
    }

    /// The lock was forced away from us while we were stopped or wedged.
    fn lost(&self, state: &mut State, device: &Device) {
        gate_of(device).close();
        state.phase = Phase::Free;
        self.held.store(false, Relaxed);
        self.changed.notify_all();
    }

    /// Follows new rules. The gate is right when it returns; a lock that is not wanted any more is given up.
    pub fn follow(&self, guest: &Guest, device: &Device, rules: Rules) {
        let mut state = self.lock();
        if state.rules == rules {
            return;
        }
        let before = std::mem::replace(&mut state.rules, rules);
        self.think_again.store(true, Relaxed);
        let off = rules.policy.kind == PolicyKind::Off;
        let open = match state.phase {
            _ if rules.paused => false,
            Phase::Free => off,
            Phase::Held => !is_counted(rules.policy.kind) && barrier::is_cheap(),
            Phase::Acquiring | Phase::Draining => false,
        };
        if open {
            gate_of(device).open();
        } else {
            gate_of(device).close();
        }
        self.changed.notify_all();
        drop(state);
        if rules.paused && !before.paused {
            self.give_way(guest, device, Reason::Paused);
        } else if off {
            self.give_way(guest, device, Reason::Off);
            let state = self.lock();
            if state.phase == Phase::Free
                && state.rules.policy.kind == PolicyKind::Off
                && !state.rules.paused
            {
                gate_of(device).open();
            }
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

    /// What the keeper has to do now, and when it wants to look again (ns from now).
    pub fn look(&self, guest: &Guest, device: &Device, now: u64) -> Option<Duration> {
        let mut state = self.lock();
        if state.phase != Phase::Held {
            return None;
        }
        let lock = guest.registration.lock(device.entry);
        if !lock.held() {
            self.lost(&mut state, device);
            return None;
        }
        let policy = state.rules.policy;
        let acquired_ns = state.acquired_ns;
        drop(state);
        let submitted = submitted(device);
        if self.seen_submitted.swap(submitted, Relaxed) != submitted {
            self.seen_ns.store(now, Relaxed);
        }
        if lock.cap_left(now) == Some(0) {
            self.give_way(guest, device, Reason::Paused);
            return None;
        }
        let limit = match policy.kind {
            PolicyKind::Timeslice(slice) => slice.min(policy.max_hold_ns),
            _ => policy.max_hold_ns,
        };
        let end = acquired_ns.saturating_add(limit);
        if now >= end && lock.contended() {
            self.give_way(guest, device, Reason::Slice);
            return None;
        }
        let idle_at = self.seen_ns.load(Relaxed).saturating_add(policy.idle_ns);
        if now >= idle_at && self.give_way_if_done(guest, device) {
            return None;
        }
        let idle_wait = if now >= idle_at {
            policy.idle_ns
        } else {
            idle_at - now
        };
        // Behind its end a slice goes on only until somebody deserves the lock more, which time alone may bring.
        let slice_wait = if now >= end { OVERTIME } else { end - now };
        let cap_wait = lock.cap_left(now).unwrap_or(u64::MAX);
        Some(Duration::from_nanos(
            idle_wait.min(slice_wait).min(cap_wait).max(50_000),
        ))
    }

    /// At the process's end: gives the lock up whatever is still running after a moment.
    pub fn leave(&self, guest: &Guest, device: &Device) {
        self.think_again.store(true, Relaxed);
        self.give_way(guest, device, Reason::Exit);
        gate_of(device).open();
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, but not long: who waits here also wants to hear that the process ends.
    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let waited = self.changed.wait_timeout(state, Duration::from_millis(50));
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

/// Everything the process ever submitted to a device.
pub fn submitted(device: &Device) -> u64 {
    thread::all()
        .map(|thread| {
            let tally = thread.tally(device.ordinal);
            [
                &tally.launches,
                &tally.graphs,
                &tally.copies,
                &tally.memsets,
            ]
            .iter()
            .fold(0_u64, |sum, word| sum.wrapping_add(word.load(Relaxed)))
        })
        .fold(0, u64::wrapping_add)
}

/// Locks are waited for in device order only: what we hold of later devices goes first.
fn release_later_devices(guest: &Guest, wanted: &Device) {
    for device in &guest.devices {
        if device.entry.device() > wanted.entry.device() && device.turn.is_held() {
            device.turn.give_way(guest, device, Reason::Explicit);
        }
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
