//! Gangs: the processes of one job, whose kernels wait for each other.
//!
//! A rank that has its turn on one device computes nothing while another rank waits for its turn on another device: the
//! kernel of a collective runs there and waits. So under `timeslice` the members of a gang have their turns together:
//!
//! * **They begin together.** While a member has its turn on one device, another that waits on a second one is the next there
//!   ([`Call`]), and the holder there yields at once ([`DeviceLock::is_called`]).
//! * **They end together.** A turn lasts one slice, counted from the arrival of the last member ([`DeviceLock::turn_since`]).
//!   Then all stop, drain, and hand over when all have drained ([`DeviceLock::mates`], [`Ending`]).
//! * **No process starves.** A call passes over a process that has had less of the device by two slices, one of higher
//!   priority, and the turn of a gang that began earlier. It ends after `grace`: a gang that cannot be brought together by then
//!   runs as single processes do.
//!
//! Under `overlap` a gang holds back as one: while a member is held back on one device ([`DeviceLock::publish_held_back`]), the
//! others hold back where processes beside them have work.
//!
//! All of it follows from words that exist for other reasons: the owner of each device's turn, and each slot's gang. So a
//! member that dies leaves nothing behind, and a word that is read late costs a moment and breaks nothing.

use super::{BACK, DeviceLock, HOLDS, PULSE_NS, entry_on, slot_of, waiters};
use crate::{
    layout::state::{DeviceEntry, Slot, State},
    os::{
        futex,
        liveness::{self, Mark},
    },
    protocol::{bell, primitive::Ordering, turn::who},
    value::{LockPolicy, PolicyKind, SlotId},
};

/// Number of slices by which a process may be behind a gang for the gang's call to still go first.
pub(super) const CREDIT: u64 = 2;

/// Value of the word `ending` under `overlap`: the process is held back.
const HELD_BACK: u64 = 3;

/// Progress of a turn towards its end, as a member publishes it to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Ending {
    /// The turn goes on.
    Not,
    /// The process submits nothing more; some of its work still runs.
    Stopped,
    /// All that was submitted is done.
    Drained,
}

/// State of the other members of the gang whose turns are on devices that other processes wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mates {
    /// Some go on.
    pub go_on: bool,
    /// Some have stopped and not drained.
    pub stopped: bool,
    /// Some have stopped, drained or not.
    pub ending: bool,
    /// The most that any of the stopped members has submitted: see [`DeviceLock::publish_ending`].
    pub furthest: u64,
}

/// Shift of the progress in the word `ending`, above the bits of [`Ending`].
const PROGRESS_SHIFT: u32 = 2;

impl Mates {
    /// Returns true if any of them still has work running.
    pub fn are_busy(&self) -> bool {
        self.go_on || self.stopped
    }

    /// Returns true if any member has such a turn.
    pub fn are_there(&self) -> bool {
        self.go_on || self.ending
    }
}

/// The call of a gang to its waiting member: the member goes next, so that the gang runs together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Time when the gang's first turn began.
    pub(crate) since_ns: u64,
}

/// A turn of another member on another device.
struct Turn<'s> {
    device: usize,
    entry: &'s DeviceEntry,
    since_ns: u64,
}

/// Lists the turns of a gang on other devices than this one, except those of one process.
fn turns(state: &State, gang: u64, but: SlotId, here: usize) -> impl Iterator<Item = Turn<'_>> {
    let devices = state.devices.iter().enumerate();
    devices
        .filter(move |(index, _)| gang != 0 && *index != here)
        .filter_map(move |(index, device)| {
            let (id, slot) = slot_of(state, device.turn().owner())?;
            let entry = entry_on(slot, index)?;
            let holds = entry.lock_state.load(Ordering::Relaxed) == HOLDS;
            let ours = slot.gang.load(Ordering::Relaxed) == gang && id != but;
            (ours && holds && liveness::mark_of(&slot.keeper) != Mark::Dead).then(|| Turn {
                device: index,
                entry,
                since_ns: entry.lock_since.load(Ordering::Relaxed),
            })
        })
}

