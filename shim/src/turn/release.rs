//! The release of a device's lock: close the gate, wait until all work is done, hand the lock over.
//!
//! A gang is a set of processes that run the same program and end their turns together.
//!
//! The members stop at nearly the same time, and one may have submitted a collective operation that another has not.
//! Then its drain waits for a kernel that cannot come. So members that are behind continue to submit until they have
//! submitted as many operations as the first one. If that does not help, a member that has drained keeps the device
//! and admits submissions for a part of its slice while another one is not done. All hand over when all have drained,
//! or after `grace`.

use std::sync::{MutexGuard, atomic::Ordering::Relaxed};

use shm_layout::{DeviceLock, Ending, Mates, PolicyKind, Reason, clock};

use crate::{
    managed_process::{Device, ManagedProcess},
    sys::barrier,
    thread::{self, Used},
    trace,
    turn::{
        drain::{Naps, Outstanding},
        gate_of, open_gate,
        state::{Phase, State, Turn, is_locked},
        submitted,
    },
};

/// A turn that was stopped: no more submissions go in.
pub(super) struct Stopped {
    pub(super) pending: Outstanding,
    pub(super) grace_ns: u64,
    counted_from_ns: u64,
    /// Time for which work may still run after a hand-over, in nanoseconds; 0 if the amount of queued work is
    /// unknown.
    pub(super) overlap_ns: u64,
}

impl Stopped {
    /// Returns true if all submitted work is done.
    fn is_done(&mut self, device: &Device) -> bool {
        all_outside(device, 0, &mut Naps::default()) && {
            take_streams(device, &mut self.pending);
            self.pending.is_finished()
        }
    }

    /// Waits, at most for `grace`, until all submitted work is done or takes at most `within_ns` more. Returns false
    /// if `grace` ends first.
    fn drain(&mut self, process: &ManagedProcess, device: &Device, within_ns: u64) -> bool {
        let deadline = clock::now().saturating_add(self.grace_ns);
        self.drain_until(process, device, deadline, within_ns)
    }

    /// Does the same as [`drain`](Self::drain), up to `deadline`.
    pub(super) fn drain_until(
        &mut self,
        process: &ManagedProcess,
        device: &Device,
        deadline: u64,
        within_ns: u64,
    ) -> bool {
        let counters = process.registration.count(device.entry);
        counters.drains.fetch_add(1, Relaxed);
        let since = trace::begin_wait();
        let mut naps = Naps::default();
        let done = all_outside(device, deadline, &mut naps) && {
            take_streams(device, &mut self.pending);
            let nearly = || {
                within_ns > 0
                    && device
                        .turn
                        .queue_depth()
                        .is_nearly_done(within_ns, clock::now())
            };
            self.pending.finish(deadline, &mut naps, nearly)
        };
        trace::waited_since(since);
        if done {
            process
                .registration
                .lock(device.entry)
                .overslept(naps.late_ns());
        }
        done
    }
}

impl Turn {
    /// Records that a counted submission has reached the driver, the first of those allotted to its thread, and whether it is a graph,
    /// and ends the turn if the count is full.
    pub fn after_counted(
        &self,
        process: &ManagedProcess,
        device: &Device,
        used: Used,
        (allotted, is_graph): (u32, bool),
    ) {
        let state = self.lock();
        let depth_ns = state.depth_ns();
        let full = state.is_full();
        drop(state);
        if let Some(depth_ns) = depth_ns {
            let mut depth = self.queue_depth();
            return depth.submitted(used, allotted, is_graph, depth_ns, clock::now());
        }
        if full {
            self.decide(process, device);
        }
    }

    /// Chooses the next owner of the lock when the count is full and another process wants the lock. The submitted
    /// work ends first, because until then its time is charged to no process.
    pub(super) fn decide(&self, process: &ManagedProcess, device: &Device) {
        let lock = process.registration.lock(device.entry);
        if !self.is_contended(&lock) {
            return;
        }
        let Some(mut stopped) = self.stop(device) else {
            return;
        };
        let drained = stopped.drain(process, device, 0);
        let took = clock::now().saturating_sub(stopped.counted_from_ns);
        if lock.is_due(took) {
            self.end(process, device, stopped, drained, Reason::Count);
        } else {
            self.go_on(device, stopped.pending, true);
            let first = !std::mem::replace(&mut self.lock().goes_on, true);
            if first {
                process.ring(); // the keeper sees to it that the credit is used
            }
        }
    }

