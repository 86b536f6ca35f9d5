//! The device lock: the right to submit work to one device.
//!
//! The lock guarantees to its callers:
//!
//! * There is one owner. Its word changes only by compare-and-swap ([`crate::protocol::turn`]).
//! * A release hands the lock *to* the next waiter, so no process barges in. A holder keeps it only while it deserves it most
//!   itself ([`DeviceLock::contended`], and [`DeviceLock::is_due`] where turns are counted).
//! * A dead owner loses it within microseconds: waiters sleep on its keeper's robust word as well as on their own
//!   grant. A stopped or overdue one loses it after its hold limit and grace, and finds out by [`DeviceLock::held`].
//! * Nothing sleeps longer than 50 ms without looking again.
//!
//! * Where other tenants may write over the words, these cannot keep a waiter for longer than a holder may hold: after that it
//!   goes without turns (`starvation_check`).
//!
//! After a hand-off with others still waiting, the releaser wakes one of them, so that it sleeps on the *new* holder's robust
//! word. The others wake by themselves.

mod account;
mod choose;
pub mod forecast;
mod gang;
pub mod order;
mod overlap;
mod starvation_check;
mod stats;
#[cfg(test)]
mod tests;
mod wait;

use crate::{
    cached_settings::{Entry, OwnSlot},
    layout::state::{Device, DeviceEntry, Slot, State},
    os::clock,
    protocol::{
        bell, claim,
        crash::crash_point,
        primitive::{AtomicU32, Ordering},
        turn::{self, BITMAP, Passed, Turn, who},
    },
    value::{Event, EventKind, LockPolicy, Order, Reason, SlotId},
};

pub(crate) use choose::{nudge_waiters, withdraw};
pub use gang::{Ending, Mates};
pub use overlap::{HeldBack, Precedence, Tolerance};

/// The result of waiting for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The lock is ours.
    Held {
        /// Time spent waiting, in nanoseconds.
        waited_ns: u64,
    },
    /// The caller gave up; nothing is held.
    GaveUp,
}

/// `lock_state` words.
pub(crate) const IDLE: u32 = 0;
pub(crate) const WAITS: u32 = 1;
pub(crate) const HOLDS: u32 = 2;
pub(crate) const ACTIVE: u32 = 3;
pub(crate) const BACK: u32 = 4;

/// The lock of one device, as one process uses it. At most one thread of the process acquires or releases it at a time.
#[derive(Clone, Copy)]
pub struct DeviceLock<'r> {
    own_slot: &'r OwnSlot,
    index: usize,
    entry: Entry,
    device: &'r Device,
    words: &'r DeviceEntry,
    me: u64,
}

impl Device {
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn {
            owner: &self.owner,
            waiters: &self.waiters,
            inside: &self.inside,
            evicted: &self.evicted,
        }
    }
}

