//! The result of a run of the workload.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// The numbers of one run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub schema_version: u32,
    pub device: String,
    pub elapsed_ns: u64,
    pub launches: u64,
    pub synchronizations: u64,
    pub allocations: u64,
    /// Allocations that were refused with `CUDA_ERROR_OUT_OF_MEMORY`.
    pub refusals: u64,
    /// Most memory held at one time, in bytes.
    pub peak_bytes: u64,
    /// Longest time from a burst's first launch to its end: its own work and all waiting.
    pub longest_burst_ns: u64,
    /// Median time of a burst, within 1 %.
    pub burst_p50_ns: u64,
    /// 99th percentile of a burst's time, within 1 %.
    pub burst_p99_ns: u64,
    pub free_bytes: u64,
    pub total_bytes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed_ns as f64 / 1e9;
        write!(
            f,
            "{}: {} launches in {seconds:.1} s ({:.0}/s), bursts p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms, \
             {} allocations, {} refused, peak {} MiB",
            self.device,
            self.launches,
            self.launches as f64 / seconds.max(1e-9),
            self.burst_p50_ns as f64 / 1e6,
            self.burst_p99_ns as f64 / 1e6,
            self.longest_burst_ns as f64 / 1e6,
            self.allocations,
            self.refusals,
            self.peak_bytes >> 20,
        )
    }
}

/// A histogram of times in steps of 1 %, so that its size does not depend on the run's length.
#[derive(Debug, Default)]
pub struct Times {
    counts: Vec<u64>,
    longest: Duration,
}

impl Times {
    const STEP: f64 = 1.01;

    pub fn add(&mut self, time: Duration) {
        let ns = time.as_nanos().max(1) as f64;
        let step = (ns.ln() / Self::STEP.ln()) as usize;
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.longest = self.longest.max(time);
    }

    /// Returns the time below which this share of the times lies; zero if there are none.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.counts.iter().sum::<u64>() as f64 * share).ceil();
        let mut seen = 0.0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += *count as f64;
            if *count > 0 && seen >= wanted {
                let end = Self::STEP.powf(step as f64 + 1.0) as u64;
                return end.min(self.longest_ns());
            }
        }
        0
    }

    pub fn longest_ns(&self) -> u64 {
        u64::try_from(self.longest.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_times_are_right_within_a_hundredth() {
        let mut times = Times::default();
        assert_eq!(times.quantile_ns(0.5), 0);
        for us in 1..=1000 {
            times.add(Duration::from_micros(us));
        }
        for (share, wanted) in [(0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let found = times.quantile_ns(share) as f64;
            assert!((found / wanted - 1.0).abs() <= 0.0101, "{share}: {found}");
        }
        assert_eq!(times.quantile_ns(1.0), times.longest_ns());
    }
}
