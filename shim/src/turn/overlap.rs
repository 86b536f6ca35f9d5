//! The policy `overlap`, under which several processes use a device at the same time, without turns.
//!
//! The phases are those of a turn; `Held` means that this process is active on the device, possibly with others:
//!
//! ```text
//!           a submission                  no work left, and nothing new
//!   Free ───────────────▶ Held ──────────────────────────────────────────▶ Free
//!                         ▲  │ a process that goes first is active
//!                         │  ▼
//!                       Acquiring (held back)
//! ```
//!
//! While no other process can make this one hold back, the gate is open and a launch costs as much as without a
//! policy. Otherwise a submission checks whether the process is held back and how much work is queued
//! ([`queue_depth`](super::queue_depth)), and is allotted as many as one event covers: the gate is metered, and they
//! pass without another check. The device is never drained: queued work continues. A process that is held back for one
//! of higher priority continues with very little work queued, if its kernels are short enough, and with as much as that
//! process tolerates ([`rounds`](super::rounds)), which may be everything until that one waits for the device. A process that
//! is ahead of its share, or over its cap, submits nothing.

use std::{
    sync::{MutexGuard, atomic::Ordering::Relaxed},
    time::Duration,
};

use shm_layout::{DeviceLock, PolicyKind, Reason, Tolerance, clock};

use crate::{
    managed_process::{Device, ManagedProcess},
    sys::futex,
    thread::Thread,
    trace,
    turn::{
        alone::Step,
        gate_of, meter_gate, open_gate, rounds,
        state::{Phase, State, Turn},
        submitted,
        watch::Next,
    },
};

/// Divisor of the queue depth for a process that is held back by one of higher priority: its short kernels fill the
/// gaps between the other's kernels. Measured on an H200, an inference beside two trainings, in turns of 5 s, the
/// inference's median and what the trainings did of time slicing. With queues of 500 us: 4.75 ms and 0.99 with 250 us here, 4.77 and 0.95 with
/// 166, 4.25 and 0.94 with 100 (time slicing 7.03). With queues of 2 ms: 5.85 ms and 1.01 with 250 us, 5.73 and 1.00 with 125 (time slicing
/// 7.83); in other minutes 6.34 ms and 0.98 with 125 us, 6.54 and 0.97 with 100, 6.27 and 0.97 with 60 (time slicing 8.58).
const TRICKLE: u64 = 2;
/// Upper limit of that queue depth, in nanoseconds.
const MOST_TRICKLE: u64 = 250_000;
/// The upper limit where [`LONG_QUEUE`] and more may be queued otherwise: those that are held back do more then while the first is idle. Over
/// MPS this was not measured.
const MOST_LONG_TRICKLE: u64 = 125_000;
const LONG_QUEUE: u64 = 2_000_000;
/// Limits of the queue depth beside a process that tolerates everything until it waits for the device, in nanoseconds. Measured on an H200, an
/// LLM beside an embedding and a training, in turns of 5 s, and compared with time slicing: with 0.5 to 2 ms the LLM took 0.69 of the
/// time and the others did 0.89 as much; with 2 to 4 ms, in two runs, 0.84 and 0.90 of the time and 0.99 and 0.97 as much.
const LEAST_BESIDE: u64 = 2_000_000;
const MOST_BESIDE: u64 = 4_000_000;
/// Polling period of the keeper while another process is held back for this one or shares the device with it, in
/// nanoseconds.
const CLOSE: u64 = 1_000_000;
/// Polling period of a submission that waits until the others have finished, so that the process measures its work alone.
const SETTLES: Duration = Duration::from_micros(200);
/// Polling period of the keeper otherwise, in nanoseconds.
const FAR: u64 = 5_000_000;

