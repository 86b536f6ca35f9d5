//! Log2 histograms of nanoseconds, as the segments count them.

use super::HISTOGRAM;

/// Each bucket spans twice the time of the one before: the first ends at 128 ns, the last begins at 137 s.
pub type Histogram = [u32; HISTOGRAM];

const FIRST_BIT: u32 = 6;

/// The bucket that counts a time.
pub(crate) fn bucket(ns: u64) -> usize {
    (ns.max(1).ilog2().saturating_sub(FIRST_BIT) as usize).min(HISTOGRAM - 1)
}

/// Returns the shortest time that a bucket counts. Shorter times than the first bucket's count in the first.
pub fn bucket_start_ns(bucket: usize) -> u64 {
    1 << (bucket as u32 + FIRST_BIT).min(63)
}

/// The time below which a share `q` of the histogram lies, in nanoseconds; `None` when it is empty.
///
/// A bucket does not say where in it its times lie. They are taken as spread evenly over its octave, so the answer is
/// right to the bucket, at worst a factor of two, and two shares that fall into one bucket still differ.
pub fn quantile(histogram: &Histogram, q: f64) -> Option<u64> {
    let total: u64 = histogram.iter().map(|count| u64::from(*count)).sum();
    let rank = q.clamp(0.0, 1.0) * total as f64;
    let mut below = 0.0;
    let used = histogram
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0);
    for (bucket, count) in used {
        let count = f64::from(*count);
        if below + count >= rank {
            let into = ((rank - below) / count).clamp(0.0, 1.0);
            let start = bucket_start_ns(bucket) as f64;
            return Some((start * exp2(into) + 0.5) as u64);
        }
        below += count;
    }
    None
}

/// Two to the power of `x`, from 0 to 1. Written out, for `f64::exp2` would make the preloaded library need libm.
fn exp2(x: f64) -> f64 {
    let y = x * std::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..20 {
        term *= y / f64::from(n);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_those_of_the_standard_library() {
        for step in 0..=1000 {
            let x = f64::from(step) / 1000.0;
            assert!((exp2(x) - x.exp2()).abs() < 1e-14, "{x}");
        }
    }

    #[test]
    fn two_quantiles_in_one_bucket_differ_and_stay_in_it() {
        let mut histogram = Histogram::default();
        histogram[20] = 1000;
        let (from, to) = (bucket_start_ns(20), bucket_start_ns(21));
        let half = quantile(&histogram, 0.5).expect("it counts something");
        let most = quantile(&histogram, 0.99).expect("it counts something");
        assert!(
            from < half && half < most && most <= to,
            "{from} {half} {most} {to}"
        );
        assert!(most as f64 > half as f64 * 1.3);
        histogram[25] = 1000;
        assert_eq!(
            quantile(&histogram, 0.5),
            Some(to),
            "half lies below the second bucket"
        );
    }

    #[test]
    fn quantiles_name_the_bucket_they_fall_in() {
        let mut histogram = Histogram::default();
        (histogram[10], histogram[20]) = (99, 1);
        let bucket_of = |q| bucket(quantile(&histogram, q).expect("it counts something") - 1);
        assert_eq!(
            (bucket_of(0.5), bucket_of(0.99), bucket_of(1.0)),
            (10, 10, 20)
        );
        assert_eq!(quantile(&Histogram::default(), 0.5), None);
    }

    #[test]
    fn buckets_cover_nanoseconds_to_minutes() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(127), 0);
        assert_eq!(bucket(128), 1);
        assert_eq!(bucket(u64::MAX), HISTOGRAM - 1);
        for bucket in 1..HISTOGRAM {
            assert_eq!(super::bucket(bucket_start_ns(bucket)), bucket);
            assert_eq!(super::bucket(bucket_start_ns(bucket) - 1), bucket - 1);
        }
    }
}
