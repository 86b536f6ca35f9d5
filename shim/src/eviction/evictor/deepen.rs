//! The second step of an eviction by copies: after a time that the operator sets (`deep-after`), the driver's checkpoint takes what
//! the copies have left on the devices, contexts and modules included.
//!
//! A restore brings this back first, and then the copies. If there is room for the first and not for the second, the process is as
//! it was after the copies, and waits for room.

use std::sync::atomic::Ordering::Relaxed;

use gpushare_abi::errors::CUerror;
use shm_layout::{Moved, Phase, Why, clock};

use crate::{
    eviction::{
        Cause,
        eligible::{self, A_CONTEXT},
        evictor::{Evictor, OUT, Stopped, admit_queries, restore::BACK},
        footprint::{Footprint, Refusal},
        plan::pause_after_attempt,
        state::time,
    },
    gate,
};

impl Evictor {
    /// Returns what has to fit on the devices for a restore, where copies have moved `footprints`.
    pub(super) fn whole(&self, footprints: &[Footprint<'static>]) -> Vec<Footprint<'static>> {
        let all = || footprints.iter().chain(self.deep.iter().flatten());
        let devices = self.process.devices.iter();
        let of_each = devices.filter_map(|device| {
            let here = all().filter(|footprint| std::ptr::eq(footprint.device, device));
            here.copied().reduce(Footprint::and)
        });
        let mut of_each: Vec<_> = of_each.collect();
        // All processes wait for devices in the same order, so that no two wait for each other's.
        of_each.sort_by_key(|footprint| footprint.device.uuid);
        of_each
    }

    /// Publishes when the context is to leave. Returns true if it is to leave now.
    pub(super) fn is_to_deepen(&mut self, footprints: &[Footprint<'static>]) -> bool {
        let registration = self.process.registration;
        let due_ns = self.deep_due_ns(footprints);
        registration.publish_deepening(due_ns.unwrap_or(0), self.deep_ns());
        if due_ns.is_none_or(|due_ns| clock::now() < due_ns) {
            return false;
        }
        registration.publish_deepening(0, self.deep_ns());
        match eligible::check_rest(self.process) {
            Ok(()) => true,
            Err(refusal) => {
                self.keep_context(refusal, 0);
                false
            }
        }
    }

    /// Returns the time at which the context is to leave; `None` for never. Of several devices it is the latest.
    pub(super) fn deep_due_ns(&self, footprints: &[Footprint<'static>]) -> Option<u64> {
        if self.is_checkpointed() || self.deep_not_before == u64::MAX {
            return None;
        }
        let rules = footprints
            .iter()
            .map(|at| at.device.ledger.eviction_rules());
        let after_ns: Option<Vec<u64>> = rules.map(|rules| rules.deep_after_ns()).collect();
        let due_ns = self.evicted_ns.saturating_add(after_ns?.into_iter().max()?);
        Some(due_ns.max(self.deep_not_before))
    }

    /// Evicts by checkpoint what the copies have left. Returns an error if all memory is lost.
    pub(super) fn deepen(&mut self) -> Result<(), (Why, CUerror)> {
        (self.began_ns, self.cause) = (clock::now(), Cause::Idle);
        self.deep = Some(Vec::new());
        let eviction = &self.process.eviction;
        eviction.set_phase(Phase::Evicting);
        let left = self.left_bytes();
        self.say(Phase::Evicting, left, time(left, 0, OUT));
        self.suspend_queries();
        match self.checkpoint_rest() {
            Ok(rest) => {
                self.deep = Some(rest);
                eviction.set_phase(Phase::Evicted);
                admit_queries(gate::CHECKPOINTED);
                self.say(Phase::Evicted, self.process.registration.evicted_bytes(), 0);
                self.publish_host_bytes();
            }
            Err(Stopped::Refused(refusal)) => {
                self.deep = None;
                eviction.remember(refusal);
                eviction.set_phase(Phase::Evicted);
                admit_queries(gate::COPIED);
                self.say(Phase::Evicted, self.process.registration.evicted_bytes(), 0);
                self.publish_host_bytes();
                self.keep_context(refusal, clock::now().saturating_sub(self.began_ns));
            }
            Err(Stopped::Lost(why, error)) => return Err((why, error)),
        }
        Ok(())
    }

    fn checkpoint_rest(&self) -> Result<Vec<Footprint<'static>>, Stopped> {
        if !self.is_empty() {
            return Err((Why::Busy, 0).into());
        }
        let rest = eligible::check_closely(self.process)?;
        let ledgers = || rest.iter().map(|footprint| &footprint.device.ledger);
        let leaving: Vec<_> = ledgers().map(|ledger| ledger.leaving()).collect();
        self.checkpoint()?;
        for footprint in &rest {
            let ledger = &footprint.device.ledger;
            ledger.evict(footprint.used, footprint.besides);
        }
        drop(leaving);
        Ok(rest)
    }

    /// Publishes the reason why the context stays on the devices, and decides when to look again. Calls were suspended for
    /// `suspended_ns`.
    fn keep_context(&mut self, (why, code): Refusal, suspended_ns: u64) {
        self.deep_not_before = match why.may_pass() {
            true => {
                let rest = pause_after_attempt(self.cause, why, suspended_ns);
                clock::now().saturating_add(rest)
            }
            false => u64::MAX,
        };
        self.process.registration.publish_phase(&Moved {
            phase: Phase::Evicted,
            why: Some(why),
            code,
            ..Moved::default()
        });
    }

    /// Records that what the checkpoint took is on the devices again, while the copies are not.
    pub(super) fn is_shallow_again(&mut self) {
        for footprint in self.deep.take().into_iter().flatten() {
            let ledger = &footprint.device.ledger;
            ledger.charge_unchecked(footprint.used);
            ledger.returned_in_part(footprint.used, footprint.besides);
        }
        self.evicted_ns = clock::now();
        self.publish_host_bytes();
        admit_queries(gate::COPIED);
    }

    /// Records that the restore of what copies had left took `ns`. Returns `ns`.
    pub(super) fn measured_deep(&self, ns: u64) -> u64 {
        self.process.eviction.deep_ns.store(ns.max(1), Relaxed);
        ns
    }

    /// Returns how much longer a restore is expected to take once the context has left, in nanoseconds.
    pub(super) fn deep_ns(&self) -> u64 {
        match self.process.eviction.deep_ns.load(Relaxed) {
            0 => time(self.left_bytes(), 0, BACK),
            measured => measured,
        }
    }

    /// Estimates the bytes that copies have left on the devices.
    fn left_bytes(&self) -> u64 {
        let devices = self.process.devices.iter();
        let left = devices.map(|device| {
            let ledger = &device.ledger;
            ledger
                .used()
                .saturating_add(ledger.outside().min(A_CONTEXT))
        });
        left.fold(0, u64::saturating_add)
    }
}