/// The other living members of a gang that are active on other devices, under `overlap`.
fn mates(
    state: &State,
    gang: u64,
    but: SlotId,
    here: usize,
) -> impl Iterator<Item = (usize, &DeviceEntry)> {
    let devices = state.devices.iter().enumerate();
    devices
        .filter(move |(index, _)| gang != 0 && *index != here)
        .flat_map(move |(index, device)| {
            waiters(state, index, &device.active_bits())
                .filter(move |(id, slot, _)| {
                    *id != but
                        && slot.gang.load(Ordering::Relaxed) == gang
                        && liveness::mark_of(&slot.keeper) != Mark::Dead
                })
                .map(move |(_, _, entry)| (index, entry))
        })
}

impl Call {
    /// The call of a waiter, if a member of its gang has its turn on another device and that turn is young enough.
    pub(crate) fn of(
        state: &State,
        waiter: (SlotId, &Slot),
        here: usize,
        policy: &LockPolicy,
        now_ns: u64,
    ) -> Option<Call> {
        let gang = waiter.1.gang.load(Ordering::Relaxed);
        if gang == 0 || !matches!(policy.kind, PolicyKind::Timeslice(_)) {
            return None;
        }
        let first = turns(state, gang, waiter.0, here).map(|turn| turn.since_ns);
        let since_ns = first.min()?;
        (now_ns.saturating_sub(since_ns) <= policy.grace_ns).then_some(Call { since_ns })
    }
}

