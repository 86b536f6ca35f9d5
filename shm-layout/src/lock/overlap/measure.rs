//! The time that a process is charged under `overlap`: that in which it is active, or that which its work takes alone.
//!
//! Clients of MPS run kernel by kernel, so equal time does not give them equal parts of the device: a long kernel delays all short ones.
//! Under `fair` such a process is charged the time that its work takes alone. It measures that now and then: for a moment the
//! others hold back ([`DeviceLock::begin_measuring`]).

use super::{Other, slot_of};
use crate::{
    lock::DeviceLock,
    os::liveness::{self, Mark},
    protocol::primitive::Ordering,
    value::{Order, SlotId},
};

/// The others hold back no longer for one that measures its work alone.
pub(super) const MEASURING_NS: u64 = 60_000_000;

impl DeviceLock<'_> {
    /// Returns true if the device does not divide its time among the processes: this one is a client of MPS, under `fair`. Among
    /// users who do not trust each other no process measures, because it could hold the others back again and again.
    pub fn is_charged_best_by_work(&self) -> bool {
        self.order() == Order::Fair && self.is_over_mps() && !self.own_slot.segments().is_brokered()
    }

    /// Returns true if MPS runs the kernels of this process.
    pub fn is_over_mps(&self) -> bool {
        self.own_slot.is_mps(self.entry)
    }

    /// Returns true if another process is active on the device.
    pub fn has_company(&self, now_ns: u64) -> bool {
        self.others(now_ns).next().is_some()
    }

    /// Publishes the mean time of a submission while no other process used the device, in nanoseconds; 0 while not measured.
    pub fn publish_submission_ns(&self, ns: u64) {
        self.words.submission_ns.store(ns, Ordering::Relaxed);
    }

    /// Sets whether the process is charged by its work from now on.
    pub fn set_charged_by_work(&self, is: bool) {
        let word = &self.own_slot.cached_limits(self.entry).charged_by_work;
        word.store(u32::from(is), Ordering::Relaxed);
    }

    /// Returns true if the process is charged by its work.
    pub fn is_charged_by_work(&self) -> bool {
        let word = &self.own_slot.cached_limits(self.entry).charged_by_work;
        word.load(Ordering::Relaxed) != 0
    }

    /// Charges the time that submitted work takes alone, in nanoseconds.
    pub fn charge_work(&self, ns: u64, now_ns: u64) {
        self.words.charge(ns, now_ns, self.own_slot.pace());
    }

    /// Makes the other processes hold back, so that this one can measure its work alone. Returns false while another process
    /// does that. It ends by [`end_measuring`](Self::end_measuring), or by itself after `MEASURING_NS`.
    pub fn begin_measuring(&self, now_ns: u64) -> bool {
        if self.measurer(now_ns).is_some() {
            return false;
        }
        let word = &self.device.measurer;
        let before = word.load(Ordering::Relaxed);
        let began = word
            .compare_exchange(before, self.me, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if began {
            self.device.measured_since.store(now_ns, Ordering::Relaxed);
        }
        began
    }

    /// Publishes whether this process, which is about to hold back, has work queued.
    pub fn publish_queued(&self, is: bool) {
        self.words.queued.store(u32::from(is), Ordering::Relaxed);
    }

    /// Returns true if no other process uses the device or has work queued there.
    pub fn is_alone(&self, now_ns: u64) -> bool {
        let is_done =
            |other: &Other<'_>| !other.submits() && other.entry.queued.load(Ordering::Relaxed) == 0;
        self.others(now_ns).all(|other| is_done(&other))
    }

    /// Lets the others go on.
    pub fn end_measuring(&self) {
        let word = &self.device.measurer;
        let ended = word.compare_exchange(self.me, 0, Ordering::Relaxed, Ordering::Relaxed);
        if ended.is_ok() {
            self.device.wake_held_back();
        }
    }

    /// Returns the process that measures its work alone.
    pub(super) fn measurer(&self, now_ns: u64) -> Option<SlotId> {
        let word = self.device.measurer.load(Ordering::Relaxed);
        let since = self.device.measured_since.load(Ordering::Relaxed);
        if word == 0 || now_ns.abs_diff(since) > MEASURING_NS {
            return None;
        }
        let (id, slot) = slot_of(self.own_slot.segments().state(), word)?;
        (liveness::mark_of(&slot.keeper) != Mark::Dead).then_some(id)
    }
}
