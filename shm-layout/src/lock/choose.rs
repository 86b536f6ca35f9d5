//! The order of waiters: which one gets the lock next, and the hand-off to it, also on behalf of processes that cannot do it
//! themselves.
//!
//! * `fifo`: the process that has waited longest.
//! * `priority`: the highest priority, where every [`AGE_NS`] of waiting counts as one step, so no process starves.
//! * `fair`: the least virtual time, which is time held over weight. A newcomer starts at the least of the active, so it gets
//!   no credit for the time it was away. A process that waits again at once was not away: it keeps the part of its last turn
//!   that it did not use, up to half that turn. So shares follow the weights although a turn ends only at whole kernels.
//! * `shortest`: the least mean hold, less an eighth of the time waited. Many short jobs then pass a few long ones, and a long
//!   one starves no longer than eight times its mean hold. A newcomer counts as short until it has held. A hold that grows
//!   longer than the mean of the waiters ends in their favour.

use super::{
    DeviceLock, PULSE_NS, entry_of, entry_on,
    gang::{CREDIT, Call},
    order::Standing,
    slot_of, waiters,
};
use crate::{
    cached_settings::Shares,
    layout::{
        codec::DeviceSettings,
        state::{DeviceEntry, Slot, State},
    },
    os::{
        futex,
        liveness::{self, Mark},
    },
    protocol::{
        crash::crash_point,
        primitive::Ordering,
        turn::{BITMAP, Passed, who},
    },
    segment::Segments,
    value::{Event, EventKind, LockPolicy, Order, Reason, Share, SlotId},
};

/// A process that may have the lock next, or has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) word: u64,
    /// Less is better.
    rank: i128,
    since_ns: u64,
    /// The candidate's virtual time; for a holder the present hold counts too.
    pub(super) vtime: u64,
    pub(super) priority: i32,
    /// Set if another member of the candidate's gang has its turn on another device.
    pub(super) call: Option<Call>,
}

impl Candidate {
    /// Returns true if this candidate deserves the lock at least as much as its holder.
    pub(crate) fn beats(&self, holder: &Candidate) -> bool {
        self.rank <= holder.rank
    }

    /// Returns true if this candidate's gang calls it and the call comes before `other`, which would be next by rank.
    pub(crate) fn is_called_before(
        &self,
        other: &Candidate,
        policy: &LockPolicy,
        hold_limit: u64,
    ) -> bool {
        let credit = CREDIT * hold_limit;
        self.call.is_some()
            && self.vtime <= other.vtime.saturating_add(credit)
            && (policy.order != Order::Priority || self.priority >= other.priority)
    }
}

/// Returns the best of the eligible waiters, except `but` (an owner whose lock is being forced away).
pub(crate) fn best(
    segments: &Segments,
    shares: &mut Shares,
    device: usize,
    bits: &[u64; BITMAP],
    policy: &LockPolicy,
    but: u64,
    now_ns: u64,
) -> Option<Candidate> {
    let order = policy.order;
    let (mut best, mut called): (Option<Candidate>, Option<Candidate>) = (None, None);
    for (id, slot, entry) in waiters(segments.state(), device, bits) {
        if id.to_word() == but {
            continue;
        }
        let Some(share) = takes_part(segments, shares, id, slot, entry, now_ns) else {
            continue;
        };
        let since_ns = entry.lock_since.load(Ordering::Relaxed);
        let rank = rank(order, entry, &share, since_ns, now_ns);
        let candidate = Candidate {
            word: id.to_word(),
            rank,
            since_ns,
            vtime: entry.vtime.load(Ordering::Relaxed),
            priority: share.priority,
            call: Call::of(segments.state(), (id, slot), device, policy, now_ns),
        };
        if best.is_none_or(|best| (candidate.rank, candidate.since_ns) < (best.rank, best.since_ns))
        {
            best = Some(candidate);
        }
        let began = |of: &Candidate| of.call.map_or(u64::MAX, |call| call.since_ns);
        if candidate.call.is_some() && called.is_none_or(|it| began(&candidate) < began(&it)) {
            called = Some(candidate);
        }
    }
    match (best, called) {
        (Some(best), Some(called))
            if called.is_called_before(&best, policy, segments.hold_limit(policy)) =>
        {
            Some(called)
        }
        _ => best,
    }
}

