//! The keeper's part of a turn: it applies new rules, ends slices and idle holds, and releases the lock when the
//! process ends.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use super::{
    gate_of, open_gate,
    state::{Phase, Rules, State, Turn, is_counted, is_locked},
    submitted,
};
use shm_layout::{DeviceLock, Ending, PolicyKind, Reason, lock::order::OVERTIME_NS};

use crate::managed_process::{Device, ManagedProcess};

/// Time without a submission after which a device whose work is done counts as idle, in nanoseconds.
const STILL: u64 = 5_000_000;
/// Time after the last waiting process until the queue depth is no longer limited, in nanoseconds.
const FORGET: u64 = 1_000_000_000;

/// The time of the keeper's next poll.
pub struct Next<'g> {
    /// Longest time until the next poll.
    pub again: Duration,
    /// A futex word and its value: a changed word means that another process has come, and the keeper polls at once.
    pub bell: Option<(&'g AtomicU32, u32)>,
}

impl Next<'_> {
    /// Returns a poll in `ns` nanoseconds.
    pub(super) fn within(ns: u64) -> Self {
        Self {
            again: Duration::from_nanos(ns),
            bell: None,
        }
    }

    const SOON: Self = Self {
        again: Duration::from_nanos(OVERTIME_NS),
        bell: None,
    };
}

/// The state of a hold at the keeper's poll.
struct Hold {
    rules: Rules,
    acquired_ns: u64,
    full: bool,
    goes_on: bool,
    synced: bool,
    limited: bool,
    /// The time that the work submitted in this turn still runs.
    queued_ns: u64,
}

impl Hold {
    fn of(state: &State, queued_ns: u64) -> Self {
        Self {
            rules: state.rules,
            acquired_ns: state.acquired_ns,
            full: state.is_full(),
            goes_on: state.goes_on,
            synced: state.synced_ns != 0,
            limited: state.limited,
            queued_ns,
        }
    }
}

impl Turn {
    /// Applies new rules. The gate is correct on return. A lock that is no longer wanted is given up at the next
    /// [`poll`](Self::poll), which may call the driver.
    pub fn follow(&self, process: &ManagedProcess, device: &Device, rules: Rules) {
        let mut state = self.lock();
        if state.rules == rules {
            return;
        }
        let before = std::mem::replace(&mut state.rules, rules);
        if before.policy != rules.policy {
            self.unlimit(&mut state);
        }
        self.recheck.store(true, Relaxed);
        // If a thread is held back or checks whether all work is done, that thread ends the overlap when it returns.
        if state.overlapping
            && state.phase == Phase::Held
            && !matches!(rules.policy.kind, PolicyKind::Overlap(_))
        {
            self.end_overlap(&mut state, process, device);
        }
        if state.is_open() {
            open_gate(device);
        } else {
            gate_of(device).close();
        }
        self.changed.notify_all();
    }

    /// Gives the lock up because there are no turns any more. Without a policy the gate opens.
    fn let_go(&self, process: &ManagedProcess, device: &Device) {
        self.release(process, device, Reason::Off);
        let state = self.lock();
        if state.phase == Phase::Free && state.is_open() {
            open_gate(device);
        }
    }

