//! The pace of work that is repeated: the processor time of a round decides when the next is due.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A pace at which a thread uses at most a given share of a core, within limits.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    shortest: Duration,
    longest: Duration,
    /// A round may cost the time until the next one divided by this.
    share: u32,
    /// The mean processor time of the last rounds.
    mean: Duration,
    /// Weight of a new round in the mean.
    weight: f64,
}

impl Pace {
    /// Makes a pace at which a round may cost the time until the next divided by `share`.
    pub fn new(shortest: Duration, longest: Duration, share: u32) -> Self {
        Self {
            shortest,
            longest,
            share,
            mean: Duration::ZERO,
            weight: 1.0,
        }
    }

    /// Decides by the mean of some ten rounds: one that is costly by chance, such as the first, does not delay the next.
    pub fn by_mean(self) -> Self {
        Self {
            weight: 0.1,
            ..self
        }
    }

    /// Makes a pace that is always the same.
    pub fn fixed(pace: Duration) -> Self {
        Self::new(pace, pace, 1)
    }

    /// Returns the time until the next round, after one that cost this much processor time.
    pub fn after(&mut self, cost: Duration) -> Duration {
        self.mean = self.mean.mul_f64(1.0 - self.weight) + cost.mul_f64(self.weight);
        self.mean
            .saturating_mul(self.share)
            .clamp(self.shortest, self.longest)
    }
}

/// Returns the processor time of the calling thread.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn costly_rounds_come_less_often_and_cheap_ones_at_the_shortest_pace() {
        assert_eq!(Pace::new(ms(250), ms(1000), 300).after(ms(2)), ms(600));
        let mut pace = Pace::new(ms(250), ms(1000), 300).by_mean();
        assert_eq!(pace.after(ms(2)), ms(250), "one costly round is chance");
        for _ in 0..50 {
            pace.after(ms(2));
        }
        let slow = pace.after(ms(2));
        assert!((ms(590)..=ms(600)).contains(&slow), "{slow:?}");
        for _ in 0..50 {
            pace.after(ms(90));
        }
        assert_eq!(pace.after(ms(90)), ms(1000), "the longest");
        for _ in 0..90 {
            pace.after(Duration::ZERO);
        }
        assert_eq!(pace.after(Duration::ZERO), ms(250));
        assert_eq!(Pace::fixed(ms(100)).after(ms(90)), ms(100));
    }

    #[test]
    fn a_thread_that_sleeps_uses_no_processor_time() {
        let start = thread_time();
        std::thread::sleep(ms(50));
        assert!(thread_time() - start < ms(25));
    }
}