    /// Yields at a synchronisation of the application, which began at `began_ns`, if another process waits and
    /// `sync_skips` is used up.
    pub fn at_release_point(&self, process: &ManagedProcess, device: &Device, began_ns: u64) {
        let mut state = self.lock();
        if state.phase != Phase::Held {
            return;
        }
        state.synchronised = state.synchronised.saturating_add(1);
        let kept = state.synchronised <= state.rules.policy.sync_skips;
        let lock = process.registration.lock(device.entry);
        if state.overlapping {
            let now = clock::now();
            state.rounds.end(began_ns, now, submitted(device));
            if state.limited {
                self.queue_depth().waited(began_ns, now);
            }
            self.tolerate(&lock, state.rounds.tolerance());
            return self.synchronised(&mut state, process, device, lock.is_listened_to());
        }
        if kept || !lock.is_waited_for() {
            return;
        }
        // A process that deserves the lock more gets it at once; another one gets it when this process has nothing
        // more to submit.
        self.synchronised(&mut state, process, device, true);
        if state.goes_on_in_its_slice(&lock) {
            return;
        }
        drop(state);
        // The other members of the gang have turns too: all end them together.
        if lock.contended() && !self.ends_together(&lock) {
            self.release(process, device, Reason::Sync);
        }
    }

    /// Closes the gate, waits until the submitted work is done, and hands the lock over. Work that is not done within
    /// `grace` continues, and the release counts as forced. Returns false if there was no lock to release.
    pub fn release(&self, process: &ManagedProcess, device: &Device, reason: Reason) -> bool {
        let mut state = self.lock();
        if state.overlapping {
            // Under `overlap` nothing is exclusive, so there is no work to wait for. A process that is locked for a
            // checkpoint can neither query its streams nor hold others back.
            if matches!(reason, Reason::Off | Reason::Exit) || is_locked() {
                state = self.settled(state);
                if state.overlapping && state.phase == Phase::Held {
                    self.end_overlap(&mut state, process, device);
                }
            }
            return false;
        }
        drop(state);
        let Some(mut stopped) = self.stop(device) else {
            return false;
        };
        let lock = process.registration.lock(device.entry);
        let together = reason == Reason::Slice && self.ends_together(&lock);
        let drained = if together {
            match self.drain_together(process, device, stopped) {
                Some((left, drained)) => {
                    stopped = left;
                    drained
                }
                None => return false,
            }
        } else {
            let within_ns = match reason {
                Reason::Slice | Reason::Sync => stopped.overlap_ns,
                _ => 0,
            };
            stopped.drain(process, device, within_ns)
        };
        self.end(process, device, stopped, drained, reason);
        true
    }

