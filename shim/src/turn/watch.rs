//! The keeper's side of a turn: new rules, slices that end, holds that are idle, the end of the process.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use super::{
    gate_of, open_gate,
    state::{Phase, Rules, State, Turn, is_counted, is_locked},
    submitted,
};
use shm_layout::{DeviceLock, Ending, PolicyKind, Reason};

use crate::managed_process::{Device, ManagedProcess};

/// How often a hold that is over its time is looked at.
const OVERTIME: u64 = 1_000_000;
/// A device that nothing was submitted to for so long stands still, once its work is done.
const STILL: u64 = 5_000_000;
/// So long after the last one waited, what is queued is not limited any more.
const FORGET: u64 = 1_000_000_000;

/// When the keeper looks again.
pub struct Next<'g> {
    /// At the latest.
    pub again: Duration,
    /// Or when this word is not that any more: another process has come.
    pub bell: Option<(&'g AtomicU32, u32)>,
}

impl Next<'_> {
    /// So many nanoseconds from now.
    pub(super) fn within(ns: u64) -> Self {
        Self {
            again: Duration::from_nanos(ns),
            bell: None,
        }
    }

    const SOON: Self = Self {
        again: Duration::from_nanos(OVERTIME),
        bell: None,
    };
}

impl Turn {
    /// Follows new rules. The gate is right when it returns; a lock that is not wanted any more is given up at the next
    /// [`look`](Self::look), which may ask the driver.
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
        // Where a thread is held back, or looks whether all is done, that one ends it when it is back.
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

    /// There are no turns any more: the lock is given up, and without a policy the gate stays open.
    fn let_go(&self, process: &ManagedProcess, device: &Device) {
        self.release(process, device, Reason::Off);
        let state = self.lock();
        if state.phase == Phase::Free && state.is_open() {
            open_gate(device);
        }
    }

    /// What the keeper has to do now, and when it wants to look again.
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
            // Soon over, and then perhaps held on.
            Phase::Draining => return Some(Next::SOON),
            // The thread that acquires it rings.
            Phase::Free | Phase::Acquiring => return None,
        }
        let lock = process.registration.lock(device.entry);
        if !lock.held() {
            self.lost(&mut state, device);
            return None;
        }
        let Rules { policy, paused } = state.rules;
        let acquired_ns = state.acquired_ns;
        let (full, goes_on) = (state.is_full(), state.goes_on);
        let synced = state.synced_ns != 0;
        let queued_ns = self.queued_ns(&state, now);
        drop(state);
        if paused || is_locked() {
            self.release(process, device, Reason::Paused);
            return None;
        }
        if !policy.kind.has_turns() {
            self.let_go(process, device);
            return None;
        }
        let submitted = submitted(device);
        if self.seen_submitted.swap(submitted, Relaxed) != submitted {
            self.seen_ns.store(now, Relaxed);
        }
        let hold_limit = process.registration.segments().hold_limit(&policy);
        let acquired_ns = match policy.kind {
            PolicyKind::Timeslice(_) => lock.turn_since(acquired_ns, hold_limit),
            _ => acquired_ns,
        };
        let end = end(hold_limit, acquired_ns, queued_ns);
        let overtime = now >= end || goes_on;
        // Before its end a slice is not to be disturbed but by a gang; after it, and with a count, the keeper wakes when a
        // waiter comes.
        let calls = lock.may_be_called();
        let bell = (overtime || calls || is_counted(policy.kind)).then(|| lock.listen());
        if let Some(reason) = due(
            &lock,
            end,
            acquired_ns.saturating_add(policy.max_hold_ns),
            now,
        ) {
            self.release(process, device, reason);
            return None;
        }
        let waited_for = lock.is_waited_for();
        if waited_for {
            self.waited_ns.store(now, Relaxed);
        } else if now.saturating_sub(self.waited_ns.load(Relaxed)) > FORGET {
            self.hurry(device);
        }
        if full && lock.is_wanted() {
            // The waiter came after the last submission, and the application is busy elsewhere.
            self.decide(process, device);
            return Some(Next::SOON);
        }
        // A process that deserves it more may go on, but not with a device that stands still while others wait for it.
        if overtime
            && lock.is_wanted()
            && self.stands_still(device, submitted, now)
            && self.release_if_done(process, device, Reason::Slice)
        {
            return None;
        }
        let idle_at = self.idle_at(&self.lock());
        let reason = if synced { Reason::Sync } else { Reason::Idle };
        if now < idle_at {
            lock.publish_ending(Ending::Not, 0);
        } else if self.may_rest(&lock, device) && self.release_if_done(process, device, reason) {
            return None;
        }
        let idle_wait = if now >= idle_at {
            policy.idle_ns.unwrap_or(OVERTIME)
        } else {
            idle_at - now
        };
        // Behind its end a slice goes on only until another process deserves the lock more, which time alone may bring to those
        // who wait.
        let slice_wait = match end.checked_sub(now).filter(|left| *left > 0) {
            _ if overtime && waited_for => OVERTIME,
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

    /// How much of what was submitted in this turn has still to run, as far as that is known.
    fn queued_ns(&self, state: &State, now: u64) -> u64 {
        match state.depth_ns() {
            Some(depth_ns) if state.limited => self.queue_depth().left(depth_ns, now),
            _ => 0,
        }
    }

    /// Whether all was done when the keeper last looked, and nothing was submitted since.
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

    /// A trace was switched on or off: an open gate sends submissions where they are timed, or the fast way again.
    pub fn retrace(&self, device: &Device) {
        let _state = self.lock();
        let gate = gate_of(device);
        if gate.is_passable() {
            open_gate(device);
        }
    }

    /// Since when the lock is held.
    pub fn held_since(&self) -> Option<u64> {
        let state = self.lock();
        (state.phase == Phase::Held).then_some(state.acquired_ns)
    }

    /// No process waits any more, and none has for a while: how much is queued is the application's own affair.
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

    /// At the process's end, the lock given up: submissions go in as they come.
    pub fn leave(&self, device: &Device) {
        self.recheck.store(true, Relaxed);
        open_gate(device);
        self.changed.notify_all();
    }
}

/// When a hold ends that another process deserves: so much earlier as is queued then and still runs.
fn end(limit: u64, acquired_ns: u64, queued_ns: u64) -> u64 {
    acquired_ns.saturating_add(limit - queued_ns.min(limit / 2))
}

/// Why a hold is to end now, if it is.
fn due(lock: &DeviceLock<'_>, end: u64, longest: u64, now: u64) -> Option<Reason> {
    if lock.cap_left(now) == Some(0) {
        return Some(Reason::Paused);
    }
    let over = now >= end && (lock.contended() || lock.ends_with_mates())
        || now >= longest && lock.is_wanted()
        || lock.is_called(now);
    over.then_some(Reason::Slice)
}
