//! The end of a turn that other members of the process's gang have too.
//!
//! The members stop at the same time, give or take a moment, and one may have submitted a collective that another has not:
//! then its drain waits for a kernel that cannot come. So those that are behind submit on until they are as far as the first
//! one, by the number of submissions: the members of a gang run the same program. Where that does not help, a member that
//! has drained keeps the device and lets submissions in for a moment while another one does not get done. All hand over
//! when all have drained, or after `grace`.

use shm_layout::{DeviceLock, Ending, Mates, PolicyKind, clock};

use super::{
    drain::Naps,
    gate_of,
    state::{Phase, Turn},
    submitted,
    yielding::Stopped,
};
use crate::{
    guest::{Device, Guest},
    thread,
};

/// A member that has stopped and is not done after this part of a slice may be waiting for another one's kernel.
const STUCK: u64 = 8;
/// For this part of a slice submissions go in again for it, if it is not done before. A member that goes on has looked at
/// its clock by then, and stops or goes on.
const MOMENT: u64 = 5;
/// No members that run the same program are further apart.
const APART: u64 = 10_000;
const NAP: u64 = 30_000;

/// The end of one turn.
struct End<'g> {
    guest: &'g Guest,
    device: &'g Device,
    lock: DeviceLock<'g>,
    slice: u64,
    deadline: u64,
    naps: Naps,
}

impl End<'_> {
    /// Waits while the other members are so, at most for a part of a slice; says how they are then.
    fn wait_while(&mut self, part: u64, so: impl Fn(Mates) -> bool) -> Mates {
        let until = clock::now().saturating_add(self.slice / part);
        let until = until.min(self.deadline);
        loop {
            let mates = self.lock.mates();
            if !so(mates) || clock::now() >= until || self.guest.is_leaving() || !self.lock.held() {
                return mates;
            }
            self.naps.nap(NAP);
        }
    }

    /// What was submitted to the device, with what threads are about to.
    fn position(&self) -> u64 {
        let inside = thread::all().filter(|thread| thread.is_inside(self.device.ordinal));
        submitted(self.device).wrapping_add(inside.count() as u64)
    }
}

impl Turn {
    /// Drains a turn that was stopped, together with those of the other members. Returns it with whether all is done; `None` when
    /// the turn ended meanwhile.
    pub(super) fn drain_together(
        &self,
        guest: &Guest,
        device: &Device,
        mut stopped: Stopped,
    ) -> Option<(Stopped, bool)> {
        let (slice, base) = {
            let state = self.lock();
            (
                guest
                    .registration
                    .segments()
                    .hold_limit(&state.rules.policy),
                state.gang_base,
            )
        };
        let mut end = End {
            guest,
            device,
            lock: guest.registration.lock(device.entry),
            slice,
            deadline: clock::now().saturating_add(stopped.grace_ns),
            naps: Naps::default(),
        };
        let mut first = true;
        loop {
            let progress = end.position().wrapping_sub(base) & (u64::MAX >> 2);
            end.lock.say_ending(Ending::Stopped, progress);
            let mates = end.wait_while(MOMENT, |mates| mates.go_on);
            let behind = mates.furthest.saturating_sub(progress);
            if first && (1..APART).contains(&behind) {
                stopped = self.catch_up_with_mates(&mut end, stopped, behind)?;
                first = false;
                continue;
            }
            let done = stopped.drain_until(guest, device, end.deadline, stopped.overlap_ns);
            self.learn(&end.lock);
            if !done {
                return Some((stopped, false));
            }
            end.lock.say_ending(Ending::Drained, progress);
            let mates = end.wait_while(STUCK, |mates| mates.stopped);
            if !mates.stopped || clock::now() >= end.deadline {
                self.lock().gang_base = submitted(device);
                return Some((stopped, true));
            }
            first = false;
            end.lock.say_ending(Ending::Not, 0);
            self.go_on(device, stopped.pending, false);
            end.wait_while(MOMENT, |mates| mates.stopped);
            stopped = self.stop(device)?;
        }
    }

    /// Lets so many submissions in, and stops again.
    fn catch_up_with_mates(
        &self,
        end: &mut End<'_>,
        stopped: Stopped,
        behind: u64,
    ) -> Option<Stopped> {
        {
            let mut state = self.lock();
            state.pending = stopped.pending;
            state.phase.go_on();
            state.allowance = Some(behind);
            gate_of(end.device).close();
            self.changed.notify_all();
        }
        end.wait_while(1, |_| {
            let state = self.lock();
            state.phase == Phase::Held && state.allowance != Some(0)
        });
        self.stop(end.device)
    }

    /// This process has nothing to do. True if it may give the device up alone: it has no turn of several, or the other
    /// members have nothing to do either.
    pub(super) fn may_rest(&self, lock: &DeviceLock<'_>, device: &Device) -> bool {
        if !self.ends_together(lock) {
            return true;
        }
        let done = self.is_done(device);
        lock.say_ending(if done { Ending::Drained } else { Ending::Not }, 0);
        done && !lock.mates().are_busy()
    }

    /// Whether this turn is one of several that end together: other members have theirs, on devices that are waited for as
    /// this one is.
    pub(super) fn ends_together(&self, lock: &DeviceLock<'_>) -> bool {
        let slices = matches!(self.lock().rules.policy.kind, PolicyKind::Timeslice(_));
        slices && lock.is_waited_for() && lock.mates().are_there()
    }
}
