//! The policy `overlap`: there are no turns. Every process submits, and the order decides which ones hold back.
//!
//! ```text
//! process                          words of the device            a process of lower rank
//!    │ first submission               │                              │ before each submission
//!    │ its bit in `active` ─────────▶ active ──────────────────────▶ │ a bit of higher rank: held back
//!    │ keeper: `pulse_ns`             │                              │ sleeps on `activity` and on that one's keeper
//!    │ work done, nothing new         │                              │
//!    │ bit out; strike ─────────────▶ activity ────────────────────▶ │ looks again
//! ```
//!
//! A process publishes how much work others may queue ahead of it without its being delayed much ([`Tolerance`]): one whose
//! processor is slower than the device leaves the device to them most of the time, though it is always active. One that
//! tolerates everything ([`Tolerance::all`]) holds nobody back until it takes that back.
//!
//! A bit is a hint, never a lock, and so is a tolerance: a process that reads it late submits a little too much. A process that dies leaves its bit to
//! the reaper. The processes it holds back look at its robust word, and ignore a process without a pulse for [`PULSE_NS`], so
//! that a stopped process delays others only briefly.

mod measure;
mod tolerance;

use std::cmp::Ordering::{Equal, Greater, Less};

pub use tolerance::Tolerance;

use super::{
    ACTIVE, BACK, DeviceLock, IDLE, PULSE_NS, order::AGE_NS, slot_of, stats, wait::keeper_of,
    waiters,
};
use crate::{
    cached_settings::HoldBackTimer,
    layout::{
        codec,
        state::{Device, DeviceEntry, Slot},
    },
    os::{
        clock, futex,
        liveness::{self, Mark},
    },
    protocol::{
        bell,
        crash::crash_point,
        primitive::{AtomicU32, Ordering},
        turn::BITMAP,
    },
    value::{CardSlice, Event, EventKind, Order, PolicyKind, Share, SlotId},
};

/// No process is held back longer than this without looking again.
const POLL_NS: u64 = 20_000_000;
/// A wait that is not longer needs no wake-up.
const NAP_NS: u64 = 1_000_000;
/// Time of being held back after which a process goes on for a moment, whatever the words of others say.
const STARVED_NS: u64 = 900_000_000;
/// A process that was active within this time has its place in the order.
const IN_USE_NS: u64 = 10_000_000_000;
/// Several others stay on the device for longer only where the process that goes first is active for so long at a time: one whose requests
/// take a millisecond would wait for them for as long again. Measured with one that is active for 5 ms.
const LONG_ACTIVITY_NS: u64 = 3_000_000;
/// No process is charged for more at once: its keeper looks at least four times a second.
const CHARGE_NS: u64 = 250_000_000;

/// The reason that a process may not submit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// The process it is held back for; `None` for its own cap.
    pub by: Option<SlotId>,
    /// The work that the process may have queued all the same; `None` if it may submit nothing at all.
    pub tolerance: Option<Tolerance>,
    /// True if the reason is another member of its gang that is held back on another device.
    pub with_gang: bool,
    /// The least time until it may go on if only the accounts change, in nanoseconds; `u64::MAX` where that is not known.
    pub least_ns: u64,
}

/// The place of a process in the order, where the card's own time slices can follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// It goes before all others.
    First,
    /// Only one other process is there, and that one goes first.
    Second,
    /// Several others use the device, and it does not go first, or it does and mostly works on its processor.
    Among,
}

impl Device {
    pub(super) fn active_bits(&self) -> [u64; BITMAP] {
        std::array::from_fn(|at| self.active[at].load(Ordering::Relaxed))
    }

    /// A slot has no work here any more; wakes those it held back.
    pub(super) fn rest(&self, slot: SlotId) {
        let (at, bit) = slot.bit();
        let before = self.active[at].fetch_and(!bit, Ordering::Relaxed);
        if before & bit != 0 {
            self.wake_held_back();
        }
    }

    /// Wakes the processes that are held back, so that they look again.
    pub(super) fn wake_held_back(&self) {
        if bell::strike(&self.activity) {
            futex::wake(&self.activity, i32::MAX);
        }
    }
}

