//! Histograms of times, as the segments count them.

use super::HISTOGRAM;

/// Buckets of an octave, as a power of two: each spans a fourth of it.
const FINE_BITS: u32 = 2;
const FINE: u64 = 1 << FINE_BITS;
/// Buckets of an octave.
pub const BUCKETS_PER_OCTAVE: usize = FINE as usize;
/// The octave of the first buckets: the first begins at 64 ns, the last at 240 s.
const FIRST_BIT: u32 = 6;

/// Counts of times by length, and the longest of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Histogram {
    /// Number of times in each bucket.
    #[cfg_attr(feature = "serde", serde(with = "sparse"))]
    pub counts: [u32; HISTOGRAM],
    /// The longest time; 0 if it is not known.
    pub max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; HISTOGRAM],
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// Counts a time `n` times.
    pub fn add(&mut self, ns: u64, n: u32) {
        self.add_bucket(bucket(ns), n, ns);
    }

    /// Counts `n` times of one bucket, of which the longest took `max_ns`.
    pub fn add_bucket(&mut self, bucket: usize, n: u32, max_ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(n);
            self.max_ns = self.max_ns.max(max_ns);
        }
    }

    /// Counts the times of another histogram as well.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the times that were counted since an earlier state of this histogram. The longest of them is known only if
    /// it is the longest of all; else the start of the last bucket stands for it, which no time there falls short of.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts;
        for (count, before) in counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        let last = counts.iter().rposition(|count| *count > 0);
        let max_ns = match last {
            None => 0,
            Some(_) if self.max_ns > earlier.max_ns => self.max_ns,
            Some(last) => bucket_start_ns(last),
        };
        Self { counts, max_ns }
    }

    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the time below which a share `q` of the times lies, in nanoseconds; `None` if there are none.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let used = self.counts.iter().enumerate();
        let used = used.filter(|(_, count)| **count > 0);
        quantile(used.map(|(bucket, count)| (bucket, *count)), self.max_ns, q)
    }
}

/// Returns the time below which a share `q` of times lies, in nanoseconds; `None` if there are none. `used` are the buckets in
/// use in ascending order with their counts, and `max_ns` is the longest time.
///
/// A bucket does not say where in it its times lie, so they are taken as spread evenly over it. The answer has the two digits
/// that this allows and is never longer than the longest time.
pub fn quantile(
    used: impl Iterator<Item = (usize, u32)> + Clone,
    max_ns: u64,
    q: f64,
) -> Option<u64> {
    let all: u64 = used.clone().map(|(_, count)| u64::from(count)).sum();
    let rank = q.clamp(0.0, 1.0) * all as f64;
    let mut below = 0.0;
    for (bucket, count) in used {
        let count = f64::from(count);
        if below + count >= rank {
            let into = ((rank - below) / count).clamp(0.0, 1.0);
            let (start, end) = (bucket_start_ns(bucket), bucket_start_ns(bucket + 1));
            // The longest time lies in the last bucket in use. Bytes that say otherwise bound nothing.
            let longest = match max_ns {
                max if max >= start => max,
                _ => u64::MAX,
            };
            let end = end.min(longest.max(start));
            let at = start + ((end - start) as f64 * into) as u64;
            return Some(two_digits(at).min(longest));
        }
        below += count;
    }
    None
}

/// Rounds to two decimal digits.
fn two_digits(ns: u64) -> u64 {
    let mut unit = 1;
    while ns / unit >= 100 {
        unit *= 10;
    }
    (ns + unit / 2) / unit * unit
}

/// Returns the bucket that counts a time.
pub fn bucket(ns: u64) -> usize {
    let ns = ns.max(1 << FIRST_BIT);
    let octave = ns.ilog2() - FIRST_BIT;
    let fourth = ns >> (octave + FIRST_BIT - FINE_BITS) & (FINE - 1);
    (octave as usize * BUCKETS_PER_OCTAVE + fourth as usize).min(HISTOGRAM - 1)
}

/// Returns the shortest time that a bucket counts. Shorter times than the first bucket's count in the first.
pub fn bucket_start_ns(bucket: usize) -> u64 {
    let bucket = bucket.min(HISTOGRAM) as u64;
    (FINE + bucket % FINE) << (bucket / FINE + u64::from(FIRST_BIT - FINE_BITS))
}