impl DeviceLock<'_> {
    fn gang(&self) -> u64 {
        self.own_slot.words().gang.load(Ordering::Relaxed)
    }

    fn mates_turns(&self) -> impl Iterator<Item = Turn<'_>> {
        let state = self.own_slot.segments().state();
        turns(state, self.gang(), self.own_slot.slot(), self.index)
    }

    /// Returns true if this holder has to yield before its slice ends, because the gang of a waiter has its turn on other
    /// devices.
    pub fn is_called(&self, now_ns: u64) -> bool {
        if !self.device.turn().has_waiters() {
            return false;
        }
        let Some(best) = self.best_waiter(self.me, now_ns) else {
            return false;
        };
        let (Some(call), Some((_, slot))) = (
            best.call,
            slot_of(self.own_slot.segments().state(), best.word),
        ) else {
            return false;
        };
        let gang = self.gang();
        let began = self.mates_turns().map(|turn| turn.since_ns).min();
        let began = match gang {
            0 => u64::MAX,
            _ => began.unwrap_or(u64::MAX).min(self.held_since()),
        };
        let same = gang != 0 && slot.gang.load(Ordering::Relaxed) == gang;
        let holder = self.holder(self.me, now_ns, 0);
        let (policy, limit) = (self.policy(), self.hold_limit());
        !same && call.since_ns < began && best.is_called_before(&holder, &policy, limit)
    }

    /// Returns how far behind the least virtual time a holder may queue again after a short hold. Without that, a process that
    /// gangs often call away would lose its share for good.
    pub(super) fn kept_short(&self, charged_ns: u64) -> Option<u64> {
        let limit = self.hold_limit();
        (charged_ns < limit && self.may_be_called()).then_some(2 * CREDIT * limit)
    }

    /// Returns true if members of other gangs use this device, so that a call may come at any time.
    pub fn may_be_called(&self) -> bool {
        let gang = self.gang();
        self.others_here().any(|slot| {
            let theirs = slot.gang.load(Ordering::Relaxed);
            theirs != 0 && theirs != gang
        })
    }

    /// Returns the time from which a turn that began at `acquired_ns` counts: the arrival of the gang's last member, but at
    /// most one slice later.
    pub fn turn_since(&self, acquired_ns: u64, slice_ns: u64) -> u64 {
        let last = self.mates_turns().map(|turn| turn.since_ns).max();
        let last = last.unwrap_or(0).max(acquired_ns);
        last.min(acquired_ns.saturating_add(slice_ns))
    }

    /// Returns true if a turn whose slice is over ends together with those of the other members, though no waiter of this
    /// device deserves it more.
    pub fn ends_with_mates(&self) -> bool {
        self.is_waited_for() && self.mates().ending
    }

    /// Collects the state of the other members that have their turns now. Devices that no process waits for are left out: a
    /// member keeps those anyway.
    pub fn mates(&self) -> Mates {
        let state = self.own_slot.segments().state();
        let mut mates = Mates::default();
        for turn in self.mates_turns() {
            if !state.devices[turn.device].turn().has_waiters() {
                continue;
            }
            let word = turn.entry.ending.load(Ordering::Relaxed);
            match word & 3 {
                1 => (mates.stopped, mates.ending) = (true, true),
                2 => mates.ending = true,
                _ => mates.go_on = true,
            }
            if word & 3 != 0 {
                mates.furthest = mates.furthest.max(word >> PROGRESS_SHIFT);
            }
        }
        mates
    }

    /// Publishes to the other members how far this turn has come to its end, and how much this process has submitted since the
    /// members last ended a turn with all drained. Where all run the same program, equal numbers mean equal places in it.
    pub fn publish_ending(&self, ending: Ending, progress: u64) {
        let word = ending as u64 | progress << PROGRESS_SHIFT;
        self.words.ending.store(word, Ordering::Relaxed);
    }

    /// Publishes whether this process is held back on its own account, and not with its gang. When that changes, the other
    /// members look again.
    pub(super) fn publish_held_back(&self, held_back: bool) {
        let gang = self.gang();
        let word = if held_back { HELD_BACK } else { 0 };
        if gang == 0 || self.words.ending.swap(word, Ordering::Relaxed) == word {
            return;
        }
        let state = self.own_slot.segments().state();
        for device in mates(state, gang, self.own_slot.slot(), self.index).map(|(device, _)| device)
        {
            state.devices[device].wake_held_back();
        }
    }

    /// Returns true if another member is held back on another device for its own sake.
    pub(super) fn is_mate_held_back(&self, now_ns: u64) -> bool {
        let state = self.own_slot.segments().state();
        mates(state, self.gang(), self.own_slot.slot(), self.index).any(|(_, entry)| {
            let word = |word: &crate::protocol::primitive::AtomicU64| word.load(Ordering::Relaxed);
            entry.lock_state.load(Ordering::Relaxed) == BACK
                && word(&entry.ending) == HELD_BACK
                && now_ns.abs_diff(word(&entry.pulse_ns)) <= PULSE_NS
        })
    }

    /// Returns true if other members are active on other devices.
    pub(super) fn gang_is_elsewhere(&self) -> bool {
        let state = self.own_slot.segments().state();
        let mut mates = mates(state, self.gang(), self.own_slot.slot(), self.index);
        mates.next().is_some()
    }

    /// Returns true if a process is in our gang.
    pub(super) fn is_of_our_gang(&self, slot: &Slot) -> bool {
        let gang = self.gang();
        gang != 0 && slot.gang.load(Ordering::Relaxed) == gang
    }

    /// Our turn has begun: where a member of our gang waits, the holder's keeper looks whether it is called.
    pub(super) fn call_mates(&self) {
        let gang = self.gang();
        if gang == 0 {
            return;
        }
        let state = self.own_slot.segments().state();
        for (index, device) in state.devices.iter().enumerate() {
            let turn = device.turn();
            if index == self.index || !turn.has_waiters() {
                continue;
            }
            let bits = turn.waiting();
            let mut waiting = waiters(state, index, &bits);
            if waiting.any(|(_, slot, _)| slot.gang.load(Ordering::Relaxed) == gang)
                && who(turn.owner()) != 0
                && bell::strike(&device.arrivals)
            {
                futex::wake(&device.arrivals, i32::MAX);
            }
        }
    }
}