impl Turn {
    /// Makes the process active on the device.
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
        self.queue_depth().begin(false);
        state.rounds.begin(now, submitted(device));
        self.held.store(true, Relaxed);
        self.seen_ns.store(now, Relaxed);
        if state.is_open() {
            open_gate(device);
        }
        self.changed.notify_all();
        process.ring();
    }

    /// Ends the activity of the process. Queued work runs on.
    pub(super) fn end_overlap(&self, state: &mut State, process: &ManagedProcess, device: &Device) {
        gate_of(device).close();
        let lock = process.registration.lock(device.entry);
        lock.end_activity(clock::now());
        if self.queue_depth().alone().is_measuring() {
            self.end_measuring(&lock, clock::now());
        }
        state.phase = Phase::Free;
        state.overlapping = false;
        state.limited = false;
        self.held.store(false, Relaxed);
        self.queue_depth().forget_all();
        self.changed.notify_all();
    }

    /// Lets submissions in under `overlap`, and returns their number as [`admit`](Self::admit) does. Returns the locked
    /// state as `Err` if the caller must decide again.
    pub(super) fn admit_overlap<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        process: &ManagedProcess,
        device: &Device,
        thread: &Thread,
    ) -> Result<u32, MutexGuard<'s, State>> {
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
            return Ok(0);
        }
        let lock = process.registration.lock(device.entry);
        self.charge_work(&lock, now);
        if self.queue_depth().alone().waits() {
            gate_of(device).close();
            drop(state);
            // The process is not idle: it has something to submit.
            self.seen_ns.store(now, Relaxed);
            thread.outside(|| futex::nap(SETTLES));
            return Err(self.lock());
        }
        // A process may be one submission ahead of its share: two that wait for each of theirs would take turns otherwise.
        let ahead_ns = depth_ns.max(self.queue_depth().lone_ns());
        if now >= state.pass_until_ns
            && let Some(held) = lock.held_back_by(ahead_ns, 0, now)
        {
            if !lock.has_waited_enough(ahead_ns, now) {
                let room = match held.tolerance {
                    Some(tolerance) => self.room_beside(tolerance, depth_ns, now),
                    None => Err(self.time_to_hold_back(&lock, now)),
                };
                return match room {
                    Ok(count) => {
                        lock.trickle(now);
                        Ok(self.let_in(&state, device, thread, count))
                    }
                    Err(nap) => Err(self.hold_back(state, process, device, ahead_ns, nap)),
                };
            }
            // The process may submit for one queue depth of time, and is then held back again.
            state.pass_until_ns = now.saturating_add(depth_ns);
        }
        lock.go_on(now);
        let beside = lock
            .time_beside(now)
            .map_or(0, |time| time.clamp(LEAST_BESIDE, MOST_BESIDE));
        let room = self.queue_depth().room(depth_ns.max(beside), now);
        match room {
            Ok(count) => Ok(self.let_in(&state, device, thread, count)),
            Err(nap) => Err(self.let_catch_up(state, process, device, thread, nap)),
        }
    }

    /// Charges the time of the queued submissions since the last call, where it is known what they take alone. What the process does while the
    /// others hold back for its measurement is free, because it does as much for theirs. The caller has locked the state.
    fn charge_work(&self, lock: &DeviceLock<'_>, now: u64) {
        let mut depth = self.queue_depth();
        let ns = depth.take_due(now);
        if ns > 0 && !depth.alone().has_company() {
            lock.charge_work(ns, now);
        }
    }

    /// Charges the time since the last poll. A process with work queued is charged by that work, if it is known what it takes
    /// alone. One that leaves the device empty is charged its part of the time as well: else it would hold the others back, who
    /// could use the device.
    fn charge(&self, lock: &DeviceLock<'_>, now: u64) {
        self.charge_work(lock, now);
        let mut depth = self.queue_depth();
        let by_work = depth.alone().has_company() || depth.lone_ns() != 0 && !depth.is_empty(now);
        drop(depth);
        lock.set_charged_by_work(by_work);
        lock.keep_active(now);
    }

    /// Does the keeper's part of a measurement of what the process's submissions take alone. Returns true while one is under way.
    fn measure_work(&self, lock: &DeviceLock<'_>, device: &Device, now: u64) -> bool {
        let by_work = lock.is_charged_best_by_work();
        let has_company = lock.has_company(now);
        let measures = lock.is_over_mps() && (by_work || !has_company);
        let mut depth = self.queue_depth();
        let ends = match depth.alone().step(has_company, now) {
            Step::Wait => false,
            Step::Begin => {
                if measures && (!has_company || lock.begin_measuring(now)) {
                    depth.alone().begin(has_company, now);
                    gate_of(device).close();
                }
                false
            }
            Step::Watch if measures && (depth.alone().has_company() || !has_company) => {
                if lock.is_alone(now) {
                    depth.alone().others_are_done();
                }
                depth.watch(now);
                false
            }
            Step::Watch | Step::End => true,
        };
        drop(depth);
        if ends {
            self.end_measuring(lock, now);
        }
        let mut depth = self.queue_depth();
        let each_ns = depth.alone().each_ns();
        lock.publish_submission_ns(each_ns);
        let charged = by_work && has_company;
        depth.set_lone_ns(if charged { each_ns } else { 0 });
        depth.alone().is_measuring()
    }

    fn end_measuring(&self, lock: &DeviceLock<'_>, now: u64) {
        self.queue_depth().alone().end(now);
        lock.end_measuring();
    }

    /// Returns how long to hold back wholly before the next look: the process reports when its queued work is done.
    fn time_to_hold_back(&self, lock: &DeviceLock<'_>, now: u64) -> Duration {
        let is_done = self.queue_depth().is_empty(now);
        lock.publish_queued(!is_done);
        if is_done {
            lock.end_trickle(now);
            return Duration::MAX;
        }
        lock.trickle(now);
        Duration::from_nanos(CLOSE)
    }

    /// Returns how many submissions may go in beside a process that goes first, or how long to wait.
    fn room_beside(&self, theirs: Tolerance, depth_ns: u64, now: u64) -> Result<u32, Duration> {
        let ns = |us: u32| u64::from(us).saturating_mul(1000).min(depth_ns);
        let least = match depth_ns >= LONG_QUEUE {
            true => MOST_LONG_TRICKLE,
            false => MOST_TRICKLE.min(depth_ns / TRICKLE),
        };
        let most = least.max(ns(theirs.together_us));
        self.queue_depth()
            .room_for_one_more(most, ns(theirs.gap_us), now)
    }

    /// Admits the calling thread, with `count` submissions if they can be metered. Returns their number.
    fn let_in(&self, state: &State, device: &Device, thread: &Thread, count: u32) -> u32 {
        let allotted = meter_gate(state, device, count);
        thread.begin_admitted(device.ordinal);
        allotted
    }

    /// Waits until no preferred process is active, at most for `most`. Only one thread waits here; the others wait
    /// for its phase.
    fn hold_back<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        process: &ManagedProcess,
        device: &Device,
        ahead_ns: u64,
        most: Duration,
    ) -> MutexGuard<'s, State> {
        gate_of(device).close();
        state.phase = Phase::Acquiring;
        self.recheck.store(false, Relaxed);
        drop(state);
        let since = trace::begin_wait();
        let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let lock = process.registration.lock(device.entry);
        lock.hold_back(ahead_ns, most_ns, &|| {
            process.is_leaving() || self.recheck.load(Relaxed)
        });
        trace::waited_since(since);
        let mut state = self.lock();
        state.phase = Phase::Held;
        self.seen_ns.store(clock::now(), Relaxed);
        self.changed.notify_all();
        if std::mem::take(&mut state.is_unwatched) {
            process.ring();
        }
        state
    }

    /// Delays this submission because the queue is full, and locks the state again. If no queued work ends within `grace`, the
    /// queue is no longer tracked: the work may itself be waiting for this submission.
    pub(super) fn let_catch_up<'s>(
        &'s self,
        state: MutexGuard<'s, State>,
        process: &ManagedProcess,
        device: &Device,
        thread: &Thread,
        nap: Duration,
    ) -> MutexGuard<'s, State> {
        let grace_ns = state.rules.policy.grace_ns;
        drop(state);
        let (since, began) = (trace::begin_wait(), clock::now());
        thread.outside(|| futex::nap(nap));
        trace::waited_since(since);
        let now = clock::now();
        process
            .registration
            .delay_step(device.entry, now.saturating_sub(began));
        let mut depth = self.queue_depth();
        if now.saturating_sub(depth.progress_ns()) > grace_ns {
            depth.forget_all();
            let counters = process.registration.count(device.entry);
            counters.drain_timeouts.fetch_add(1, Relaxed);
        }
        drop(depth);
        self.lock()
    }

    /// Publishes what the process tolerates from now on, until it waits for the device.
    pub(super) fn tolerate(&self, lock: &DeviceLock<'_>, tolerance: Tolerance) {
        self.tolerates_all.store(tolerance.is_all(), Relaxed);
        lock.publish_tolerance(tolerance);
    }

    /// Records that the application begins to wait for the device: until the wait ends it tolerates little.
    pub fn needs_the_device(&self, process: &ManagedProcess, device: &Device) {
        if self.tolerates_all.load(Relaxed) {
            let lock = process.registration.lock(device.entry);
            self.tolerate(&lock, rounds::WAITING);
        }
    }

    /// Records that the application has synchronised. Processes held back for this one continue soon unless it
    /// submits again.
    pub(super) fn synchronised(
        &self,
        state: &mut State,
        process: &ManagedProcess,
        device: &Device,
        wanted: bool,
    ) {
        state.synced_ns = clock::now();
        if wanted {
            // With the gate closed, the next submission measures the gap. No thread needs to have noticed it earlier.
            gate_of(device).close();
            process.ring();
        }
    }

    /// Returns the time at which an idle process gives the device up, in nanoseconds.
    pub(super) fn idle_at(&self, state: &State) -> u64 {
        let seen = self.seen_ns.load(Relaxed);
        match state.rules.policy.idle_ns {
            Some(idle) => seen.saturating_add(idle),
            None if state.synced_ns != 0 => state.synced_ns.saturating_add(state.idle.keep()),
            None => seen.saturating_add(rounds::UNSYNCHRONISED),
        }
    }

    /// Does the keeper's work for a process that is active under `overlap`. Returns the time of the next poll.
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
        self.charge(&lock, now);
        if self.tolerates_all.load(Relaxed) && state.rounds.are_over(now) {
            self.tolerate(&lock, rounds::WAITING);
        }
        let measures = self.measure_work(&lock, device, now);
        let limited = measures || lock.may_have_to_hold_back(now);
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
            // With an open gate, the count of submissions is the only sign that the application has continued.
            if gate_of(device).is_passable() || gate_of(device).is_metered() {
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
