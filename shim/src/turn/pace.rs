//! How far ahead of the device a holder runs while others wait.
//!
//! A program that never synchronises fills the driver's queue in an instant, and its slice then ends only when
//! the queue has drained: a thousand kernels later. So a slice that took much longer than it should teaches how
//! many submissions fit into one; then no more go in before the device has caught up. Slices that end in time let
//! the number grow again, and a second without a waiter ends it. Alone, or in time, nothing is counted at all.

/// The most submissions of one slice, once there is a reason to count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    most: Option<u32>,
}

/// More than any slice takes: from here on counting is not worth it.
const PLENTY: u32 = 1 << 20;

impl Pace {
    /// Whether submissions are to be counted.
    pub fn is_kept(&self) -> bool {
        self.most.is_some()
    }

    /// Whether one more may follow so many.
    pub fn allows(&self, submitted: u32) -> bool {
        self.most.is_none_or(|most| submitted < most)
    }

    /// A slice that should have taken `slice_ns` took `took_ns` until all its submissions were done.
    pub fn learn(&mut self, submitted: u64, took_ns: u64, slice_ns: u64) {
        let in_time = took_ns <= slice_ns.saturating_add(slice_ns / 2);
        self.most = match self.most {
            None if in_time => None,
            Some(most) if in_time => {
                let full = submitted >= u64::from(most);
                let next = if full { most + most / 4 + 1 } else { most };
                (next < PLENTY).then_some(next)
            }
            _ => {
                let fits =
                    u128::from(submitted) * u128::from(slice_ns) / u128::from(took_ns.max(1));
                let fits = u32::try_from(fits).unwrap_or(PLENTY);
                (fits < PLENTY).then_some(fits.max(1))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 5_000_000;

    #[test]
    fn a_slice_in_time_counts_nothing() {
        let mut pace = Pace::default();
        pace.learn(10, SLICE, SLICE);
        assert!(!pace.is_kept());
        assert!(pace.allows(u32::MAX));
    }

    #[test]
    fn a_slice_that_took_ten_times_its_length_allows_a_tenth() {
        let mut pace = Pace::default();
        pace.learn(1000, 10 * SLICE, SLICE);
        assert!(pace.allows(99));
        assert!(!pace.allows(100));
    }

    #[test]
    fn a_single_long_kernel_is_allowed_all_the_same() {
        let mut pace = Pace::default();
        pace.learn(1, 100 * SLICE, SLICE);
        assert!(pace.allows(0));
        assert!(!pace.allows(1));
    }

    #[test]
    fn full_slices_in_time_let_it_grow_until_it_is_not_worth_counting() {
        let mut pace = Pace { most: Some(100) };
        pace.learn(100, SLICE, SLICE);
        assert!(pace.allows(125) && !pace.allows(126));
        pace.learn(3, SLICE, SLICE);
        assert!(
            !pace.allows(126),
            "a slice that was not full teaches nothing"
        );
        for _ in 0..60 {
            let most = u64::from(pace.most.unwrap_or(0));
            pace.learn(most, SLICE, SLICE);
        }
        assert!(!pace.is_kept());
    }
}