impl<'r> DeviceLock<'r> {
    pub(crate) fn new(own_slot: &'r OwnSlot, entry: Entry) -> DeviceLock<'r> {
        let state = own_slot.segments().state();
        let index = usize::from(entry.device()) % state.devices.len();
        let slot = &state.slots[usize::from(own_slot.slot().index)];
        DeviceLock {
            own_slot,
            index,
            entry,
            device: &state.devices[index],
            words: &slot.entries[usize::from(entry.index()) % slot.entries.len()],
            me: own_slot.slot().to_word(),
        }
    }

    /// Takes the lock if it is free and no other process is to have it.
    pub fn try_acquire(&self, now_ns: u64) -> bool {
        self.take(now_ns, || now_ns)
    }

    /// Takes the lock if it is free and no other process is to have it. `began` is asked for the time once the lock is taken: a
    /// process that the scheduler stops between its look at the clock and its turn did not hold the lock for that time.
    fn take(&self, now_ns: u64, began: impl Fn() -> u64) -> bool {
        if self.in_untrusted_fallback() {
            self.submit_in_fallback(0, now_ns);
            return true;
        }
        let turn = self.device.turn();
        let seen = turn.owner();
        if who(seen) != 0 {
            return false;
        }
        if self.own_slot.may_be_held_back() && !self.eligible(now_ns) {
            return false;
        }
        if turn.has_waiters() && self.best_waiter(0, now_ns).is_some() {
            return false;
        }
        let Some(mine) = turn.take(seen, self.me) else {
            return false;
        };
        crash_point!("acquire:taken");
        self.open_account(now_ns);
        self.begin(mine, began(), None)
    }

    /// Waits for the lock. `give_up` is asked at each wake-up, at most 50 ms apart.
    pub fn acquire(&self, give_up: &dyn Fn() -> bool) -> Acquire {
        let asked = clock::now();
        crash_point!("acquire:asked");
        if self.take(asked, clock::now) {
            return Acquire::Held { waited_ns: 0 };
        }
        self.wait(asked, give_up)
    }

    /// Gives the lock up to the next waiter, and returns that waiter.
    pub fn release(&self, reason: Reason, now_ns: u64) -> Option<SlotId> {
        let turn = self.device.turn();
        let since = self.held_since();
        if matches!(
            self.words.lock_state.load(Ordering::Relaxed),
            HOLDS | ACTIVE
        ) {
            self.words.lock_state.store(IDLE, Ordering::Relaxed);
        }
        let owner = turn.owner();
        if who(owner) != self.me {
            return None;
        }
        turn.exit(owner);
        self.device.passed_ns.store(now_ns, Ordering::Relaxed);
        self.device.owner_since.store(now_ns, Ordering::Relaxed);
        crash_point!("release:leaving");
        let passed = self.pass(owner, now_ns);
        crash_point!("release:passed");
        let next = match passed {
            Passed::Moved => return None,
            Passed::Free => 0,
            Passed::To(next) => next,
        };
        let held = now_ns.saturating_sub(since);
        let pace = self.own_slot.pace();
        let charged = self.words.count_hold(since, now_ns, reason, pace);
        self.words.left_ns.store(now_ns, Ordering::Relaxed);
        let short_of = self.kept_short(charged).unwrap_or(charged / 2);
        self.words
            .slack_ns
            .store(stats::virtual_ns(short_of, pace.weight), Ordering::Relaxed);
        if next == 0 {
            // A process that comes while none is active starts level with us.
            self.device
                .floor
                .fetch_max(self.words.vtime.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let kind = EventKind::Release(reason);
        self.publish(Event {
            arg0: held,
            arg1: next,
            ..Event::of(now_ns, self.own_slot.slot(), kind)
        });
        SlotId::from_word(next)
    }

    /// Returns true while the lock is ours. A lock that was forced away is not ours. While the process goes without turns, this
    /// is always true.
    pub fn held(&self) -> bool {
        who(self.device.turn().owner()) == self.me
            && self.words.lock_state.load(Ordering::Relaxed) == HOLDS
            || self.in_untrusted_fallback()
    }

    /// Returns true if an eligible waiter deserves the lock more than this holder, by the device's order. So under `fair` a
    /// heavy holder goes on until its share is used, and under `priority` an urgent one goes on until others have aged enough.
    /// A holder that is paused or over its cap always deserves it least.
    pub fn contended(&self) -> bool {
        self.device.turn().has_waiters() && self.contended_at(clock::now())
    }

    /// Returns true if any process waits, whatever its rank. A holder that runs far ahead of the device then stops until the
    /// device catches up.
    pub fn is_waited_for(&self) -> bool {
        self.device.turn().has_waiters()
    }

    /// Returns true if an eligible process waits, whatever its rank. A holder whose launch count is used up then drains, and
    /// the turn is [decided again](Self::is_due).
    pub fn is_wanted(&self) -> bool {
        self.device.turn().has_waiters() && self.best_waiter(self.me, clock::now()).is_some()
    }

    /// Returns true if another process has the turn now, at the end of a quantum that took `quantum_ns`, drained. The turn
    /// stays ours under `fair` if one more quantum would leave us behind the others still, and under `priority` while no other
    /// is as urgent.
    pub fn is_due(&self, quantum_ns: u64) -> bool {
        self.device.turn().has_waiters() && self.due_at(clock::now(), quantum_ns)
    }

    fn contended_at(&self, now_ns: u64) -> bool {
        self.due_at(now_ns, 0)
    }

    fn due_at(&self, now_ns: u64, quantum_ns: u64) -> bool {
        self.best_waiter(self.me, now_ns).is_some_and(|best| {
            let holder = self.holder(self.me, now_ns, quantum_ns);
            best.beats(&holder) || best.is_called_before(&holder, &self.policy(), self.hold_limit())
        })
    }

    /// Returns the time when this hold began.
    pub fn held_since(&self) -> u64 {
        self.words.lock_since.load(Ordering::Relaxed)
    }

    /// Listens for processes that join this device's queue; the keeper of a lone holder does this. Returns the futex word that
    /// changes then, and the value to sleep on. A process that joined before is in the queue already, so the caller looks at
    /// the queue after this call and before it sleeps. A joining process pays for a wake-up only if there is a listener.
    pub fn listen(&self) -> (&'r AtomicU32, u32) {
        let word = &self.device.arrivals;
        (word, bell::listen(word))
    }

    /// Nanoseconds until this holder's cap asks it to pause, `Some(0)` when it is over; `None` without a cap.
    pub fn cap_left(&self, now_ns: u64) -> Option<u64> {
        let cap = self.own_slot.pace().cap?;
        Some(self.words.cap_left(cap, self.held_since(), now_ns))
    }

    /// Records that the holder saw the end of its work `ns` late, because a busy machine woke it late. The time counts as held,
    /// but is not charged: the holder did not use the device then.
    pub fn overslept(&self, ns: u64) {
        stats::add(&self.words.late_ns, ns);
    }

    fn eligible(&self, now_ns: u64) -> bool {
        self.is_eligible_above(0, now_ns)
    }

    /// Returns true if this process may have turns, although it is so far above its cap.
    fn is_eligible_above(&self, above_ns: u64, now_ns: u64) -> bool {
        let share = self.own_slot.share();
        self.follow_cap(share.cap, now_ns);
        let then_ns = now_ns.saturating_add(above_ns);
        !share.paused && !stats::is_used_up(self.words, share.cap, then_ns)
    }

    fn policy(&self) -> LockPolicy {
        self.own_slot.policy(self.entry).0
    }

    fn hold_limit(&self) -> u64 {
        self.own_slot.segments().hold_limit(&self.policy())
    }

    fn order(&self) -> Order {
        self.own_slot.order(self.entry)
    }

    fn publish(&self, event: Event) {
        self.own_slot.segments().state().publish(Event {
            device: self.index as u8,
            ..event
        });
    }

    /// Takes up a turn of ours: proves that it is ours alone, and counts. False if it was taken away already.
    fn begin(&self, mine: u64, now_ns: u64, waited: Option<u64>) -> bool {
        match self.device.turn().enter(mine) {
            turn::Entry::Alone => {}
            turn::Entry::NotAlone => {
                self.device.violations.fetch_add(1, Ordering::Relaxed);
            }
            turn::Entry::TooLate => return false,
        }
        self.device.owner_since.store(now_ns, Ordering::Relaxed);
        self.words.lock_since.store(now_ns, Ordering::Relaxed);
        self.words.late_ns.store(0, Ordering::Relaxed);
        self.publish_ending(Ending::Not, 0);
        self.words.lock_state.store(HOLDS, Ordering::Relaxed);
        self.words.acquisitions.fetch_add(1, Ordering::Relaxed);
        if let Some(waited) = waited {
            self.words.count_wait(waited);
            self.device.count_handoff(now_ns);
        }
        let kind = EventKind::Hold;
        self.publish(Event {
            arg0: waited.unwrap_or(0),
            ..Event::of(now_ns, self.own_slot.slot(), kind)
        });
        self.call_mates();
        true
    }

    /// Passes the turn of `from` on, and wakes whose it is.
    fn pass(&self, from: u64, now_ns: u64) -> Passed {
        let choose = |bits: &[u64; BITMAP], policy: &LockPolicy| {
            let shares = &mut *self.own_slot.shares();
            choose::best(
                self.own_slot.segments(),
                shares,
                self.index,
                bits,
                policy,
                who(from),
                now_ns,
            )
        };
        choose::pass(self.own_slot.segments(), self.index, from, |bits| {
            choose(bits, &self.policy())
        })
    }
}

/// No process sleeps longer without looking again.
const POLL_NS: u64 = 50_000_000;
/// More than this between two looks means that we ourselves were stopped, or the machine was: it does not count
/// against the holder.
const STALL_NS: u64 = 2 * POLL_NS;
/// Time without a poll after which a waiter may be stopped. It is then not chosen until it polls again.
const PULSE_NS: u64 = 500_000_000;

/// The slot of a slot or owner word, if it is that life of it and published.
pub(crate) fn slot_of(state: &State, word: u64) -> Option<(SlotId, &Slot)> {
    let id = SlotId::from_word(who(word))?;
    let slot = state.slots.get(usize::from(id.index))?;
    (claim::live(&slot.claim) == Some(id.epoch)).then_some((id, slot))
}

/// A slot's entry on a device.
pub(crate) fn entry_on(slot: &Slot, device: usize) -> Option<&DeviceEntry> {
    let entry = slot.entry_of_device.get(device)?.load(Ordering::Relaxed);
    slot.entries.get(usize::from(entry).checked_sub(1)?)
}

/// The entry of a slot word on a device.
pub(crate) fn entry_of(state: &State, word: u64, device: usize) -> Option<&DeviceEntry> {
    entry_on(slot_of(state, word)?.1, device)
}

/// The waiters of a bitmap, with their entries.
pub(crate) fn waiters<'s>(
    state: &'s State,
    device: usize,
    bits: &[u64; BITMAP],
) -> impl Iterator<Item = (SlotId, &'s Slot, &'s DeviceEntry)> + use<'s> {
    let mut bits = *bits;
    std::iter::from_fn(move || {
        let (at, word) = bits.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let index = at * 64 + word.trailing_zeros() as usize;
        *word &= *word - 1;
        Some(index)
    })
    .filter_map(move |index| {
        let slot = state.slots.get(index)?;
        let epoch = claim::live(&slot.claim)?;
        let entry = entry_on(slot, device)?;
        Some((
            SlotId {
                index: index as u16,
                epoch,
            },
            slot,
            entry,
        ))
    })
}
