//! The memory of a device that no account covers: contexts, and programs that gpushare does not manage. It is measured as what is
//! neither free nor in an account.

use super::Ledger;
use crate::{os::clock, protocol::primitive::Ordering};

/// The bytes that the driver has given to all processes, by their accounts.
pub(super) struct Given {
    pub(super) bytes: u64,
    /// No process has bytes in its account that the driver is about to give.
    pub(super) is_certain: bool,
}

/// Number of measurements of the device's free memory. An allocation under way can hide bytes outside the accounts from a
/// single one.
pub(super) const SAMPLES: u32 = 4;

/// Time for which a process's own measurement counts alone, in nanoseconds.
const LATELY_NS: u64 = 1_000_000_000;

impl Ledger<'_> {
    /// Publishes how much of the device is free, as the driver just reported. Bytes that are neither free nor in an account are
    /// outside.
    pub fn publish_free(&self, free: u64) {
        if let Some(given) = self.given_together() {
            self.publish_free_by(free, given);
        }
    }

    /// Measures like [`publish_free`](Self::publish_free), but several times, and publishes the most that was found outside. A
    /// charged allocation that the driver is about to refuse makes a single measurement too small.
    pub fn publish_free_surely(&self, mut ask: impl FnMut() -> Option<u64>) {
        let samples = (0..SAMPLES).filter_map(|_| {
            let before = self.given_together()?;
            let free = ask()?;
            let after = self.given_together()?;
            // Bytes that were given in between would count as outside.
            (before.bytes == after.bytes).then_some((free, after))
        });
        let most = samples.min_by_key(|(free, given)| free.saturating_add(given.bytes));
        if let Some((free, given)) = most {
            self.publish_free_by(free, given);
        }
    }

    fn publish_free_by(&self, free: u64, given: Given) {
        let outside = self.outside_by(free, given.bytes);
        // Promised bytes are subtracted in full, so the amount outside may only grow by that.
        if given.is_certain || outside > self.outside() {
            self.measure(outside);
            self.device.outside.store(outside, Ordering::Relaxed);
        }
        self.device
            .outside_ns
            .store(clock::now(), Ordering::Relaxed);
    }

    /// Returns the bytes that are neither free nor in an account.
    pub(super) fn outside_by(&self, free: u64, held: u64) -> u64 {
        self.total().saturating_sub(free).saturating_sub(held)
    }

    pub(super) fn publish_outside(&self, bytes: u64, now: u64) {
        self.device.outside.store(bytes, Ordering::Relaxed);
        self.device.outside_ns.store(now, Ordering::Relaxed);
    }

    /// Returns the bytes outside the accounts that this process measured itself, if it did.
    pub(super) fn measured(&self) -> Option<u64> {
        self.limits.outside.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(super) fn measure(&self, outside: u64) {
        self.set_measured(outside);
        self.limits
            .outside_ns
            .store(clock::now(), Ordering::Relaxed);
    }

    pub(super) fn set_measured(&self, outside: u64) {
        let word = outside.saturating_add(1);
        self.limits.outside.store(word, Ordering::Relaxed);
    }

    /// Returns true if this process has measured a short while ago.
    pub(super) fn is_measured_lately(&self) -> bool {
        let at = self.limits.outside_ns.load(Ordering::Relaxed);
        clock::now().saturating_sub(at) < LATELY_NS
    }

    /// Changes the measured value by a step that this process makes itself.
    pub(super) fn adjust(&self, step: impl FnOnce(u64) -> u64) {
        if let Some(own) = self.measured() {
            self.set_measured(step(own));
        }
    }

    /// Returns the bytes of the device that are in no account, as last [published](Self::publish_free): contexts, and unmanaged
    /// programs. Where there is a broker any tenant may have written that value. There a value that this process has measured
    /// itself a short while ago counts alone, and the published one counts for at most an older one.
    pub fn outside(&self) -> u64 {
        let said = self.device.outside.load(Ordering::Relaxed);
        match self
            .own_slot
            .private_account()
            .and_then(|_| self.measured())
        {
            Some(own) if self.is_measured_lately() => own,
            Some(own) => own.min(said),
            None => said,
        }
    }

    /// Publishes like [`publish_free`](Self::publish_free) a number that is up to `late_ns` old. Unless the accounts were
    /// unchanged for that time, the amount outside may only grow. The caller keeps `seen` from one call to the next.
    pub fn publish_free_late(&self, free: u64, late_ns: u64, seen: &mut (u64, u64)) {
        let now = clock::now();
        let held = self.held_together(None);
        if seen.0 != held {
            *seen = (held, now);
        }
        let outside = self.outside_by(free, held);
        let stands = now.saturating_sub(seen.1) >= late_ns;
        if stands || self.measured().is_none_or(|own| outside > own) {
            self.measure(outside);
        }
        if stands || outside > self.device.outside.load(Ordering::Relaxed) {
            self.publish_outside(outside, now);
        }
    }
}
