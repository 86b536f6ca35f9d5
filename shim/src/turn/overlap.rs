//! Without turns: the policy `overlap`.
//!
//! The phases are those of a turn, and `Held` means that this process is active on the device, beside others:
//!
//! ```text
//!           a submission                  no work left, and nothing new
//!   Free ───────────────▶ Held ──────────────────────────────────────────▶ Free
//!                         ▲  │ a process that goes first is active
//!                         │  ▼
//!                       Acquiring (held back)
//! ```
//!
//! While no other process can make this one hold back the gate is open, and a launch costs what it costs without a policy.
//! Else the gate stays closed: each submission looks whether it is held back, and at how much is queued
//! ([`ahead`](super::ahead)). Nothing is drained here: what was queued runs on. A process that is held back for one of
//! higher priority goes on with very little queued, if its kernels are that small; one that is ahead of its share, or over
//! its cap, not at all.

use std::{
    sync::{MutexGuard, atomic::Ordering::Relaxed},
    time::Duration,
};

use shm_layout::{DeviceLock, PolicyKind, Reason, clock};

use crate::{
    managed_process::{Device, ManagedProcess},
    sys::futex,
    thread::Thread,
    trace,
    turn::{
        gate_of, idle_estimate, open_gate,
        state::{Phase, State, Turn},
        submitted,
        watch::Next,
    },
};

/// While a process of higher priority is active, this part of what may be queued fills the moments in which that one's
/// kernels leave the device alone. Measured on an H200, an inference beside two trainings, `overlap` of 500 us: with 62 us the
/// trainings do 96.5 % of what time slicing lets them, with 95 us 98.0 and with 125 us 98.3; the inference's median was 3.9, 4.5
/// and 4.4 ms, that of time slicing 6.4.
const TRICKLE: u64 = 5;
/// And no more than this. Measured on an H100, `overlap=2ms`: with 500 us the inference takes a tenth longer.
const MOST_TRICKLE: u64 = 250_000;
/// How often the keeper looks while a process that is held back waits for us, or shares with us ...
const CLOSE: u64 = 1_000_000;
/// ... and else.
const FAR: u64 = 5_000_000;

impl Turn {
    /// Becomes active.
    pub(super) fn begin_overlap(
        &self,
        state: &mut State,
        process: &ManagedProcess,
        device: &Device,
    ) {
        let now = clock::now();
        let lock = process.registration.lock(device.entry);
        state.phase = Phase::Held;
        state.overlapping = true;
        state.limited = lock.may_have_to_hold_back(now);
        lock.begin_activity(now);
        self.held.store(true, Relaxed);
        self.seen_ns.store(now, Relaxed);
        if state.is_open() {
            open_gate(device);
        }
        self.changed.notify_all();
        process.ring();
    }

    /// Is active no more. What is queued, if anything is, runs on.
    pub(super) fn end_overlap(&self, state: &mut State, process: &ManagedProcess, device: &Device) {
        gate_of(device).close();
        process
            .registration
            .lock(device.entry)
            .end_activity(clock::now());
        state.phase = Phase::Free;
        state.overlapping = false;
        state.limited = false;
        self.held.store(false, Relaxed);
        self.queue_depth().forget_all();
        self.changed.notify_all();
    }

