//! Waiting for the lock: queue, sleep, poll again.

use super::{
    Acquire, DeviceLock, IDLE, WAITS, choose,
    starvation_check::StarvationCheck,
    watch::{POLL_NS, Watch},
};
use crate::{
    layout::state::{Slot, State},
    os::{clock, futex},
    protocol::{
        bell,
        crash::crash_point,
        primitive::{AtomicU32, Ordering},
        turn::{Passed, who},
    },
    value::{Event, EventKind, Reason},
};

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
    let (_, slot): (_, &Slot) = choose::slot_of(state, owner)?;
    let word = slot.keeper.load(Ordering::Relaxed);
    // A word that is marked already is no reason to sleep: then the expected value makes the kernel refuse.
    Some((&slot.keeper, if word & 0x4000_0000 != 0 { 0 } else { word }))
}