    /// Waits until no other thread is held back or looks whether all work is done, at most half a second: that thread sets the
    /// phase when it returns.
    fn settled<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.recheck.store(true, Relaxed);
        for _ in 0..10 {
            if !state.overlapping || state.phase == Phase::Held {
                break;
            }
            state = self.wait(state);
        }
        state
    }

    /// Hands the lock over after a stop. If the work was not drained, the release counts as forced.
    fn end(
        &self,
        process: &ManagedProcess,
        device: &Device,
        stopped: Stopped,
        drained: bool,
        reason: Reason,
    ) {
        let lock = process.registration.lock(device.entry);
        if drained {
            return self.hand_over(process, device, &lock, reason, stopped.pending);
        }
        let counters = process.registration.count(device.entry);
        counters.drain_timeouts.fetch_add(1, Relaxed);
        self.hand_over(
            process,
            device,
            &lock,
            Reason::Forced,
            Outstanding::default(),
        );
    }

    /// Hands the lock over if all submitted work is done; otherwise continues the turn. Returns true if it was handed
    /// over.
    pub fn release_if_done(
        &self,
        process: &ManagedProcess,
        device: &Device,
        reason: Reason,
    ) -> bool {
        let Some(mut stopped) = self.stop(device) else {
            return false;
        };
        let done = stopped.is_done(device);
        if done {
            let lock = process.registration.lock(device.entry);
            self.hand_over(process, device, &lock, reason, stopped.pending);
        } else {
            self.go_on(device, stopped.pending, false);
        }
        done
    }

    /// Returns true if all submitted work is done. The turn continues.
    pub(super) fn is_done(&self, device: &Device) -> bool {
        let Some(mut stopped) = self.stop(device) else {
            return false;
        };
        let done = stopped.is_done(device);
        self.go_on(device, stopped.pending, false);
        done
    }

    /// Continues a stopped turn; with `anew`, the count of submissions starts again at 0.
    pub(super) fn go_on(&self, device: &Device, pending: Outstanding, anew: bool) {
        let mut state = self.lock();
        state.pending = pending;
        state.phase.go_on();
        if anew {
            state.submitted = 0;
            state.counted_from_ns = clock::now();
        }
        if state.is_open() {
            open_gate(device);
        }
        self.changed.notify_all();
    }

    /// Stops submissions. Returns `None` if the lock is not held, or if another thread has already stopped the turn.
    pub(super) fn stop(&self, device: &Device) -> Option<Stopped> {
        let mut state = self.lock();
        if !state.phase.stop() {
            return None;
        }
        state.allowance = None;
        gate_of(device).close();
        let stopped = Stopped {
            pending: std::mem::take(&mut state.pending),
            grace_ns: state.rules.policy.grace_ns,
            counted_from_ns: state.counted_from_ns,
            overlap_ns: state.overlap_ns(),
        };
        drop(state);
        barrier::heavy();
        Some(stopped)
    }

    /// Limits the queue depth in time slices, because another process waits: all that is queued at the end of a slice
    /// prolongs it.
    pub(super) fn limit(&self, state: &mut State, device: &Device) {
        if !state.limited && matches!(state.rules.policy.kind, PolicyKind::Timeslice(_)) {
            state.limited = true;
            gate_of(device).close();
        }
    }

    /// Stops limiting the queue depth.
    pub(super) fn unlimit(&self, state: &mut State) {
        if !state.overlapping && std::mem::take(&mut state.limited) {
            self.queue_depth().forget_all();
        }
    }

    fn hand_over(
        &self,
        process: &ManagedProcess,
        device: &Device,
        lock: &DeviceLock<'_>,
        reason: Reason,
        pending: Outstanding,
    ) {
        let mut state = self.lock();
        if state.overlapping {
            state.pending = pending;
            return self.end_overlap(&mut state, process, device);
        }
        drop(state);
        let ours = lock.held();
        if ours {
            lock.release(reason, clock::now());
        }
        let mut state = self.lock();
        let reason = if ours { reason } else { Reason::Forced };
        trace::held(device.ordinal, state.acquired_ns, reason);
        self.queue_depth().finished();
        state.pending = pending;
        state.phase.end();
        self.held.store(false, Relaxed);
        self.changed.notify_all();
    }
}