    /// Lets a submission in beside others, or says what has changed meanwhile.
    pub(super) fn admit_overlap<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        process: &ManagedProcess,
        device: &Device,
        thread: &Thread,
    ) -> Result<bool, MutexGuard<'s, State>> {
        let PolicyKind::Overlap(Some(depth_ns)) = state.rules.policy.kind else {
            self.end_overlap(&mut state, process, device);
            return Err(state);
        };
        let now = clock::now();
        if !state.limited {
            if state.is_open() {
                open_gate(device);
            }
            thread.begin_admitted(device.ordinal);
            return Ok(false);
        }
        let lock = process.registration.lock(device.entry);
        if now >= state.pass_until_ns
            && let Some(held) = lock.held_back_by(depth_ns, 0, now)
        {
            if !lock.has_waited_enough(depth_ns, now) {
                let full = match held.wholly {
                    true => Some(Duration::MAX),
                    false => {
                        let trickle_ns = (depth_ns / TRICKLE).min(MOST_TRICKLE);
                        self.queue_depth().full_with_one_more(trickle_ns, now)
                    }
                };
                if let Some(nap) = full {
                    return Err(self.hold_back(state, process, &lock, depth_ns, nap));
                }
                thread.begin_admitted(device.ordinal);
                return Ok(true);
            }
            // A moment is its own, and then it is held back again.
            state.pass_until_ns = now.saturating_add(depth_ns);
        }
        lock.go_on(now);
        let full = self.queue_depth().full(depth_ns, now);
        if let Some(nap) = full {
            let grace = state.rules.policy.grace_ns;
            drop(state);
            self.let_catch_up(process, device, thread, nap, grace);
            return Err(self.lock());
        }
        thread.begin_admitted(device.ordinal);
        Ok(true)
    }

    /// Waits until no process that goes first is active, or for so long; one thread for all of the process.
    fn hold_back<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        process: &ManagedProcess,
        lock: &DeviceLock<'_>,
        depth_ns: u64,
        most: Duration,
    ) -> MutexGuard<'s, State> {
        state.phase = Phase::Acquiring;
        self.recheck.store(false, Relaxed);
        drop(state);
        let since = trace::begin_wait();
        let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        lock.hold_back(depth_ns, most_ns, &|| {
            process.is_leaving() || self.recheck.load(Relaxed)
        });
        trace::waited_since(since);
        let mut state = self.lock();
        state.phase = Phase::Held;
        self.seen_ns.store(clock::now(), Relaxed);
        self.changed.notify_all();
        state
    }

    /// So much is queued that this submission waits a moment. What does not get on within `grace` may be waiting for this
    /// very submission.
    pub(super) fn let_catch_up(
        &self,
        process: &ManagedProcess,
        device: &Device,
        thread: &Thread,
        nap: Duration,
        grace_ns: u64,
    ) {
        let since = trace::begin_wait();
        thread.outside(|| futex::nap(nap));
        trace::waited_since(since);
        let mut depth = self.queue_depth();
        if clock::now().saturating_sub(depth.progress_ns()) > grace_ns {
            depth.forget_all();
            let counters = process.registration.count(device.entry);
            counters.drain_timeouts.fetch_add(1, Relaxed);
        }
    }

    /// The application has synchronised: processes held back for us go on soon, unless we submit again.
    pub(super) fn synchronised(
        &self,
        state: &mut State,
        process: &ManagedProcess,
        device: &Device,
        wanted: bool,
    ) {
        state.synced_ns = clock::now();
        if wanted {
            // The next submission tells how long the gap was. No thread has to have seen it.
            gate_of(device).close();
            process.ring();
        }
    }

    /// When a process that has nothing to do gives the device up.
    pub(super) fn idle_at(&self, state: &State) -> u64 {
        let seen = self.seen_ns.load(Relaxed);
        match state.rules.policy.idle_ns {
            Some(idle) => seen.saturating_add(idle),
            None if state.synced_ns != 0 => state.synced_ns.saturating_add(state.idle.keep()),
            None => seen.saturating_add(idle_estimate::UNSYNCHRONISED),
        }
    }

    /// What the keeper has to do now for a process that is active beside others.
    pub(super) fn poll_overlap<'g>(
        &self,
        mut state: MutexGuard<'_, State>,
        process: &'g ManagedProcess,
        device: &Device,
        now: u64,
    ) -> Option<Next<'g>> {
        let lock = process.registration.lock(device.entry);
        if !matches!(state.rules.policy.kind, PolicyKind::Overlap(_)) {
            self.end_overlap(&mut state, process, device);
            return None;
        }
        lock.keep_active(now);
        let limited = lock.may_have_to_hold_back(now);
        if limited != state.limited {
            state.limited = limited;
            if limited {
                gate_of(device).close();
            } else {
                self.queue_depth().forget_all();
            }
        }
        let submitted = submitted(device);
        if self.seen_submitted.swap(submitted, Relaxed) != submitted {
            self.seen_ns.store(now, Relaxed);
            // With an open gate nothing else tells that it went on.
            if gate_of(device).is_passable() {
                state.synced_ns = 0;
            }
        }
        let idle_at = self.idle_at(&state);
        drop(state);
        if now >= idle_at && self.release_if_done(process, device, Reason::Idle) {
            return None;
        }
        let period = if limited || lock.holds_others_back() {
            CLOSE
        } else {
            FAR
        };
        let idle_wait = match idle_at.checked_sub(now) {
            Some(left) if left > 0 => left.max(50_000),
            _ => CLOSE / 2,
        };
        Some(Next::within(period.min(idle_wait)))
    }
}
