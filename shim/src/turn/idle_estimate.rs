//! An estimate of how soon a process submits again after it has synchronised.
//!
//! A server that copies its input and then launches does not use the device for a short gap. If the device is given
//! away in that gap, the server loses the time until it gets the device back. So `idle=auto` keeps the device for
//! twice the usual short gap if short gaps are common, and for 0.1 ms if they are not.

use shm_layout::lock::order::{KEPT_NS, LONG_GAP_NS};

/// Time without a submission or a synchronisation after which a process counts as idle, in nanoseconds.
pub const UNSYNCHRONISED: u64 = 1_000_000;

/// The recent gaps of a process between a synchronisation and the next submission.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleEstimate {
    /// Moving average of the short gaps, in nanoseconds.
    short_ns: u64,
    /// Share of the recent gaps that were short, in units of 1 / [`MANY`].
    shorts: u64,
}

/// The value of `shorts` that stands for all gaps.
const MANY: u64 = 1024;

impl IdleEstimate {
    /// Adds a gap of `ns` nanoseconds.
    pub fn learn(&mut self, ns: u64) {
        let is_short = ns < LONG_GAP_NS;
        self.shorts -= self.shorts / 8;
        if is_short {
            self.shorts += MANY / 8;
            self.short_ns = match self.short_ns {
                0 => ns,
                known => (7 * known + ns) / 8,
            }
            .max(1);
        }
    }

    /// Returns true if at least a quarter of the recent gaps were short.
    pub fn is_short(&self) -> bool {
        self.shorts >= MANY / 4
    }

    /// Returns how long the device is kept after a synchronisation, in nanoseconds.
    pub fn keep(&self) -> u64 {
        if !self.is_short() {
            return KEPT_NS;
        }
        (2 * self.short_ns).clamp(KEPT_NS, LONG_GAP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    fn of(times: impl IntoIterator<Item = u64>) -> u64 {
        let mut idle = IdleEstimate::default();
        times.into_iter().for_each(|ns| idle.learn(ns));
        idle.keep()
    }

    #[test]
    fn a_server_that_copies_and_then_launches_keeps_the_device_for_that_moment() {
        let turns = (0..40).map(|at| if at % 2 == 0 { 150 * US } else { 20_000 * US });
        assert_eq!(of(turns), 300 * US);
    }

    #[test]
    fn one_short_gap_among_long_ones_keeps_nothing() {
        let turns = (0..40).map(|at| if at % 20 == 10 { 900 * US } else { 20_000 * US });
        assert_eq!(of(turns), KEPT_NS);
    }

    #[test]
    fn nothing_is_kept_for_long() {
        assert_eq!(of([900 * US; 20]), LONG_GAP_NS);
        assert_eq!(of([]), KEPT_NS);
    }
}
