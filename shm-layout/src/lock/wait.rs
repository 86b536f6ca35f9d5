//! Waiting for the lock: queue up, sleep, look again, take over from the dead and the overdue.

use super::{Acquire, DeviceLock, IDLE, WAITS, choose, stats};
use crate::{
    clock,
    crash::crash_point,
    events::{Event, EventKind, Reason},
    futex,
    liveness::{self, Mark},
    primitive::{AtomicU32, Ordering},
    protocol::{
        bell,
        turn::{Passed, who},
    },
    reap,
    register::event,
    settings::{LockPolicy, PolicyKind, Share},
    state::{Slot, State},
};

/// Nobody sleeps longer without looking again.
const LOOK_NS: u64 = 50_000_000;
/// A keeper of a holder that has not ticked for so long is stopped.
const QUIET_NS: u64 = 1_000_000_000;
/// More than this between two looks means that we ourselves were stopped, or the machine was: it does not count
/// against the holder.
const STALL_NS: u64 = 2 * LOOK_NS;
/// Who comes back within so much of giving the lock up has not been away.
const AWAY_NS: u64 = 20_000_000;

/// What a waiter has seen of the holder it waits for.
#[derive(Default)]
struct Watch {
    owner: u64,
    since_ns: u64,
    heartbeat_ns: u64,
    /// How long somebody deserved the lock more than this holder.
    overdue_ns: u64,
    /// How long its keeper has not ticked.
    quiet_ns: u64,
    looked_ns: u64,
    /// We could not have had the lock when we last looked: paused, or over our cap.
    held_back: bool,
}

/// Why a holder may be put out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Dead,
    Overdue,
}