/// The share of a waiter that may have the lock now: it looks, it lives, it is neither paused nor over its cap.
pub(super) fn takes_part(
    segments: &Segments,
    shares: &mut Shares,
    id: SlotId,
    slot: &Slot,
    entry: &DeviceEntry,
    now_ns: u64,
) -> Option<Share> {
    // A time in the future is invalid: another tenant wrote it. A real waiter polls again in a moment and corrects it.
    let stale = now_ns.abs_diff(entry.pulse_ns.load(Ordering::Relaxed)) > PULSE_NS;
    if stale || liveness::mark_of(&slot.keeper) == Mark::Dead {
        return None;
    }
    let share = shares.share_of(segments, id, slot, now_ns);
    let capped = super::stats::is_used_up(entry, share.cap, now_ns);
    (!share.paused && !capped).then_some(share)
}

/// Returns the figures of an entry from which its rank follows.
fn standing(entry: &DeviceEntry, share: &Share) -> Standing {
    Standing {
        vtime: entry.vtime.load(Ordering::Relaxed),
        held_ns: entry.held_ns.load(Ordering::Relaxed),
        turns: entry.acquisitions.load(Ordering::Relaxed),
        weight: share.weight,
        priority: share.priority,
    }
}

/// Computes a waiter's rank: the least is served first.
pub(super) fn rank(
    order: Order,
    entry: &DeviceEntry,
    share: &Share,
    since_ns: u64,
    now_ns: u64,
) -> i128 {
    standing(entry, share).of_waiter(order, since_ns, now_ns)
}

/// Computes the rank of a holder that goes on holding for `ahead_ns` more.
pub(crate) fn holder(
    word: u64,
    entry: &DeviceEntry,
    share: &Share,
    order: Order,
    now_ns: u64,
    ahead_ns: u64,
) -> Candidate {
    let since_ns = entry.lock_since.load(Ordering::Relaxed);
    let held_ns = entry.charged(since_ns, now_ns);
    let spent = share
        .cap
        .is_some_and(|cap| entry.cap_left(cap, since_ns, now_ns) == 0);
    let standing = standing(entry, share);
    Candidate {
        word,
        rank: standing.of_holder(order, held_ns, ahead_ns, share.paused || spent),
        since_ns,
        vtime: standing.vtime_after(held_ns),
        priority: share.priority,
        call: None,
    }
}

/// Returns the least virtual time of the processes that hold or wait and may have the lock; `None` if there are none.
pub(crate) fn least_active(
    segments: &Segments,
    shares: &mut Shares,
    device_index: usize,
    me: u64,
    now_ns: u64,
) -> Option<u64> {
    let state = segments.state();
    let device = &state.devices[device_index];
    let turn = device.turn();
    let waiting = waiters(state, device_index, &turn.waiting())
        .filter(|(id, slot, entry)| {
            id.to_word() != me && takes_part(segments, shares, *id, slot, entry, now_ns).is_some()
        })
        .map(|(_, _, entry)| entry.vtime.load(Ordering::Relaxed))
        .min();
    let owner = turn.owner();
    let holding = slot_of(state, owner)
        .filter(|_| who(owner) != me)
        .and_then(|(id, slot)| {
            let entry = entry_on(slot, device_index)?;
            let share = shares.share_of(segments, id, slot, now_ns);
            let held = entry.charged(device.owner_since.load(Ordering::Relaxed), now_ns);
            Some(standing(entry, &share).vtime_after(held))
        });
    waiting.into_iter().chain(holding).min()
}

/// A waiter other than the one whose turn it is.
pub(crate) fn someone_else(state: &State, device: usize, next: u64) -> Option<&DeviceEntry> {
    let bits = state.devices[device].turn().waiting();
    waiters(state, device, &bits)
        .find(|(id, slot, _)| id.to_word() != next && liveness::mark_of(&slot.keeper) != Mark::Dead)
        .map(|(_, _, entry)| entry)
}

