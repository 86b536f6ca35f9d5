//! Distributions of hold and wait times, as programs read them.

use shm_layout::{Histogram, bucket_start_ns};

use super::keys::Keys;
use super::meter::Meter;

/// The upper limits of the buckets on a page: every third octave of the segments', as powers of two of nanoseconds.
const LIMITS_NS_LOG2: [u32; 9] = [10, 13, 16, 19, 22, 25, 28, 31, 34];

/// The upper limits in seconds.
const LIMITS_S: [&str; 10] = [
    "0.000001024",
    "0.000008192",
    "0.000065536",
    "0.000524288",
    "0.004194304",
    "0.033554432",
    "0.268435456",
    "2.147483648",
    "17.179869184",
    "+Inf",
];

/// A histogram in JSON and metrics: the number of times below each limit, and their sum.
#[derive(Debug)]
pub struct Times {
    below: [u64; 10],
    sum_ns: u64,
}

impl Times {
    /// Makes it from a histogram of the segments.
    pub fn new(histogram: &Histogram, sum_ns: u64) -> Self {
        // Both ascend, so each bucket is read once.
        let mut buckets = histogram.counts.iter().enumerate().peekable();
        let mut sum = 0;
        let below = std::array::from_fn(|limit| {
            let ends = |bucket| match LIMITS_NS_LOG2.get(limit) {
                Some(log2) => bucket_start_ns(bucket) < 1 << log2,
                None => true,
            };
            while let Some((_, count)) = buckets.next_if(|(bucket, _)| ends(*bucket)) {
                sum += u64::from(*count);
            }
            sum
        });
        Self { below, sum_ns }
    }
}

impl serde::Serialize for Times {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.below.serialize(serializer)
    }
}

impl Keys for Times {
    fn measure(&self, meter: &mut Meter) {
        let counts: [_; LIMITS_S.len()] = std::array::from_fn(|at| (LIMITS_S[at], self.below[at]));
        meter.histogram(&counts, self.sum_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_in_seconds_are_those_in_nanoseconds() {
        for (log2, text) in LIMITS_NS_LOG2.iter().zip(LIMITS_S) {
            let seconds: f64 = text.parse().expect("a number");
            assert_eq!(seconds, (1_u64 << log2) as f64 / 1e9);
        }
        let starts: Vec<u64> = (0..shm_layout::HISTOGRAM).map(bucket_start_ns).collect();
        assert!(
            LIMITS_NS_LOG2
                .iter()
                .all(|log2| starts.contains(&(1 << log2)))
        );
    }

    #[test]
    fn each_count_includes_those_before_it_and_the_last_is_of_all() {
        let mut histogram = Histogram::default();
        histogram.add(0, 1);
        histogram.add(1024, 2);
        histogram.add(u64::MAX, 4);
        let times = Times::new(&histogram, 0);
        assert_eq!(times.below, [1, 3, 3, 3, 3, 3, 3, 3, 3, 7]);
    }
}
