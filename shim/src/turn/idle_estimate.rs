//! How soon a process submits again after it has synchronised.
//!
//! A server that copies its input and then launches is busy though the device is not, and to give the device away for that
//! moment costs it the time until it comes back. So `idle=auto` keeps the device for twice a short gap where such are common,
//! and hardly at all where they are not.

/// A gap that is longer is no short one: the process has gone to wait for something else.
const LONGEST: u64 = 1_000_000;
const SHORTEST: u64 = 100_000;

/// Submitted nothing for so long, not having synchronised either.
pub const UNSYNCHRONISED: u64 = 1_000_000;

/// What is known of a process's gaps.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleEstimate {
    /// What the short ones took lately.
    short_ns: u64,
    /// How many of the last ones were short, of [`MANY`].
    shorts: u64,
}

/// All of them.
const MANY: u64 = 1024;

impl IdleEstimate {
    /// It submitted again after so long.
    pub fn learn(&mut self, ns: u64) {
        let is_short = ns < LONGEST;
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

    /// Whether it often submits again at once.
    pub fn is_short(&self) -> bool {
        self.shorts >= MANY / 4
    }

    /// How long the device is kept after a synchronisation.
    pub fn keep(&self) -> u64 {
        if !self.is_short() {
            return SHORTEST;
        }
        (2 * self.short_ns).clamp(SHORTEST, LONGEST)
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
        assert_eq!(of(turns), SHORTEST);
    }

    #[test]
    fn nothing_is_kept_for_long() {
        assert_eq!(of([900 * US; 20]), LONGEST);
        assert_eq!(of([]), SHORTEST);
    }
}