    /// Does the keeper's work for this turn. Returns the time of the next poll, or `None` if another event starts it.
    pub fn poll<'g>(
        &self,
        process: &'g ManagedProcess,
        device: &Device,
        now: u64,
    ) -> Option<Next<'g>> {
        let mut state = self.lock();
        match state.phase {
            Phase::Held if state.overlapping => {
                return self.poll_overlap(state, process, device, now);
            }
            Phase::Held => {}
            // A drain ends soon, and the turn may continue after it.
            Phase::Draining => return Some(Next::SOON),
            // The thread that acquires the lock, or is held back no more, wakes the keeper.
            Phase::Free | Phase::Acquiring => {
                state.is_unwatched = state.overlapping;
                return None;
            }
        }
        let lock = process.registration.lock(device.entry);
        if !lock.held() {
            self.lost(&mut state, device);
            return None;
        }
        let hold = Hold::of(&state, self.queued_ns(&state, now));
        drop(state);
        if hold.rules.paused || is_locked() {
            self.release(process, device, Reason::Paused);
            return None;
        }
        if !hold.rules.policy.kind.has_turns() {
            self.let_go(process, device);
            return None;
        }
        self.poll_hold(process, device, &lock, &hold, now)
    }

    /// Does the keeper's work for a hold.
    fn poll_hold<'g>(
        &self,
        process: &ManagedProcess,
        device: &Device,
        lock: &DeviceLock<'g>,
        hold: &Hold,
        now: u64,
    ) -> Option<Next<'g>> {
        let policy = &hold.rules.policy;
        let submitted = self.note_submitted(device, now);
        let hold_limit = process.registration.segments().hold_limit(policy);
        let acquired_ns = match policy.kind {
            PolicyKind::Timeslice(_) => lock.turn_since(hold.acquired_ns, hold_limit),
            _ => hold.acquired_ns,
        };
        let end = end(hold_limit, acquired_ns, hold.queued_ns);
        let overtime = now >= end || hold.goes_on;
        // Before the end of a slice a waiting process may wake the keeper only if it is the first for a while, or a
        // member of the gang; after the end, and with a counted policy, always.
        let calls = lock.may_be_called() || !hold.limited;
        let bell = (overtime || calls || is_counted(policy.kind)).then(|| lock.listen());
        let longest = acquired_ns.saturating_add(policy.max_hold_ns);
        if let Some(reason) = due(lock, end, longest, now) {
            self.release(process, device, reason);
            return None;
        }
        let waited_for = self.note_waiting(lock, device, now);
        if hold.full && lock.is_wanted() {
            // The other process began to wait after the last submission, and the application does not use the device
            // now.
            self.decide(process, device);
            return Some(Next::SOON);
        }
        // A process that deserves the lock more may keep it, but not while the device is idle and others wait.
        if overtime
            && lock.is_wanted()
            && self.stands_still(device, submitted, now)
            && self.release_if_done(process, device, Reason::Slice)
        {
            return None;
        }
        let idle_wait = self.idle_wait(process, device, lock, hold, now)?;
        // After its end a slice continues until another process deserves the lock more, which may happen with time
        // alone.
        let slice_wait = match end.checked_sub(now).filter(|left| *left > 0) {
            _ if overtime && waited_for => OVERTIME_NS,
            Some(left) => left,
            None => u64::MAX,
        };
        let cap_wait = lock.cap_left(now).unwrap_or(u64::MAX);
        let again = idle_wait.min(slice_wait).min(cap_wait).max(50_000);
        Some(Next {
            again: Duration::from_nanos(again),
            bell,
        })
    }

    /// Records the time at which the number of submissions was last seen changed, and returns the number.
    fn note_submitted(&self, device: &Device, now: u64) -> u64 {
        let submitted = submitted(device);
        if self.seen_submitted.swap(submitted, Relaxed) != submitted {
            self.seen_ns.store(now, Relaxed);
        }
        submitted
    }

    /// Limits the queue depth while another process waits, and for a while after that. Returns true if one waits.
    fn note_waiting(&self, lock: &DeviceLock<'_>, device: &Device, now: u64) -> bool {
        let waited_for = lock.is_waited_for();
        if waited_for {
            self.waited_ns.store(now, Relaxed);
            self.limit(&mut self.lock(), device);
        } else if now.saturating_sub(self.waited_ns.load(Relaxed)) > FORGET {
            self.hurry(device);
        }
        waited_for
    }

    /// Returns the time until the device may count as idle, in nanoseconds, or `None` if the lock was given up because it does.
    fn idle_wait(
        &self,
        process: &ManagedProcess,
        device: &Device,
        lock: &DeviceLock<'_>,
        hold: &Hold,
        now: u64,
    ) -> Option<u64> {
        let idle_at = self.idle_at(&self.lock());
        if now < idle_at {
            lock.publish_ending(Ending::Not, 0);
            return Some(idle_at - now);
        }
        let reason = if hold.synced {
            Reason::Sync
        } else {
            Reason::Idle
        };
        if self.may_rest(lock, device) && self.release_if_done(process, device, reason) {
            return None;
        }
        Some(hold.rules.policy.idle_ns.unwrap_or(OVERTIME_NS))
    }

    /// Estimates how long the work submitted in this turn still runs, in nanoseconds; 0 if unknown.
    fn queued_ns(&self, state: &State, now: u64) -> u64 {
        match state.depth_ns() {
            Some(depth_ns) if state.limited => self.queue_depth().left(depth_ns, now),
            _ => 0,
        }
    }

    /// Returns true if all work was done at the keeper's last poll, and nothing was submitted since.
    fn stands_still(&self, device: &Device, submitted: u64, now: u64) -> bool {
        if now.saturating_sub(self.seen_ns.load(Relaxed)) < STILL {
            return false;
        }
        let seen = submitted.wrapping_add(1);
        let before = self.done_submitted.load(Relaxed) == seen;
        if !before && self.is_done(device) {
            self.done_submitted.store(seen, Relaxed);
        }
        before
    }

    /// Applies a change of the trace: an open gate then sends submissions to the measured path, or to the fast one.
    pub fn retrace(&self, device: &Device) {
        let _state = self.lock();
        let gate = gate_of(device);
        if gate.is_passable() {
            open_gate(device);
        } else {
            gate.close();
        }
    }

    /// Returns the time at which the lock was acquired, or `None` if it is not held.
    pub fn held_since(&self) -> Option<u64> {
        let state = self.lock();
        (state.phase == Phase::Held).then_some(state.acquired_ns)
    }

    /// Stops limiting the queue depth after no process has waited for a while.
    fn hurry(&self, device: &Device) {
        let mut state = self.lock();
        if state.limited && state.phase == Phase::Held {
            self.unlimit(&mut state);
            if state.is_open() {
                open_gate(device);
            }
            self.changed.notify_all();
        }
    }

    /// Opens the gate at the end of the process, after the lock was given up.
    pub fn leave(&self, device: &Device) {
        self.recheck.store(true, Relaxed);
        open_gate(device);
        self.changed.notify_all();
    }
}

/// Returns the time at which a hold ends if another process deserves the lock: the limit, less the time that queued
/// work still runs, by at most half of the limit.
fn end(limit: u64, acquired_ns: u64, queued_ns: u64) -> u64 {
    acquired_ns.saturating_add(limit - queued_ns.min(limit / 2))
}

/// Returns the reason to end a hold now, or `None`.
fn due(lock: &DeviceLock<'_>, end: u64, longest: u64, now: u64) -> Option<Reason> {
    if lock.cap_left(now) == Some(0) {
        return Some(Reason::Paused);
    }
    let over = now >= end && (lock.contended() || lock.ends_with_mates())
        || now >= longest && lock.is_wanted()
        || lock.is_called(now);
    over.then_some(Reason::Slice)
}