impl DeviceLock<'_> {
    /// The share of a process.
    pub(super) fn share_of(&self, id: SlotId, slot: &Slot, now_ns: u64) -> Share {
        self.own_slot
            .shares()
            .share_of(self.own_slot.segments(), id, slot, now_ns)
    }

    /// Returns the waiter that gets the lock next. The waiter `but` is left out.
    pub(super) fn best_waiter(&self, but: u64, now_ns: u64) -> Option<Candidate> {
        let policy = self.policy();
        let mut shares = self.own_slot.shares();
        let bits = self.device.turn().waiting();
        best(
            self.own_slot.segments(),
            &mut shares,
            self.index,
            &bits,
            &policy,
            but,
            now_ns,
        )
    }

    /// Computes the rank of an owner that goes on holding for `ahead_ns` more.
    pub(super) fn holder(&self, owner: u64, now_ns: u64, ahead_ns: u64) -> Candidate {
        let order = self.order();
        let segments = self.own_slot.segments();
        let found = slot_of(segments.state(), owner);
        let share = found.map(|(id, slot)| self.share_of(id, slot, now_ns));
        let entry = found.and_then(|(_, slot)| entry_on(slot, self.index));
        holder(
            owner,
            entry.unwrap_or(self.words),
            &share.unwrap_or_default(),
            order,
            now_ns,
            ahead_ns,
        )
    }
}