/// Writes only the buckets in use, as pairs of bucket and count: a recording has thousands of histograms.
#[cfg(feature = "serde")]
mod sparse {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::HISTOGRAM;

    pub(super) fn serialize<S: Serializer>(
        counts: &[u32; HISTOGRAM],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(counts.iter().enumerate().filter(|(_, count)| **count > 0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<[u32; HISTOGRAM], D::Error> {
        let mut counts = [0; HISTOGRAM];
        for (bucket, count) in Vec::<(usize, u32)>::deserialize(from)? {
            if let Some(place) = counts.get_mut(bucket) {
                *place = count;
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn of(times: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        times.into_iter().for_each(|ns| histogram.add(ns, 1));
        histogram
    }

    #[test]
    fn a_quantile_is_right_to_a_tenth_and_never_above_the_longest_time() {
        // Times that crowd at the lower end, with a long tail, as waits have them; from 1 us to 30 s.
        for scale in [1_000, 33_000, 777_000, 5 * MS, 300 * MS] {
            let mut times: Vec<u64> = (1..=1000_u64)
                .map(|at| scale + scale * at * at / 10_000)
                .collect();
            times.sort_unstable();
            let histogram = of(times.iter().copied());
            for q in [0.1, 0.5, 0.9, 0.99, 1.0] {
                let wanted = times[((q * 1000.0) as usize).max(1) - 1];
                let seen = histogram.quantile(q).unwrap();
                let off = seen as f64 / wanted as f64 - 1.0;
                assert!(off.abs() < 0.1, "{scale} {q}: {seen} for {wanted}");
                assert!(seen <= *times.last().unwrap());
            }
        }
    }

    #[test]
    fn equal_times_have_a_percentile_not_above_them() {
        for ns in [65, 1_500, 533 * MS, 1_999_999_999] {
            let p99 = of([ns; 100]).quantile(0.99).unwrap();
            assert!(p99 <= ns && p99 as f64 >= ns as f64 * 0.8, "{p99} of {ns}");
        }
    }

    #[test]
    fn a_quantile_has_two_digits() {
        let histogram = of((0..1000).map(|at| 5 * MS + at * 7_919));
        let median = histogram.quantile(0.5).unwrap();
        assert_eq!(median % 100_000, 0, "{median}");
        assert_eq!([0, 7, 99, 104, 105].map(two_digits), [0, 7, 99, 100, 110]);
        two_digits(u64::MAX / 2);
    }

    #[test]
    fn the_times_since_a_moment_have_no_percentile_above_their_own() {
        let early = of([900 * MS, 2 * MS]);
        let mut late = early.clone();
        (0..100).for_each(|_| late.add(21 * MS, 1));
        let since = late.since(&early);
        assert_eq!(since.count(), 100);
        let p99 = since.quantile(0.99).unwrap();
        assert!((17 * MS..=21 * MS).contains(&p99), "{p99}");
        late.add(1000 * MS, 1);
        assert_eq!(late.since(&early).max_ns, 1000 * MS);
    }

    #[test]
    fn a_maximum_that_contradicts_the_counts_bounds_nothing() {
        let mut histogram = of([5 * MS; 10]);
        histogram.max_ns = 3;
        assert!(histogram.quantile(0.5).unwrap() >= 4 * MS);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn buckets_cover_nanoseconds_to_minutes_in_fourths_of_an_octave() {
        assert_eq!([0, 64, 79, 80, 128].map(bucket), [0, 0, 0, 1, 4]);
        assert_eq!(bucket(u64::MAX), HISTOGRAM - 1);
        for bucket in 1..HISTOGRAM {
            assert_eq!(super::bucket(bucket_start_ns(bucket)), bucket);
            assert_eq!(super::bucket(bucket_start_ns(bucket) - 1), bucket - 1);
        }
        assert!(bucket_start_ns(HISTOGRAM - 1) > 200_000 * MS);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_histogram_is_written_short_and_read_back() {
        let histogram = of([5 * MS, 5 * MS, 70]);
        let text = serde_json::to_string(&histogram).unwrap();
        assert_eq!(text, r#"{"counts":[[0,1],[64,2]],"max_ns":5000000}"#);
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
        let damaged = r#"{"counts":[[9999,1]]}"#;
        assert_eq!(
            serde_json::from_str::<Histogram>(damaged).unwrap(),
            Histogram::default()
        );
    }
}