impl DeviceLock<'_> {
    pub(super) fn wait(&self, began: u64, give_up: &dyn Fn() -> bool) -> Acquire {
        let turn = self.device.turn();
        let slot = usize::from(self.registration.slot().index);
        self.queue_up(began);
        if bell::strike(&self.device.arrivals) {
            futex::wake(&self.device.arrivals, i32::MAX);
        }
        self.publish(event(began, self.registration.slot(), EventKind::Wait));
        let mut watch = Watch {
            looked_ns: began,
            ..Watch::default()
        };
        loop {
            // Before the looks below: what changes after them changes this word too, and the sleep ends.
            // ORDER: Acquire pairs with the giver's Release; the owner word below is at least as new, and the settings.
            let grant = self.words.grant.load(Ordering::Acquire);
            let now = clock::now();
            self.take_part_again(now, &mut watch);
            self.words.pulse_ns.store(now, Ordering::Relaxed);
            let owner = turn.owner();
            if who(owner) == self.me {
                crash_point!("acquire:granted");
                let waited = now.saturating_sub(began);
                self.words
                    .blame(watch.owner, now.saturating_sub(watch.looked_ns));
                // Inside first and out of the queue second: see Turn::pass.
                if !self.begin(owner, now, Some(waited)) {
                    // Too late: whoever declared it void passes it on, and if that one has died, we do.
                    self.pass(owner, now);
                    continue;
                }
                turn.leave(slot);
                return Acquire::Held { waited_ns: waited };
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
                Some(fault) => self.put_out(owner, fault, watch.since_ns, now),
                None => who(owner) == 0 && self.take_from_nobody(owner, now),
            };
            if !moved {
                self.sleep(owner, grant, now, &watch);
            }
        }
    }

    /// Passes a free lock on, to us or to somebody who deserves it more. True if anything moved.
    fn take_from_nobody(&self, free: u64, now_ns: u64) -> bool {
        // A pause or a cap may have kept it free for long; that is no hand-off.
        self.device.passed_ns.store(0, Ordering::Relaxed);
        matches!(self.pass(free, now_ns), Passed::To(_) | Passed::Moved)
    }

    /// Joins the queue.
    pub(super) fn queue_up(&self, now_ns: u64) {
        self.open_account(now_ns);
        self.words.pulse_ns.store(now_ns, Ordering::Relaxed);
        self.words.lock_since.store(now_ns, Ordering::Relaxed);
        self.words.lock_state.store(WAITS, Ordering::Relaxed);
        self.device
            .turn()
            .join(usize::from(self.registration.slot().index));
        crash_point!("acquire:joined");
    }

    /// A waiter that was stopped, paused or over its cap was away as well: it gets no pay for that time.
    fn take_part_again(&self, now_ns: u64, watch: &mut Watch) {
        let held_back = self.registration.may_be_held_back() && !self.eligible(now_ns);
        let was_held_back = std::mem::replace(&mut watch.held_back, held_back);
        let stopped =
            now_ns.saturating_sub(self.words.pulse_ns.load(Ordering::Relaxed)) > choose::PULSE_NS;
        if stopped || was_held_back && !held_back {
            self.open_account(now_ns);
        }
    }

    /// Whoever was away is paid for little of that time.
    pub(super) fn open_account(&self, now_ns: u64) {
        self.start_virtual_time(now_ns);
        if self.registration.may_be_held_back() {
            let least = now_ns.saturating_sub(stats::IDLE_CREDIT_NS);
            let until = self.words.cap_until.load(Ordering::Relaxed).max(least);
            self.words.cap_until.store(until, Ordering::Relaxed);
        }
    }

    /// A newcomer starts at the least virtual time of the active, or where it was if it is back at once.
    fn start_virtual_time(&self, now_ns: u64) {
        let mut shares = self.registration.shares();
        let least = choose::least_active(
            self.registration.segments(),
            &mut shares,
            self.index,
            self.me,
            now_ns,
        );
        let left_ns = self.words.left_ns.load(Ordering::Relaxed);
        let slack = if now_ns.saturating_sub(left_ns) <= AWAY_NS {
            self.words.slack_ns.load(Ordering::Relaxed)
        } else {
            0
        };
        let floor = least
            .unwrap_or_else(|| self.device.floor.load(Ordering::Relaxed))
            .saturating_sub(slack);
        if self.words.vtime.load(Ordering::Relaxed) < floor {
            self.words.vtime.store(floor, Ordering::Relaxed);
        }
        if least.is_none() {
            self.device
                .floor
                .fetch_max(self.words.vtime.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(super) fn best_waiter(&self, but: u64, now_ns: u64) -> Option<choose::Candidate> {
        let order = self.order();
        let mut shares = self.registration.shares();
        let bits = self.device.turn().waiting();
        choose::best(
            self.registration.segments(),
            &mut shares,
            self.index,
            &bits,
            order,
            but,
            now_ns,
        )
    }

    /// How deserving an owner is that goes on for `ahead_ns` more.
    pub(super) fn holder(&self, owner: u64, now_ns: u64, ahead_ns: u64) -> choose::Candidate {
        let order = self.order();
        let segments = self.registration.segments();
        let found = choose::slot_of(segments.state(), owner);
        let share = found.map(|(id, slot)| {
            self.registration
                .shares()
                .share_of(segments, id, slot, now_ns)
        });
        let entry = found.and_then(|(_, slot)| choose::entry_on(slot, self.index));
        choose::holder(
            owner,
            entry.unwrap_or(self.words),
            &share.unwrap_or_default(),
            order,
            now_ns,
            ahead_ns,
        )
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

    /// Looks at the holder; a fault if it may be put out now.
    fn look_at(&self, owner: u64, now_ns: u64, watch: &mut Watch) -> Option<Fault> {
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
        let state = self.registration.segments().state();
        let Some((id, slot)) = choose::slot_of(state, owner) else {
            return Some(Fault::Dead);
        };
        match liveness::mark_of(&slot.keeper) {
            Mark::Dead => return Some(Fault::Dead),
            Mark::None if now_ns.saturating_sub(first) >= LOOK_NS / 2 => {
                // No keeper to tell; its byte does.
                let index = usize::from(id.index);
                if matches!(reap::is_gone(self.registration.segments(), index), Ok(true)) {
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
        let policy = self.registration.policy(self.entry).0;
        let stopped = watch.quiet_ns > QUIET_NS + policy.grace_ns
            && liveness::mark_of(&slot.keeper) == Mark::Alive;
        (stopped || watch.overdue_ns > self.patience(owner, &policy)).then_some(Fault::Overdue)
    }

    /// How long a holder may be overdue.
    fn patience(&self, owner: u64, policy: &LockPolicy) -> u64 {
        let grace = policy.grace_ns;
        if self.device.inside.load(Ordering::Relaxed) != owner {
            // It was given the lock and has not come for it.
            return grace.max(2 * LOOK_NS);
        }
        let hold = match policy.kind {
            PolicyKind::Timeslice(slice) => slice.min(policy.max_hold_ns),
            _ => policy.max_hold_ns,
        };
        // The holder itself gives up its drain after grace; this is for one that cannot.
        hold.saturating_add(grace)
            .saturating_add((grace / 4).max(20_000_000))
    }

    /// Puts a holder out and passes its turn on. True if anything moved.
    pub(super) fn put_out(&self, owner: u64, fault: Fault, since_ns: u64, now_ns: u64) -> bool {
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
        let Some(victim) = crate::ids::SlotId::from_word(who(owner)) else {
            return true;
        };
        if fault == Fault::Overdue {
            self.charge(owner, since_ns, now_ns);
        }
        self.publish(Event {
            arg0: held,
            arg1: next,
            ..event(now_ns, victim, kind)
        });
        true
    }

    /// Counts the hold that a victim could not end itself.
    fn charge(&self, owner: u64, since_ns: u64, now_ns: u64) {
        let segments = self.registration.segments();
        let Some((id, slot)) = choose::slot_of(segments.state(), owner) else {
            return;
        };
        let Some(entry) = choose::entry_on(slot, self.index) else {
            return;
        };
        let share: Share = self
            .registration
            .shares()
            .share_of(segments, id, slot, now_ns);
        entry.forced.fetch_add(1, Ordering::Relaxed);
        entry.count_hold(since_ns, now_ns, Reason::Forced, share.pace());
    }

    /// Sleeps until our grant (an edit rings there too), the holder's death, or the next look.
    fn sleep(&self, owner: u64, grant: u32, now_ns: u64, watch: &Watch) {
        let policy = self.registration.policy(self.entry).0;
        let mut timeout = LOOK_NS;
        if watch.overdue_ns > 0 {
            timeout = timeout.min(
                self.patience(owner, &policy)
                    .saturating_sub(watch.overdue_ns)
                    + 1_000_000,
            );
        }
        let until = self.words.cap_until.load(Ordering::Relaxed);
        if self.registration.may_be_held_back() && until > now_ns {
            timeout = timeout.min(until - now_ns);
        }
        let grant = (&self.words.grant, grant);
        match keeper_of(self.registration.segments().state(), owner) {
            Some(keeper) => futex::wait_any([grant, keeper], timeout),
            None => futex::wait(grant.0, grant.1, timeout),
        }
    }
}

/// The word a living holder's keeper owns, as it is now. A death after this look changes it.
fn keeper_of(state: &State, owner: u64) -> Option<(&AtomicU32, u32)> {
    let (_, slot): (_, &Slot) = choose::slot_of(state, owner)?;
    let word = slot.keeper.load(Ordering::Relaxed);
    // A word that is marked already is no reason to sleep: then the expected value makes the kernel refuse.
    Some((&slot.keeper, if word & 0x4000_0000 != 0 { 0 } else { word }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Identity, LaunchLimits, Registration, Segments, register};

    const MS: u64 = 1_000_000;

    /// Slices of 100 ms, and 200 ms to drain.
    fn slices() -> LockPolicy {
        LockPolicy {
            kind: PolicyKind::Timeslice(100 * MS),
            grace_ns: 200 * MS,
            ..LockPolicy::default()
        }
    }

    /// Queues a waiter, who begins to watch the holder.
    fn queued(waiter: &DeviceLock<'_>, start: u64) -> Watch {
        waiter.queue_up(start);
        Watch {
            looked_ns: start,
            ..Watch::default()
        }
    }

    fn pair(policy: LockPolicy) -> (tempfile::TempDir, Registration, Registration, crate::Entry) {
        let dir = tempfile::tempdir().expect("a directory");
        let operator = Segments::open_operator(dir.path()).expect("operator");
        operator
            .edit(
                None,
                &Change::Policy {
                    device: None,
                    policy: Some(policy),
                },
                0,
            )
            .expect("edited");
        let enter = || {
            let process = register(
                operator.segments(),
                &Identity::default(),
                &LaunchLimits::default(),
            );
            let process = process.expect("a slot");
            let entry = process.add_device([1; 16], 0, "", 1, 0).expect("an entry");
            (process, entry)
        };
        let ((holder, entry), (waiter, _)) = (enter(), enter());
        (dir, holder, waiter, entry)
    }

    /// Looks every 50 ms from a time on, and says after how long the holder may be put out.
    fn patience(waiter: &DeviceLock<'_>, watch: &mut Watch, from: u64) -> u64 {
        let owner = waiter.device.turn().owner();
        for look in 1..1000 {
            let now = from + look * LOOK_NS;
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
        // Everybody slept for an hour, and the clock went on.
        let later = start + 3_600_000 * MS;
        waiter.words.pulse_ns.store(later, Ordering::Relaxed);
        assert_eq!(
            waiter.look_at(waiter.device.turn().owner(), later, &mut watch),
            None
        );
        assert!(patience(&waiter, &mut watch, later) >= 200 * MS);
    }

    #[test]
    fn a_waiter_that_was_stopped_gets_no_pay_for_it_and_nobody_starts_at_its_time() {
        let (dir, holder, waiter, entry) = pair(slices());
        let start = clock::now();
        assert!(holder.lock(entry).try_acquire(start));
        let waiter = waiter.lock(entry);
        let mut watch = queued(&waiter, start);
        let later = start + 10_000 * MS;
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let (identity, limits) = (Identity::default(), LaunchLimits::default());
        let third = register(&segments, &identity, &limits).expect("a slot");
        let third_entry = third.add_device([1; 16], 0, "", 1, 0).expect("an entry");
        third.lock(third_entry).queue_up(later);
        let vtime = |lock: &DeviceLock<'_>| lock.words.vtime.load(Ordering::Relaxed);
        assert!(vtime(&third.lock(third_entry)) >= 10_000 * MS);
        assert!(vtime(&waiter) < 1000 * MS, "it has not looked yet");
        waiter.take_part_again(later, &mut watch);
        assert!(vtime(&waiter) >= 10_000 * MS);
    }

    #[test]
    fn a_waiter_that_was_paused_gets_no_pay_for_it() {
        let (dir, holder, process, entry) = pair(slices());
        let operator = Segments::open_operator(dir.path()).expect("operator");
        let pause = |paused| Change::ProcessShare {
            slot: process.slot(),
            weight: crate::Set::Keep,
            priority: crate::Set::Keep,
            cap: crate::Set::Keep,
            paused: crate::Set::To(paused),
            boost: crate::Set::Keep,
        };
        let start = clock::now();
        assert!(holder.lock(entry).try_acquire(start));
        let waiter = process.lock(entry);
        let mut watch = queued(&waiter, start);
        operator.edit(None, &pause(true), start).expect("edited");
        for look in 1..=100 {
            let now = start + look * LOOK_NS;
            waiter.take_part_again(now, &mut watch);
            waiter.words.pulse_ns.store(now, Ordering::Relaxed);
        }
        let vtime = || waiter.words.vtime.load(Ordering::Relaxed);
        assert!(vtime() < 1000 * MS);
        operator.edit(None, &pause(false), start).expect("edited");
        waiter.take_part_again(start + 101 * LOOK_NS, &mut watch);
        assert!(vtime() >= 5000 * MS, "{}", vtime());
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
        // One that ticks has until max-hold.
        let mut watch = Watch {
            looked_ns: start,
            ..Watch::default()
        };
        let owner = waiter.device.turn().owner();
        for look in 1..40 {
            let now = start + look * LOOK_NS;
            holder.heartbeat(now);
            waiter.words.pulse_ns.store(now, Ordering::Relaxed);
            assert_eq!(waiter.look_at(owner, now, &mut watch), None);
        }
    }
}
