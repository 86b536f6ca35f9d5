//! A track: the share of each moment of the recent past spent on one activity, as running sums kept at the end of each
//! bin.
//!
//! The time between two moments is the difference of two sums, so a query costs the same for a moment and for two
//! minutes. Bins are counted from boot: all tracks of one width share one axis. A track that was never painted takes no
//! memory.

use std::collections::VecDeque;

/// The number of steps in which sums are kept, chosen so that the difference of any two kept sums fits their words.
const STEPS: u64 = 51_200;

/// The width of the bins and the number kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) bin_ns: u64,
    pub(super) keep: usize,
}

impl Scale {
    /// Returns the length of one step of a sum.
    pub(super) const fn step_ns(self) -> u64 {
        self.bin_ns * self.keep as u64 / STEPS
    }

    /// Reports whether a bin is a whole number of steps, as required.
    pub(super) const fn is_even(self) -> bool {
        self.bin_ns.is_multiple_of(self.step_ns())
    }
}

/// The recent past of one activity in bins of one width.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    /// The bin number of `sums[0]`.
    first: u64,
    /// The sum before `sums[0]`.
    base: u16,
    /// The sum at the end of each bin. It wraps.
    sums: VecDeque<u16>,
    /// Painted time that does not fill a step.
    rest_ns: u32,
}

impl Track {
    /// Adds a span after all spans that were painted before.
    pub(super) fn paint(&mut self, scale: Scale, from_ns: u64, to_ns: u64) {
        let Scale { bin_ns, keep } = scale;
        let from = from_ns.max(to_ns.saturating_sub(bin_ns * keep as u64));
        if from >= to_ns {
            return;
        }
        let (first, last) = (from / bin_ns, to_ns / bin_ns);
        self.reach(first, keep);
        if first == last {
            self.add(scale, to_ns - from);
            return;
        }
        self.add(scale, (first + 1) * bin_ns - from);
        // Long spans are common: a process may wait for seconds.
        let full = usize::try_from(last - first - 1).unwrap_or(keep);
        let each = (bin_ns / scale.step_ns()) as u16;
        let room = keep.saturating_sub(full);
        self.forget(self.sums.len().saturating_sub(room));
        let start = self.newest();
        let sums = (1..=full).map(|at| start.wrapping_add(each.wrapping_mul(at as u16)));
        self.sums.extend(sums);
        if to_ns > last * bin_ns {
            self.reach(last, keep);
            self.add(scale, to_ns - last * bin_ns);
        }
    }

    /// Adds to the newest bin.
    fn add(&mut self, scale: Scale, ns: u64) {
        let step = scale.step_ns();
        let ns = u64::from(self.rest_ns) + ns;
        // Both casts fit: a bin is far shorter than the whole track.
        self.rest_ns = (ns % step) as u32;
        if let Some(sum) = self.sums.back_mut() {
            *sum = sum.wrapping_add((ns / step) as u16);
        }
    }

    /// Makes the bin with this number the newest.
    fn reach(&mut self, number: u64, keep: usize) {
        let end = self.first + self.sums.len() as u64;
        let is_empty = self.sums.is_empty();
        if number < end && !is_empty {
            return;
        }
        if is_empty || number >= end + keep as u64 {
            self.base = self.newest();
            self.sums.clear();
            self.first = number;
            self.sums.push_back(self.base);
            return;
        }
        let missing = usize::try_from((number + 1).saturating_sub(end)).unwrap_or(0);
        self.forget((self.sums.len() + missing).saturating_sub(keep));
        let newest = self.newest();
        self.sums.extend(std::iter::repeat_n(newest, missing));
    }

    /// Drops the oldest bins.
    fn forget(&mut self, bins: usize) {
        if let Some(last) = bins.checked_sub(1) {
            self.base = self.sums.get(last).copied().unwrap_or(self.base);
            self.sums.drain(..bins);
            self.first += bins as u64;
        }
    }

    fn newest(&self) -> u16 {
        self.sums.back().copied().unwrap_or(self.base)
    }

    /// Returns the sum at the begin of this bin; it wraps. The difference of two sums is the number of steps painted
    /// between them.
    pub(super) fn before(&self, number: u64) -> u16 {
        let Some(at) = number.checked_sub(self.first + 1) else {
            return self.base;
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        self.sums.get(at).copied().unwrap_or(self.newest())
    }

    #[cfg(test)]
    fn painted_ns(&self, scale: Scale, from_ns: u64, to_ns: u64) -> u64 {
        let [start, end] = [from_ns, to_ns].map(|ns| self.before(ns / scale.bin_ns));
        let steps = end.wrapping_sub(start);
        u64::from(steps) * scale.step_ns()
    }

    /// Returns the number of bins kept.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.sums.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const SCALE: Scale = Scale {
        bin_ns: S / 8,
        keep: 64,
    };

    #[test]
    fn a_track_forgets_the_far_past_and_survives_a_long_silence() {
        let mut track = Track::default();
        track.paint(SCALE, 0, 1000 * S);
        assert_eq!(track.len(), 64);
        assert_eq!(track.painted_ns(SCALE, 999 * S, 1000 * S), S);
        track.paint(SCALE, 100_000 * S, 100_001 * S);
        assert!(track.len() <= 64);
        assert_eq!(track.painted_ns(SCALE, 100_000 * S, 100_001 * S), S);
        assert_eq!(track.painted_ns(SCALE, 99_999 * S, 100_000 * S), 0);
        assert_eq!(track.painted_ns(SCALE, 0, S), 0);
    }

    #[test]
    fn what_is_older_than_all_that_is_kept_is_left_out() {
        const B: u64 = 128_000_000;
        let scale = Scale { bin_ns: B, keep: 4 };
        assert!(scale.is_even());
        let mut track = Track::default();
        track.paint(scale, 2 * B, 10 * B);
        track.paint(scale, 100 * B, 103 * B);
        assert_eq!(track.painted_ns(scale, 2 * B, 10 * B), 0);
        assert_eq!(track.painted_ns(scale, 100 * B, 110 * B), 3 * B);
    }

    #[test]
    fn a_long_span_is_the_same_as_its_moments() {
        let (mut whole, mut parts) = (Track::default(), Track::default());
        let ms = S / 1000;
        for (from, to) in [
            (3 * S + 7 * ms, 5 * S),
            (5 * S + ms, 9 * S + 333 * ms),
            (70 * S, 81 * S),
        ] {
            whole.paint(SCALE, from, to);
            (from / ms..to / ms).for_each(|at| parts.paint(SCALE, at * ms, (at + 1) * ms));
            for second in 0..82 {
                let of = |track: &Track| track.painted_ns(SCALE, second * S, (second + 1) * S);
                assert!(
                    of(&whole).abs_diff(of(&parts)) <= SCALE.step_ns(),
                    "{second} of {to}"
                );
            }
            assert_eq!(
                whole.first + whole.len() as u64,
                parts.first + parts.len() as u64
            );
        }
    }

    #[test]
    fn sums_that_wrap_and_steps_that_are_not_full_add_up() {
        let mut track = Track::default();
        // 40 % of each millisecond, for ten times the length that is kept.
        for ms in 0..80_000 {
            let from = ms * S / 1000;
            track.paint(SCALE, from, from + 400_000);
        }
        let painted = track.painted_ns(SCALE, 75 * S, 80 * S);
        assert!(painted.abs_diff(2 * S) <= SCALE.step_ns(), "{painted}");
    }
}