impl DeviceEntry {
    /// Returns true if the process is active under `overlap` for [`LONG_ACTIVITY_NS`] at a time. One long time among short ones says
    /// little, unless it goes on.
    fn is_active_for_long(&self, now_ns: u64) -> bool {
        let present = match self.lock_state.load(Ordering::Relaxed) {
            ACTIVE => now_ns.saturating_sub(self.lock_since.load(Ordering::Relaxed)),
            _ => 0,
        };
        let mean = self.activity_ns.load(Ordering::Relaxed);
        mean.max(present / 16) >= LONG_ACTIVITY_NS
    }
}

impl DeviceLock<'_> {
    /// Marks this process as active; processes of lower rank hold back from now on.
    pub fn begin_activity(&self, now_ns: u64) {
        let others = self.least_of_the_active(now_ns);
        let least = others.unwrap_or_else(|| self.device.floor.load(Ordering::Relaxed));
        self.words.vtime.fetch_max(least, Ordering::Relaxed);
        self.temper(others);
        self.open_cap(now_ns);
        for word in [
            &self.words.pulse_ns,
            &self.words.charged_ns,
            &self.words.lock_since,
        ] {
            word.store(now_ns, Ordering::Relaxed);
        }
        self.words.lock_state.store(ACTIVE, Ordering::Relaxed);
        stats::add(&self.words.acquisitions, 1);
        let (at, bit) = self.own_slot.slot().bit();
        self.device.active[at].fetch_or(bit, Ordering::Relaxed);
        crash_point!("overlap:active");
        self.publish(Event::of(now_ns, self.own_slot.slot(), EventKind::Active));
    }

    /// Publishes how much work others may queue ahead of this process. If that is everything, those that are held back look again.
    pub fn publish_tolerance(&self, tolerance: Tolerance) {
        let word = tolerance.to_word();
        self.words.tolerance.store(word, Ordering::Relaxed);
        if tolerance.is_all() {
            self.device.wake_held_back();
        }
    }

    /// Returns true while this process is active or held back.
    pub fn is_active(&self) -> bool {
        matches!(self.words.lock_state.load(Ordering::Relaxed), ACTIVE | BACK)
    }

    /// Ends the activity when the work is done and nothing more was submitted. Wakes the processes that were held back.
    pub fn end_activity(&self, now_ns: u64) {
        if !self.is_active() {
            return;
        }
        self.go_on(now_ns);
        self.keep_active(now_ns);
        let since = self.words.lock_since.load(Ordering::Relaxed);
        let (mean, lasted) = (&self.words.activity_ns, now_ns.saturating_sub(since));
        let known = mean.load(Ordering::Relaxed);
        mean.store(known - known / 8 + lasted / 8, Ordering::Relaxed);
        self.words.lock_state.store(IDLE, Ordering::Relaxed);
        crash_point!("overlap:resting");
        self.device.rest(self.own_slot.slot());
        self.device
            .floor
            .fetch_max(self.words.vtime.load(Ordering::Relaxed), Ordering::Relaxed);
        self.publish(Event {
            arg0: now_ns.saturating_sub(since),
            ..Event::of(now_ns, self.own_slot.slot(), EventKind::Rest)
        });
    }

    /// Refreshes the pulse of an active process, at least four times a second, and charges its time, unless it is charged
    /// [by its work](Self::charge_work). Time that several processes used together is charged to each in equal parts, because
    /// the device divides it so.
    pub fn keep_active(&self, now_ns: u64) {
        self.words.pulse_ns.store(now_ns, Ordering::Relaxed);
        let from = self.words.charged_ns.swap(now_ns, Ordering::Relaxed);
        let submits = match self.words.lock_state.load(Ordering::Relaxed) {
            ACTIVE => true,
            BACK => self.trickles().load(Ordering::Relaxed) != 0,
            _ => false,
        };
        if !submits || self.is_charged_by_work() {
            return;
        }
        let users = 1 + self.others(now_ns).filter(|other| other.submits()).count() as u64;
        let charged = now_ns.saturating_sub(from).min(CHARGE_NS) / users;
        self.words.charge(charged, from, self.own_slot.pace());
    }

    /// Records that this process has work on the device though it is held back: that is charged too.
    pub fn trickle(&self, now_ns: u64) {
        let trickles = self.trickles();
        if trickles.load(Ordering::Relaxed) == 0 {
            self.keep_active(now_ns);
            trickles.store(1, Ordering::Relaxed);
        }
    }

    /// Charges what has trickled: now the process submits as it likes, or its work is done.
    pub fn end_trickle(&self, now_ns: u64) {
        if self.trickles().load(Ordering::Relaxed) != 0 {
            self.keep_active(now_ns);
            self.trickles().store(0, Ordering::Relaxed);
        }
    }

    fn trickles(&self) -> &AtomicU32 {
        &self.own_slot.cached_limits(self.entry).trickles
    }

    /// Returns true if another process may make this one hold back now or soon. The process then keeps little work queued.
    pub fn may_have_to_hold_back(&self, now_ns: u64) -> bool {
        let share = self.own_slot.share();
        share.cap.is_some()
            || self.gang_is_elsewhere() && self.others(now_ns).next().is_some()
            || match self.order() {
                Order::Fair => self.others(now_ns).next().is_some(),
                Order::Priority => self.among(self.members(), now_ns).any(|other| {
                    other.share.priority > share.priority && !self.mps_sees_to(&other)
                }),
                // The other orders speak of turns.
                _ => false,
            }
    }

    /// Returns the place of this process among those that use the device, under `order=priority`; `None` if it has none of these, or
    /// if the one that goes first was not active for a while: a process that the library is not in would gain by a short slice of
    /// this one. With `is_long` this process's submissions are too long to be several others'.
    pub fn precedence(&self, is_long: bool, now_ns: u64) -> Option<Precedence> {
        if self.order() != Order::Priority {
            return None;
        }
        let waits_for_it = |words: &DeviceEntry| {
            Tolerance::of_word(words.tolerance.load(Ordering::Relaxed)) == Tolerance::default()
        };
        let mine = self.own_slot.share().priority;
        let uses_it = |other: &Other<'_>| {
            let submitted = &other.entry.counters.last_submit_ns;
            other.entry.used.load(Ordering::Relaxed) != 0 || submitted.load(Ordering::Relaxed) != 0
        };
        let is_in_use = |words: &DeviceEntry| {
            let pulse_ns = words.pulse_ns.load(Ordering::Relaxed);
            pulse_ns != 0 && now_ns.saturating_sub(pulse_ns) <= IN_USE_NS
        };
        // Without a long slice of its own (a client of MPS, a program with several devices) it would wait for those of the others.
        let can_wait = |words: &DeviceEntry| {
            let slice = CardSlice::of(words.card_slice.load(Ordering::Relaxed));
            slice.is_long() && words.is_active_for_long(now_ns)
        };
        let others = self.among(self.members(), now_ns).filter(uses_it);
        let others: Vec<_> = others.collect();
        let several = others.iter().filter(|other| is_in_use(other.entry)).count() > 1;
        let highest = others.iter().max_by_key(|other| other.share.priority)?;
        let is_highest = |other: &&Other<'_>| other.share.priority == highest.share.priority;
        let first = match highest.share.priority.cmp(&mine) {
            Less => self.words,
            Equal => return None,
            Greater if others.iter().filter(is_highest).count() > 1 => return None,
            Greater => highest.entry,
        };
        let place = match (waits_for_it(first), std::ptr::eq(first, self.words)) {
            (true, true) => Precedence::First,
            (true, false) if others.len() == 1 => Precedence::Second,
            (_, true) if several => Precedence::Among,
            (_, false) if several && !is_long && can_wait(first) => Precedence::Among,
            _ => return None,
        };
        is_in_use(first).then_some(place)
    }

    /// Returns true if a process sleeps, perhaps until this one's activity ends.
    pub fn is_listened_to(&self) -> bool {
        bell::has_listener(&self.device.activity)
    }

    /// Returns true if a process is held back, perhaps by this one.
    pub fn holds_others_back(&self) -> bool {
        let is_back = |other: Other<'_>| other.entry.lock_state.load(Ordering::Relaxed) == BACK;
        self.is_listened_to() || self.others(clock::now()).any(is_back)
    }

    /// Returns the reason that this process may not submit now, or would not after `waited_ns` of holding back. `ahead_ns` is
    /// the time that it may use the device beyond the others' share.
    pub fn held_back_by(&self, ahead_ns: u64, waited_ns: u64, now_ns: u64) -> Option<HeldBack> {
        // A process pauses once it is well above its cap, and then until it is not: after each short pause its device would be empty.
        let above_ns = match self.held_back_for(now_ns) {
            0 => stats::DEBT_NS,
            _ => 0,
        };
        if self.own_slot.may_be_held_back()
            && !self.is_eligible_above(above_ns, now_ns)
            && !self.is_rested(waited_ns)
        {
            return Some(HeldBack {
                by: None,
                tolerance: None,
                with_gang: false,
                least_ns: u64::MAX,
            });
        }
        if waited_ns >= STARVED_NS || self.in_untrusted_fallback() {
            return None;
        }
        let share = self.own_slot.share();
        let steps = i64::try_from(waited_ns / AGE_NS).unwrap_or(i64::MAX);
        let rank = i64::from(share.priority).saturating_add(steps);
        let mine = self.words.vtime.load(Ordering::Relaxed);
        let allowed = stats::virtual_ns(ahead_ns, share.weight);
        let held = match self.order() {
            Order::Priority => self.held_back_by_rank(rank, now_ns),
            Order::Fair => self.held_back_by_share(mine, allowed, now_ns),
            _ => None,
        };
        held.or_else(|| self.held_back_with_gang(now_ns))
    }

    /// Returns the hold-back for the process that is furthest behind, if that is more than `allowed`, or for one that measures
    /// its work.
    fn held_back_by_share(&self, mine: u64, allowed: u64, now_ns: u64) -> Option<HeldBack> {
        let (by, least_ns) = match self.measurer(now_ns) {
            Some(measurer) if measurer.to_word() == self.me => return None,
            Some(measurer) => (measurer, u64::MAX),
            None => {
                let theirs = |other: &Other<'_>| other.entry.vtime.load(Ordering::Relaxed);
                let submit = self.others(now_ns).filter(Other::submits);
                let least = submit.min_by_key(theirs)?;
                let behind = mine.checked_sub(theirs(&least).saturating_add(allowed))?;
                (least.id, stats::held_ns(behind, least.share.weight))
            }
        };
        (least_ns > 0).then_some(HeldBack {
            by: Some(by),
            tolerance: None,
            with_gang: false,
            least_ns,
        })
    }

    /// Returns the hold-back for processes above `rank`. What they tolerate together is for all processes below in equal parts.
    fn held_back_by_rank(&self, rank: i64, now_ns: u64) -> Option<HeldBack> {
        let (mut by, mut tolerance, mut below) = (None, None::<Tolerance>, 1);
        for other in self.others(now_ns) {
            if i64::from(other.share.priority) <= rank || self.mps_sees_to(&other) {
                below += 1;
                continue;
            }
            let theirs = Tolerance::of_word(other.entry.tolerance.load(Ordering::Relaxed));
            if theirs.is_all() {
                continue;
            }
            tolerance = Some(tolerance.map_or(theirs, |known| known.least(theirs)));
            by = by.or(Some(other.id));
        }
        tolerance.map(|tolerance| HeldBack {
            by,
            tolerance: Some(Tolerance {
                together_us: tolerance.together_us / below,
                ..tolerance
            }),
            with_gang: false,
            least_ns: u64::MAX,
        })
    }

    /// Returns the time until a process that goes first and tolerates everything now probably waits for the device, in nanoseconds,
    /// as the part of it that the queue of this process may take; `None` if there is no such process.
    pub fn time_beside(&self, now_ns: u64) -> Option<u64> {
        if self.order() != Order::Priority {
            return None;
        }
        let priority = self.own_slot.share().priority;
        let (mut first, mut others) = (None::<u64>, 1);
        for other in self.others(now_ns) {
            others += 1;
            let theirs = Tolerance::of_word(other.entry.tolerance.load(Ordering::Relaxed));
            if other.share.priority > priority && theirs.is_all() {
                let left = theirs.left_ns(now_ns);
                first = Some(first.map_or(left, |known| known.min(left)));
            }
        }
        first.map(|left| left / others)
    }

    /// Returns true if MPS itself gives that process's kernels precedence. To hold back would then only cost time.
    fn mps_sees_to(&self, other: &Other<'_>) -> bool {
        self.own_slot
            .cached_limits(self.entry)
            .mps
            .load(Ordering::Relaxed)
            == codec::MPS_BELOW
            && other.entry.mps.load(Ordering::Relaxed) == codec::MPS
    }

    /// Returns true if we have paused for longer than our cap can require, which means that another tenant wrote over our
    /// account.
    fn is_rested(&self, waited_ns: u64) -> bool {
        let share = self.own_slot.share();
        let most = |cap: u32| CHARGE_NS.saturating_mul(100) / u64::from(cap.max(1));
        let brokered = self.own_slot.segments().is_brokered();
        brokered && !share.paused && share.cap.is_none_or(|cap| waited_ns > most(cap))
    }

    /// Returns the hold-back that a member shares with its gang. Its kernels on this device would only wait for the member that
    /// is held back elsewhere, so it leaves the device to the processes that use it.
    fn held_back_with_gang(&self, now_ns: u64) -> Option<HeldBack> {
        if !self.is_mate_held_back(now_ns) {
            return None;
        }
        let mut others = self.others(now_ns);
        let other = others.find(|other| other.submits() && !self.is_of_our_gang(other.slot))?;
        Some(HeldBack {
            by: Some(other.id),
            tolerance: None,
            with_gang: true,
            least_ns: u64::MAX,
        })
    }

    /// Returns true if this process has been held back for so long that it may go on for a moment.
    pub fn has_waited_enough(&self, ahead_ns: u64, now_ns: u64) -> bool {
        let waited = self.held_back_for(now_ns);
        self.held_back_by(ahead_ns, waited, now_ns).is_none()
    }

    /// Holds back until no process requires it any more, this one has waited long enough, `most_ns` have passed, or `give_up`
    /// returns true. It is called at each wake-up, at most 20 ms apart. A second call continues the same wait;
    /// [`go_on`](Self::go_on) ends it. A short wait asks no process to wake this one, which would cost that process a system
    /// call.
    pub fn hold_back(&self, ahead_ns: u64, most_ns: u64, give_up: &dyn Fn() -> bool) {
        let came = clock::now();
        let mut looked = came;
        let listens = most_ns > NAP_NS;
        loop {
            // Before the look: a later change changes this word too, and the sleep ends.
            let seen = match listens {
                true => bell::listen(&self.device.activity),
                false => self.device.activity.load(Ordering::Relaxed),
            };
            let now = clock::now();
            let waited = self.held_back_for(now);
            let by = self.held_back_by(ahead_ns, waited, now);
            let left = most_ns.saturating_sub(now.saturating_sub(came));
            let Some(by) = by.filter(|_| left > 0 && !give_up()) else {
                return;
            };
            let word = by.by.map(SlotId::to_word);
            self.publish_held_back(!by.with_gang);
            if self.hold_back_timer().lasts(now).is_none() {
                self.hold_back_timer().begin(now);
                self.keep_active(now);
                let since = self.words.lock_since.swap(now, Ordering::Relaxed);
                self.words.lock_state.store(BACK, Ordering::Relaxed);
                self.publish(Event {
                    arg0: now.saturating_sub(since),
                    arg1: word.unwrap_or(0),
                    ..Event::of(now, self.own_slot.slot(), EventKind::Back)
                });
            }
            self.words.pulse_ns.store(now, Ordering::Relaxed);
            self.words
                .blame(word.unwrap_or(0), now.saturating_sub(looked));
            looked = now;
            let activity = (&self.device.activity, seen);
            let poll_ns = by.least_ns.clamp(NAP_NS, POLL_NS).min(left);
            let keeper = word.filter(|_| listens);
            match keeper.and_then(|word| keeper_of(self.own_slot.segments().state(), word)) {
                Some(keeper) => futex::wait_any([activity, keeper], poll_ns),
                None => futex::wait(activity.0, activity.1, (POLL_NS / 10).min(poll_ns)),
            }
        }
    }

    /// For how long this process has been held back.
    pub fn held_back_for(&self, now_ns: u64) -> u64 {
        self.hold_back_timer().lasts(now_ns).unwrap_or(0)
    }

    fn hold_back_timer(&self) -> &HoldBackTimer {
        &self.own_slot.cached_limits(self.entry).hold_back_timer
    }

    /// Is held back no more, if it was.
    pub fn go_on(&self, now_ns: u64) {
        self.end_trickle(now_ns);
        let Some(waited) = self.hold_back_timer().lasts(now_ns) else {
            return;
        };
        let starved_ns = self.hold_back_timer().end(now_ns, STARVED_NS);
        if starved_ns > 0 && self.is_wronged(starved_ns, now_ns) {
            self.untrusted_fallback().begin(now_ns);
            self.temper(self.least_of_the_active(now_ns));
            self.device.violations.fetch_add(1, Ordering::Relaxed);
        }
        self.words.count_wait(waited);
        self.words.charged_ns.store(now_ns, Ordering::Relaxed);
        self.words.lock_since.store(now_ns, Ordering::Relaxed);
        self.words.lock_state.store(ACTIVE, Ordering::Relaxed);
        self.publish_held_back(false);
        self.publish(Event {
            arg0: waited,
            ..Event::of(now_ns, self.own_slot.slot(), EventKind::Active)
        });
    }

    /// Returns true if we were held back for longer than the order allows, given the settings and the registry. Another tenant
    /// then writes over the accounts. Only `fair` has such a bound: a process that is ahead waits until the others have had as
    /// much.
    fn is_wronged(&self, waited_ns: u64, now_ns: u64) -> bool {
        let PolicyKind::Overlap(Some(ahead_ns)) = self.policy().kind else {
            return false;
        };
        let segments = self.own_slot.segments();
        if !segments.is_brokered() || self.order() != Order::Fair {
            return false;
        }
        let (mut users, mut heaviest) = (1_u64, 1);
        for other in self.among(self.members(), now_ns) {
            if segments.is_current(other.id) {
                users += 1;
                heaviest = heaviest.max(other.share.weight);
            }
        }
        let turn = (ahead_ns + CHARGE_NS).saturating_mul(2 * users);
        let weight = u64::from(self.own_slot.share().weight.max(1));
        waited_ns > turn.saturating_mul(u64::from(heaviest)) / weight
    }

    /// The slots of the other processes that have entered this device.
    pub(super) fn others_here(&self) -> impl Iterator<Item = &Slot> {
        let (at, bit) = self.own_slot.slot().bit();
        let mut bits = self.members();
        bits[at] &= !bit;
        let state = self.own_slot.segments().state();
        waiters(state, self.index, &bits).map(|(_, slot, _)| slot)
    }

    fn members(&self) -> [u64; BITMAP] {
        std::array::from_fn(|at| self.device.members[at].load(Ordering::Relaxed))
    }

    /// The other processes that are active, alive and not stopped.
    fn others(&self, now_ns: u64) -> impl Iterator<Item = Other<'_>> {
        self.among(self.device.active_bits(), now_ns)
            .filter(move |other| {
                let pulse = other.entry.pulse_ns.load(Ordering::Relaxed);
                now_ns.abs_diff(pulse) <= PULSE_NS && !other.share.paused
            })
    }

    fn among(&self, mut bits: [u64; BITMAP], now_ns: u64) -> impl Iterator<Item = Other<'_>> {
        let (at, bit) = self.own_slot.slot().bit();
        bits[at] &= !bit;
        let segments = self.own_slot.segments();
        waiters(segments.state(), self.index, &bits)
            .filter(|(_, slot, _)| liveness::mark_of(&slot.keeper) != Mark::Dead)
            .map(move |(id, slot, entry)| Other {
                id,
                slot,
                entry,
                share: self.share_of(id, slot, now_ns),
            })
    }

    fn least_of_the_active(&self, now_ns: u64) -> Option<u64> {
        self.others(now_ns)
            .map(|other| other.entry.vtime.load(Ordering::Relaxed))
            .min()
    }
}

/// Another process on the device.
struct Other<'s> {
    id: SlotId,
    slot: &'s Slot,
    entry: &'s DeviceEntry,
    share: Share,
}

impl Other<'_> {
    /// Returns true if the process uses the device now.
    fn submits(&self) -> bool {
        self.entry.lock_state.load(Ordering::Relaxed) == ACTIVE
    }
}

#[cfg(test)]
mod tests;