/// Waits until no thread is inside the closed gate. With a deadline of 0 it only checks once.
fn all_outside(device: &Device, deadline_ns: u64, naps: &mut Naps) -> bool {
    let mut spins = 0_u32;
    while thread::all().any(|thread| thread.is_inside(device.ordinal)) {
        if clock::now() >= deadline_ns {
            return false;
        }
        spins += 1;
        if spins < 100 {
            std::hint::spin_loop();
        } else {
            naps.nap(20_000);
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

/// Divisor of the slice: a drained member waits this part of a slice for the others, which may be waiting for its
/// kernels.
const STUCK: u64 = 8;
/// Divisor of the slice: for this part of a slice a member admits submissions again. By then a member that continued
/// has checked its clock, and stops or continues.
const MOMENT: u64 = 5;
/// Largest difference in submissions between members that run the same program. A larger one is no reason to catch
/// up.
const APART: u64 = 10_000;
const NAP: u64 = 30_000;

/// The end of one turn of a gang's member.
struct End<'g> {
    process: &'g ManagedProcess,
    device: &'g Device,
    lock: DeviceLock<'g>,
    slice: u64,
    deadline: u64,
    naps: Naps,
}

impl End<'_> {
    /// Waits while `so` holds for the other members, at most for a part of the slice. Returns their last state.
    fn wait_while(&mut self, part: u64, so: impl Fn(Mates) -> bool) -> Mates {
        let until = clock::now().saturating_add(self.slice / part);
        let until = until.min(self.deadline);
        loop {
            let mates = self.lock.mates();
            if !so(mates) || clock::now() >= until || self.process.is_leaving() || !self.lock.held()
            {
                return mates;
            }
            self.naps.nap(NAP);
        }
    }

    /// Returns the number of submissions to the device, including those that threads are about to make.
    fn position(&self) -> u64 {
        let inside = thread::all().filter(|thread| thread.is_inside(self.device.ordinal));
        submitted(self.device).wrapping_add(inside.count() as u64)
    }
}

impl Turn {
    /// Drains a stopped turn together with the other members of the gang. Returns the turn and whether all work is
    /// done, or `None` if the turn has ended.
    pub(super) fn drain_together(
        &self,
        process: &ManagedProcess,
        device: &Device,
        mut stopped: Stopped,
    ) -> Option<(Stopped, bool)> {
        let (slice, base) = {
            let state = self.lock();
            (
                process
                    .registration
                    .segments()
                    .hold_limit(&state.rules.policy),
                state.gang_base,
            )
        };
        let mut end = End {
            process,
            device,
            lock: process.registration.lock(device.entry),
            slice,
            deadline: clock::now().saturating_add(stopped.grace_ns),
            naps: Naps::default(),
        };
        let mut first = true;
        loop {
            let progress = end.position().wrapping_sub(base) & (u64::MAX >> 2);
            end.lock.publish_ending(Ending::Stopped, progress);
            let mates = end.wait_while(MOMENT, |mates| mates.go_on);
            let behind = mates.furthest.saturating_sub(progress);
            if first && (1..APART).contains(&behind) {
                stopped = self.catch_up_with_mates(&mut end, stopped, behind)?;
                first = false;
                continue;
            }
            let done = stopped.drain_until(process, device, end.deadline, stopped.overlap_ns);
            if !done {
                return Some((stopped, false));
            }
            end.lock.publish_ending(Ending::Drained, progress);
            let mates = end.wait_while(STUCK, |mates| mates.stopped);
            if !mates.stopped || clock::now() >= end.deadline {
                self.lock().gang_base = submitted(device);
                return Some((stopped, true));
            }
            first = false;
            end.lock.publish_ending(Ending::Not, 0);
            self.go_on(device, stopped.pending, false);
            end.wait_while(MOMENT, |mates| mates.stopped);
            stopped = self.stop(device)?;
        }
    }

    /// Admits `behind` more submissions, and stops the turn again.
    fn catch_up_with_mates(
        &self,
        end: &mut End<'_>,
        stopped: Stopped,
        behind: u64,
    ) -> Option<Stopped> {
        {
            let mut state = self.lock();
            state.pending = stopped.pending;
            state.phase.go_on();
            state.allowance = Some(behind);
            gate_of(end.device).close();
            self.changed.notify_all();
        }
        end.wait_while(1, |_| {
            let state = self.lock();
            state.phase == Phase::Held && state.allowance != Some(0)
        });
        self.stop(end.device)
    }

    /// Returns true if an idle process may give the device up alone: its turn does not end together with others, or
    /// the other members are idle too.
    pub(super) fn may_rest(&self, lock: &DeviceLock<'_>, device: &Device) -> bool {
        if !self.ends_together(lock) {
            return true;
        }
        let done = self.is_done(device);
        lock.publish_ending(if done { Ending::Drained } else { Ending::Not }, 0);
        done && !lock.mates().are_busy()
    }

    /// Returns true if this turn ends together with those of other members of the gang, on devices that other
    /// processes wait for.
    pub(super) fn ends_together(&self, lock: &DeviceLock<'_>) -> bool {
        let slices = matches!(self.lock().rules.policy.kind, PolicyKind::Timeslice(_));
        slices && lock.is_waited_for() && lock.mates().are_there()
    }
}
