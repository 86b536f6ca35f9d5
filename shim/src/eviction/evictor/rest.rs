//! The rest of a process that has left in part, because another one had enough: it leaves as well when a process lacks room again, when
//! the operator wants it, when the process has been idle for as long as its setting says, and before its context leaves.
//!
//! Calls are still suspended and no work is under way, so the rest leaves without more ado. If it cannot, what has left is still on the
//! host, and the process waits as before.

use std::sync::atomic::Ordering::Relaxed;

use gpushare_abi::errors::CUerror;
use shm_layout::{Phase, Why, clock};

use crate::{
    eviction::{
        Cause, eligible,
        evictor::{Evictor, Stopped},
        footprint::{Footprint, Refusal},
        plan,
        swap::{self, Gone, Leaves},
        upkeep,
    },
    managed_process::ManagedProcess,
};

/// Delay after the rest could not leave, in nanoseconds, and the longest one after several such attempts: each ends the return of what
/// has left, and the process would never come back if they came as often as its turn.
const AGAIN: u64 = 1_000_000_000;
const SELDOM: u64 = 30_000_000_000;

/// Returns true if memory that copies could move is on its devices.
pub(super) fn is_there(process: &ManagedProcess) -> bool {
    process.memory.swappable.movable_bytes() > 0
}

impl Evictor {
    /// Evicts what copies can move and is on its devices. A process that waits for memory that returns leaves the rest once it has
    /// enough; one that allocates goes on to want more.
    pub(super) fn out(&self, called_off: impl FnMut() -> Option<Why>) -> Result<Gone, Refusal> {
        let process = self.process;
        let ledgers = || process.devices.iter().map(|device| &device.ledger);
        let began_ns = clock::now();
        let keeps_rest = ledgers().all(|ledger| {
            !ledger.is_room_lacking(true, began_ns) || ledger.is_wanted_for_returns(began_ns)
        });
        let is_enough = || {
            let now = clock::now();
            keeps_rest && ledgers().all(|ledger| ledger.has_room_for_all(now))
        };
        let leaves = match self.cause {
            Cause::Asked | Cause::Turn => Leaves::InParts(&is_enough),
            Cause::Idle | Cause::Operator => Leaves::Whole,
        };
        swap::out(process, leaves, called_off, |block| {
            if let Some(device) = process.device(block.ordinal.into()) {
                device.ledger.evict(block.bytes, 0);
            }
        })
    }

    /// Returns why the rest has to leave now, if it has.
    pub(super) fn is_rest_to_leave(&mut self, footprints: &[Footprint<'static>]) -> Option<Cause> {
        let now = clock::now();
        self.look_again(now);
        if !self.has_rest || self.process.is_leaving() {
            return None;
        }
        let share = self.process.registration.share();
        if share.evict {
            return Some(Cause::Operator);
        }
        if self.is_rest_lacking(now) {
            return Some(Cause::Asked);
        }
        if share.pinned {
            return None;
        }
        let used_ns = self.process.eviction.usage.used_ns();
        let idle_at = share.evict_after.map(|after| used_ns.saturating_add(after));
        let deep_at = self.deep_due_ns(footprints);
        let is_due = |at: Option<u64>| at.is_some_and(|at| now >= at);
        let is_wanted = self.process.eviction.is_wanted();
        (!is_wanted && (is_due(idle_at) || is_due(deep_at))).then_some(Cause::Idle)
    }

    /// Finds the rest again that could not leave a while ago.
    fn look_again(&mut self, now: u64) {
        if self.rest_not_before == 0 || now < self.rest_not_before {
            return;
        }
        (self.has_rest, self.rest_not_before) = (is_there(self.process), 0);
        let moved = self.moved(self.process.eviction.phase());
        self.process.registration.publish_phase(&moved);
    }

    /// Returns true if a process has asked for the rest and lacks it.
    pub(super) fn is_rest_lacking(&mut self, now: u64) -> bool {
        self.look_again(now);
        self.has_rest
            && self.process.eviction.is_requested(now)
            && !self.process.is_leaving()
            && !self.process.registration.share().pinned
            && plan::is_lacking(self.process, now)
    }

    /// Evicts the rest, as far as it is lacking if another process asks. Returns an error if all memory is lost.
    pub(super) fn evict_rest(
        &mut self,
        cause: Cause,
        footprints: &mut Vec<Footprint<'static>>,
    ) -> Result<(), (Why, CUerror)> {
        let process = self.process;
        let eviction = &process.eviction;
        self.cause = cause;
        let bytes = process.memory.swappable.movable_bytes();
        eviction.set_phase(Phase::Evicting);
        self.say(Phase::Evicting, bytes, eviction.out_ns(bytes, swap::RATE));
        let began = clock::now();
        match self.out_rest(bytes) {
            Ok(gone) => {
                let moved = gone.footprints.iter().map(|one| one.used).sum();
                let took = clock::now().saturating_sub(began);
                eviction.measured_more_out(moved, took.saturating_sub(gone.making_ns));
                footprints.extend(gone.footprints);
                self.has_rest = is_there(process);
                self.rest_pause_ns = 0;
                eviction.has_left_whole.fetch_or(!self.has_rest, Relaxed);
                eviction.forget_request();
            }
            Err(Stopped::Refused(_)) => {
                self.has_rest = false;
                self.rest_pause_ns = (2 * self.rest_pause_ns).clamp(AGAIN, SELDOM);
                self.rest_not_before = clock::now().saturating_add(self.rest_pause_ns);
            }
            Err(Stopped::Lost(why, error)) => return Err((why, error)),
        }
        eviction.set_phase(Phase::Evicted);
        self.say(Phase::Evicted, process.registration.evicted_bytes(), 0);
        self.publish_host_bytes();
        upkeep::publish_figures(process, clock::now());
        Ok(())
    }

    fn out_rest(&self, bytes: u64) -> Result<Gone, Stopped> {
        eligible::check_swappable_closely(self.process, bytes)?;
        let devices = self.process.devices.iter();
        let leaving: Vec<_> = devices.map(|device| device.ledger.leaving()).collect();
        crate::eviction::wake_queued(self.process);
        let gone = self.out(|| {
            let share = self.process.registration.share();
            (share.pinned && !share.evict).then_some(Why::Pinned)
        })?;
        drop(leaving);
        Ok(gone)
    }
}
