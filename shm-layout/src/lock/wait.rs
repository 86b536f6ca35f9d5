//! Waiting for the lock: queue, sleep, poll again, and force a dead or overdue holder's lock away.

use super::{
    Acquire, DeviceLock, IDLE, POLL_NS, STALL_NS, WAITS, entry_on, slot_of,
    starvation_check::StarvationCheck,
};
use crate::{
    layout::state::{Slot, State},
    os::{
        clock, futex,
        liveness::{self, Mark},
    },
    protocol::{
        bell,
        crash::crash_point,
        primitive::{AtomicU32, Ordering},
        turn::{Passed, who},
    },
    value::{Event, EventKind, LockPolicy, Reason, Share, SlotId},
};

/// Time without a tick after which a holder's keeper counts as stopped.
const QUIET_NS: u64 = 1_000_000_000;
/// The limit among users who do not trust each other is shorter than a second, so that a holder that stops itself
/// delays the waiters less.
const QUIET_AMONG_STRANGERS_NS: u64 = 750_000_000;

/// Observations that a waiter has made of the holder it waits for.
#[derive(Default)]
pub(super) struct Watch {
    pub(super) owner: u64,
    pub(super) since_ns: u64,
    heartbeat_ns: u64,
    /// Time during which another process deserved the lock more than this holder.
    pub(super) overdue_ns: u64,
    /// Time since the holder's keeper last ticked.
    quiet_ns: u64,
    pub(super) looked_ns: u64,
    /// We could not have had the lock when we last looked: paused, or over our cap.
    pub(super) held_back: bool,
}

impl Watch {
    /// Begins to watch.
    pub(super) fn begin(now_ns: u64) -> Watch {
        Watch {
            looked_ns: now_ns,
            ..Watch::default()
        }
    }
}

/// The reason that a holder's lock may be forced away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Dead,
    Overdue,
}

impl DeviceLock<'_> {
    pub(super) fn wait(&self, began: u64, give_up: &dyn Fn() -> bool) -> Acquire {
        let turn = self.device.turn();
        let slot = usize::from(self.own_slot.slot().index);
        self.enqueue(began);
        if bell::strike(&self.device.arrivals) {
            futex::wake(&self.device.arrivals, i32::MAX);
        }
        self.publish(Event::of(began, self.own_slot.slot(), EventKind::Wait));
        let mut watch = Watch::begin(began);
        let brokered = self.own_slot.segments().is_brokered();
        let mut starvation_check = brokered.then(|| StarvationCheck::begin(began));
        loop {
            // Before the looks below: what changes after them changes this word too, and the sleep ends.
            // ORDER: Acquire pairs with the giver's Release; the owner word below is at least as new, and the settings.
            let grant = self.words.grant.load(Ordering::Acquire);
            let now = clock::now();
            crash_point!("acquire:looked");
            self.take_part_again(now, &mut watch);
            self.words.pulse_ns.store(now, Ordering::Relaxed);
            let owner = turn.owner();
            let passed_over = |starvation_check: &mut StarvationCheck| {
                starvation_check.is_passed_over(self, owner, now)
            };
            if starvation_check.as_mut().is_some_and(passed_over) {
                return self.enter_untrusted_fallback(slot, began, now);
            }
            if who(owner) == self.me {
                crash_point!("acquire:granted");
                // It may have become ours only since the last look at the clock.
                let now = clock::now();
                let waited = now.saturating_sub(began);
                self.words
                    .blame(watch.owner, now.saturating_sub(watch.looked_ns));
                // Inside first and out of the queue second: see Turn::pass.
                if !self.begin(owner, now, Some(waited)) {
                    // Too late: the process that declared it void passes it on, and if that one has died, we do.
                    self.pass(owner, now);
                    continue;
                }
                turn.leave(slot);
                return Acquire::Held { waited_ns: waited };
            }
            if brokered {
                self.rejoin(slot, began);
            }
            if give_up() {
                self.cancel(slot, now);
                self.words.count_wait(now.saturating_sub(began));
                return Acquire::GaveUp;
            }
            self.words
                .blame(watch.owner, now.saturating_sub(watch.looked_ns));
            let holder = self.look_at(owner, now, &mut watch);
            let moved = match holder {
                Some(fault) => self.force_release(owner, fault, watch.since_ns, now),
                None => who(owner) == 0 && self.take_free(owner, now),
            };
            if !moved {
                self.sleep(owner, grant, now, &watch);
            }
        }
    }

    /// Passes a free lock on, to us or to a process that deserves it more. True if anything moved.
    fn take_free(&self, free: u64, now_ns: u64) -> bool {
        // A pause or a cap may have kept it free for long; that is no hand-off.
        self.device.passed_ns.store(0, Ordering::Relaxed);
        matches!(self.pass(free, now_ns), Passed::To(_) | Passed::Moved)
    }

    /// Joins the queue.
    pub(super) fn enqueue(&self, now_ns: u64) {
        self.open_account(now_ns);
        self.words.pulse_ns.store(now_ns, Ordering::Relaxed);
        self.words.lock_since.store(now_ns, Ordering::Relaxed);
        self.words.lock_state.store(WAITS, Ordering::Relaxed);
        self.device
            .turn()
            .join(usize::from(self.own_slot.slot().index));
        crash_point!("acquire:joined");
    }

    /// Another tenant may have written over our place in the queue.
    fn rejoin(&self, slot: usize, began: u64) {
        let turn = self.device.turn();
        if turn.waiting()[slot / 64] >> (slot % 64) & 1 == 0 {
            turn.join(slot);
        }
        if self.words.lock_since.load(Ordering::Relaxed) != began {
            self.words.lock_since.store(began, Ordering::Relaxed);
        }
    }

    /// Leaves the queue; a turn that was given to us before we left is passed on.
    pub(super) fn cancel(&self, slot: usize, now_ns: u64) {
        let turn = self.device.turn();
        turn.leave(slot);
        crash_point!("acquire:cancelled");
        let owner = turn.owner();
        if who(owner) == self.me && self.begin(owner, now_ns, None) {
            self.release(Reason::Explicit, now_ns);
        }
        self.words.lock_state.store(IDLE, Ordering::Relaxed);
    }

    /// Sleeps until our grant (an edit rings there too), the holder's death, or the next look.
    fn sleep(&self, owner: u64, grant: u32, now_ns: u64, watch: &Watch) {
        let policy = self.own_slot.policy(self.entry).0;
        let mut timeout = POLL_NS;
        if watch.overdue_ns > 0 {
            timeout = timeout.min(
                self.patience(owner, &policy)
                    .saturating_sub(watch.overdue_ns)
                    + 1_000_000,
            );
        }
        let until = self.words.cap_until.load(Ordering::Relaxed);
        if self.own_slot.may_be_held_back() && until > now_ns {
            timeout = timeout.min(until - now_ns);
        }
        let grant = (&self.words.grant, grant);
        match keeper_of(self.own_slot.segments().state(), owner) {
            Some(keeper) => futex::wait_any([grant, keeper], timeout),
            None => futex::wait(grant.0, grant.1, timeout),
        }
    }
}