/// Passes the turn of `from` (the caller's, an evicted owner's, or none) to the best waiter, and wakes it.
pub(super) fn pass(
    segments: &Segments,
    device_index: usize,
    from: u64,
    mut best: impl FnMut(&[u64; BITMAP]) -> Option<Candidate>,
) -> Passed {
    let state = segments.state();
    let device = &state.devices[device_index];
    let passed = device
        .turn()
        .pass(from, |bits| best(bits).map(|candidate| candidate.word));
    crash_point!("pass:swapped");
    let Passed::To(next) = passed else {
        return passed;
    };
    if let Some(entry) = entry_of(state, next, device_index) {
        // ORDER: Release pairs with the futex wait's look at the word; the new owner word is visible before it.
        entry.grant.fetch_add(1, Ordering::Release);
        futex::wake(&entry.grant, i32::MAX);
        // No process waits for this step, so it follows the wake-up.
        device
            .floor
            .fetch_max(entry.vtime.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    device.handoffs.fetch_add(1, Ordering::Relaxed);
    crash_point!("pass:woken");
    // One waiter has to sleep on the new owner's robust word: see the module's docs.
    if let Some(watcher) = someone_else(state, device_index, next) {
        // ORDER: Release as above. Changed, so that a process that looked before the hand-off does not fall asleep on the last
        // owner's word.
        watcher.grant.fetch_add(1, Ordering::Release);
        futex::wake(&watcher.grant, i32::MAX);
    }
    passed
}

/// Wakes every waiter, because the operator changed something.
pub(crate) fn nudge_waiters(state: &State) {
    for (index, device) in state.devices.iter().enumerate() {
        device.wake_held_back();
        let bits = device.turn().waiting();
        for (_, _, entry) in waiters(state, index, &bits) {
            // ORDER: Release, behind the generation: a process that this wakes sees the edit.
            entry.grant.fetch_add(1, Ordering::Release);
            futex::wake(&entry.grant, i32::MAX);
        }
    }
}

/// Takes a slot that leaves (or is dead) out of a device's queue, and passes its turn on.
pub(crate) fn withdraw(
    segments: &Segments,
    id: SlotId,
    device_index: usize,
    reason: Reason,
    now_ns: u64,
) {
    let device = &segments.state().devices[device_index];
    device.rest(id);
    let turn = device.turn();
    turn.leave(usize::from(id.index));
    let word = id.to_word();
    let owner = turn.owner();
    if who(owner) != word {
        return;
    }
    turn.evict(owner);
    device.passed_ns.store(now_ns, Ordering::Relaxed);
    let settings =
        |settings: Option<DeviceSettings>| settings.and_then(|settings| settings.policy.at(now_ns));
    let control = segments.control();
    let known = segments.device(device_index);
    let own = known.and_then(|(_, uuid)| settings(control.device_settings(&uuid)));
    let policy = own.or(settings(control.common_settings()));
    let policy = policy.unwrap_or_default();
    let mut shares = Shares::default();
    let passed = pass(segments, device_index, owner, |bits| {
        best(
            segments,
            &mut shares,
            device_index,
            bits,
            &policy,
            word,
            now_ns,
        )
    });
    let next = match passed {
        // A later owner has been there since when it says.
        Passed::Moved => return,
        Passed::Free => 0,
        Passed::To(next) => next,
    };
    device.owner_since.store(now_ns, Ordering::Relaxed);
    let kind = if reason == Reason::Exit {
        EventKind::Release(Reason::Exit)
    } else {
        EventKind::Takeover
    };
    if kind == EventKind::Takeover {
        device.takeovers.fetch_add(1, Ordering::Relaxed);
    }
    segments.state().publish(Event {
        device: device_index as u8,
        arg1: next,
        ..Event::of(now_ns, id, kind)
    });
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            order::AGE_NS,
            tests::pair::{MS, pair, slices},
        },
        *,
    };
    use crate::{Identity, LaunchLimits, os::clock, register};

    const S: u64 = 1000 * MS;

    /// Returns the rank of a holder with this share that has held for a second.
    fn rank_of(share: &Share, order: Order, spent: bool) -> i128 {
        let (_dir, process, _other, entry) = pair(slices());
        let words = process.lock(entry).words;
        let now = clock::now() + 100 * S;
        words.lock_since.store(now - S, Ordering::Relaxed);
        words.vtime.store(7 * S, Ordering::Relaxed);
        words.held_ns.store(5 * S, Ordering::Relaxed);
        words.acquisitions.store(3, Ordering::Relaxed);
        if spent {
            words.cap_until.store(now + S, Ordering::Relaxed);
        }
        holder(1, words, share, order, now, S / 2).rank
    }

    #[test]
    fn a_holder_that_is_paused_or_has_spent_its_cap_deserves_it_least() {
        let share = Share::default();
        let paused = Share {
            paused: true,
            ..share
        };
        let capped = Share {
            cap: Some(50),
            ..share
        };
        for order in Order::ALL {
            let rank = |share, spent| rank_of(share, order, spent);
            assert_eq!(rank(&paused, false), i128::MAX, "{order:?}");
            assert_eq!(rank(&capped, true), i128::MAX, "{order:?}");
            assert_eq!(rank(&share, true), rank(&share, false), "no cap, {order:?}");
            let goes_on = rank(&capped, false);
            assert_eq!(goes_on, rank(&share, false), "within its cap, {order:?}");
        }
    }

    #[test]
    fn a_holder_deserves_it_by_what_it_will_have_had() {
        let share = Share {
            priority: 3,
            weight: 200,
            ..Share::default()
        };
        let rank = |order| rank_of(&share, order, false);
        assert_eq!(rank(Order::Fifo), i128::MAX);
        assert_eq!(rank(Order::Priority), -3 * i128::from(AGE_NS));
        // A second and a half more, at twice the common weight.
        assert_eq!(rank(Order::Fair), i128::from(7 * S + 750 * MS));
        // The mean of three holds with the second under way, which is more than that second and a half.
        assert_eq!(rank(Order::Shortest), i128::from(2 * S));
    }

    /// Else a death of the new owner would be seen at a waiter's next look, and not at once.
    #[test]
    fn a_hand_off_makes_another_waiter_look_at_the_new_owner() {
        let (dir, holder, first, entry) = pair(slices());
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let (identity, limits) = (Identity::default(), LaunchLimits::default());
        let second = register(&segments, &identity, &limits).expect("a slot");
        let second_entry = second.add_device([1; 16], 0, "", 1, 0).expect("an entry");
        let start = clock::now();
        assert!(holder.lock(entry).try_acquire(start));
        let waiters = [first.lock(entry), second.lock(second_entry)];
        for waiter in &waiters {
            waiter.enqueue(start);
        }
        let grants = || waiters.map(|waiter| waiter.words.grant.load(Ordering::Relaxed));
        let before = grants();
        let next = holder.lock(entry).release(Reason::Slice, start + 1);
        assert_eq!(next, Some(first.slot()));
        let after = grants();
        assert!(before[0] != after[0] && before[1] != after[1], "{after:?}");
    }
}
