//! Hand-off of the turn to the next waiter, also on behalf of processes that cannot do it themselves.

use super::{
    choose::{self, Candidate},
    entry_of, waiters,
};
use crate::{
    cached_settings::Shares,
    layout::state::State,
    os::futex,
    protocol::{
        crash::crash_point,
        primitive::Ordering,
        turn::{BITMAP, Passed, who},
    },
    segment::Segments,
    value::{Event, EventKind, Reason, SlotId},
};

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
    if let Some(watcher) = choose::someone_else(state, device_index, next) {
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
    let settings = |settings: Option<crate::layout::codec::DeviceSettings>| {
        settings.and_then(|settings| settings.policy.at(now_ns))
    };
    let control = segments.control();
    let known = segments.device(device_index);
    let own = known.and_then(|(_, uuid)| settings(control.device_settings(&uuid)));
    let policy = own.or(settings(control.common_settings()));
    let policy = policy.unwrap_or_default();
    let mut shares = Shares::default();
    let passed = pass(segments, device_index, owner, |bits| {
        choose::best(
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
    use super::super::tests::pair::{pair, slices};
    use super::*;
    use crate::{Identity, LaunchLimits, Segments, os::clock, register};

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