/// The word a living holder's keeper owns, as it is now. A death after this look changes it.
pub(super) fn keeper_of(state: &State, owner: u64) -> Option<(&AtomicU32, u32)> {
    let (_, slot): (_, &Slot) = slot_of(state, owner)?;
    let word = slot.keeper.load(Ordering::Relaxed);
    // A word that is marked already is no reason to sleep: then the expected value makes the kernel refuse.
    Some((&slot.keeper, if word & 0x4000_0000 != 0 { 0 } else { word }))
}

impl DeviceLock<'_> {
    /// Polls the holder. Returns a fault if its lock may be forced away now.
    pub(super) fn look_at(&self, owner: u64, now_ns: u64, watch: &mut Watch) -> Option<Fault> {
        let passed = now_ns.saturating_sub(watch.looked_ns).min(STALL_NS);
        let first = watch.looked_ns;
        watch.looked_ns = now_ns;
        let since_ns = self.device.owner_since.load(Ordering::Relaxed);
        if owner != watch.owner {
            *watch = Watch {
                owner,
                since_ns,
                looked_ns: now_ns,
                held_back: watch.held_back,
                ..Watch::default()
            };
        }
        if who(owner) == 0 {
            return None;
        }
        let state = self.own_slot.segments().state();
        let Some((id, slot)) = slot_of(state, owner) else {
            return Some(Fault::Dead);
        };
        match liveness::mark_of(&slot.keeper) {
            Mark::Dead => return Some(Fault::Dead),
            Mark::None if now_ns.saturating_sub(first) >= POLL_NS / 2 => {
                // The process has no keeper that could report; its byte shows whether it lives.
                let index = usize::from(id.index);
                if matches!(self.own_slot.segments().is_gone(index), Ok(true)) {
                    return Some(Fault::Dead);
                }
            }
            _ => {}
        }
        let heartbeat = slot.heartbeat_ns.load(Ordering::Relaxed);
        watch.quiet_ns = if heartbeat == watch.heartbeat_ns {
            watch.quiet_ns + passed
        } else {
            0
        };
        watch.heartbeat_ns = heartbeat;
        let Some(best) = self.best_waiter(who(owner), now_ns) else {
            (watch.overdue_ns, watch.quiet_ns) = (0, 0);
            return None;
        };
        watch.overdue_ns = if best.beats(&self.holder(owner, now_ns, 0)) {
            watch.overdue_ns + passed
        } else {
            0
        };
        let policy = self.own_slot.policy(self.entry).0;
        let stopped = match self.own_slot.segments().is_brokered() {
            // A process may have no keeper because it wants none.
            true => watch.quiet_ns > QUIET_AMONG_STRANGERS_NS,
            false => {
                watch.quiet_ns > QUIET_NS + policy.grace_ns
                    && liveness::mark_of(&slot.keeper) == Mark::Alive
            }
        };
        (stopped || watch.overdue_ns > self.patience(owner, &policy)).then_some(Fault::Overdue)
    }

    /// Returns how long a holder may be overdue, in nanoseconds.
    pub(super) fn patience(&self, owner: u64, policy: &LockPolicy) -> u64 {
        let grace = policy.grace_ns;
        if self.device.inside.load(Ordering::Relaxed) != owner {
            // The next holder has the lock and has not taken it up.
            return grace.max(2 * POLL_NS);
        }
        // The holder itself gives up its drain after grace; this is for a holder that cannot.
        let segments = self.own_slot.segments();
        segments
            .hold_limit(policy)
            .saturating_add(grace)
            .saturating_add((grace / 4).max(20_000_000))
    }

    /// Puts a holder out and passes its turn on. True if anything moved.
    pub(super) fn force_release(
        &self,
        owner: u64,
        fault: Fault,
        since_ns: u64,
        now_ns: u64,
    ) -> bool {
        let turn = self.device.turn();
        turn.evict(owner);
        self.device.passed_ns.store(now_ns, Ordering::Relaxed);
        crash_point!("takeover:evicted");
        let passed = self.pass(owner, now_ns);
        let next = match passed {
            Passed::Moved => return true,
            Passed::Free => 0,
            Passed::To(next) => next,
        };
        self.device.owner_since.store(now_ns, Ordering::Relaxed);
        let (kind, counter) = match fault {
            Fault::Dead => (EventKind::Takeover, &self.device.takeovers),
            Fault::Overdue => (EventKind::Forced, &self.device.forced),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let held = now_ns.saturating_sub(since_ns);
        let Some(victim) = SlotId::from_word(who(owner)) else {
            return true;
        };
        if fault == Fault::Overdue {
            self.charge(owner, since_ns, now_ns);
        }
        self.publish(Event {
            arg0: held,
            arg1: next,
            ..Event::of(now_ns, victim, kind)
        });
        true
    }

    /// Counts the hold that a victim could not end itself.
    fn charge(&self, owner: u64, since_ns: u64, now_ns: u64) {
        let segments = self.own_slot.segments();
        let Some((id, slot)) = slot_of(segments.state(), owner) else {
            return;
        };
        let Some(entry) = entry_on(slot, self.index) else {
            return;
        };
        let share: Share = self.own_slot.shares().share_of(segments, id, slot, now_ns);
        entry.forced.fetch_add(1, Ordering::Relaxed);
        entry.count_hold(since_ns, now_ns, Reason::Forced, share.pace());
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::pair::{MS, pair, queued, slices},
        *,
    };
    use crate::PolicyKind;

    /// Polls every 50 ms from a time on, and returns the time after which the holder's lock may be forced away.
    fn patience(waiter: &DeviceLock<'_>, watch: &mut Watch, from: u64) -> u64 {
        let owner = waiter.device.turn().owner();
        for look in 1..1000 {
            let now = from + look * POLL_NS;
            waiter.words.pulse_ns.store(now, Ordering::Relaxed);
            if waiter.look_at(owner, now, watch).is_some() {
                return now - from;
            }
        }
        u64::MAX
    }

    #[test]
    fn a_holder_is_put_out_after_its_slice_and_grace() {
        let (_dir, holder, waiter, entry) = pair(slices());
        let start = clock::now();
        assert!(holder.lock(entry).try_acquire(start));
        let waiter = waiter.lock(entry);
        let mut watch = queued(&waiter, start);
        let took = patience(&waiter, &mut watch, start);
        assert!((300 * MS..600 * MS).contains(&took), "{took}");
    }

    #[test]
    fn a_pause_of_the_whole_machine_is_not_held_against_the_holder() {
        let (_dir, holder, waiter, entry) = pair(slices());
        let start = clock::now();
        assert!(holder.lock(entry).try_acquire(start));
        let waiter = waiter.lock(entry);
        let mut watch = queued(&waiter, start);
        // The machine slept for an hour, and the clock went on.
        let later = start + 3_600_000 * MS;
        waiter.words.pulse_ns.store(later, Ordering::Relaxed);
        assert_eq!(
            waiter.look_at(waiter.device.turn().owner(), later, &mut watch),
            None
        );
        assert!(patience(&waiter, &mut watch, later) >= 200 * MS);
    }

    #[test]
    fn a_holder_whose_keeper_is_silent_is_put_out_whatever_its_policy() {
        let (_dir, holder, waiter, entry) = pair(LockPolicy {
            kind: PolicyKind::Launches(9),
            ..LockPolicy::default()
        });
        let start = clock::now();
        let _mark = holder.attach_keeper().expect("a robust list");
        assert!(holder.lock(entry).try_acquire(start));
        let waiter = waiter.lock(entry);
        let mut watch = queued(&waiter, start);
        let took = patience(&waiter, &mut watch, start);
        assert!((1000 * MS..2000 * MS).contains(&took), "{took}");
        // A holder that ticks has until max-hold.
        let mut watch = Watch::begin(start);
        let owner = waiter.device.turn().owner();
        for look in 1..40 {
            let now = start + look * POLL_NS;
            holder.heartbeat(now);
            waiter.words.pulse_ns.store(now, Ordering::Relaxed);
            assert_eq!(waiter.look_at(owner, now, &mut watch), None);
        }
    }
}
