//! A value over the last ten minutes: one point every two seconds.

use std::collections::VecDeque;

/// The length of one point.
pub const POINT_NS: u64 = 2_000_000_000;
/// The number of points kept: ten minutes.
const POINTS: usize = 300;
/// Numbers of points that a chart can span: the smallest that holds all points is used.
const SPANS: [usize; 10] = [15, 30, 45, 60, 90, 120, 150, 180, 240, POINTS];

/// The points, newest last.
#[derive(Clone, Debug, Default)]
pub struct Timeline<T> {
    points: VecDeque<T>,
    /// The number of the newest point, counted from boot; 0 before there is one.
    at: u64,
}

impl<T: Copy> Timeline<T> {
    /// Reports whether the next point is due.
    pub fn is_due(&self, now_ns: u64) -> bool {
        point(now_ns) > self.at
    }

    /// Adds the current value. Points missed since the last call get the same value.
    pub fn put(&mut self, value: T, now_ns: u64) {
        let point = point(now_ns);
        let missed = match self.at {
            0 => 1,
            last => point.saturating_sub(last).min(POINTS as u64),
        };
        for _ in 0..missed {
            if self.points.len() == POINTS {
                self.points.pop_front();
            }
            // There are hundreds of timelines: doubling would leave nearly half of their memory unused.
            if self.points.len() == self.points.capacity() {
                self.points.reserve_exact(POINTS / 10);
            }
            self.points.push_back(value);
        }
        if let Some(last) = self.points.back_mut() {
            *last = value;
        }
        self.at = point;
    }

    /// Returns the last `count` points, or fewer if there are fewer.
    pub fn last(&self, count: usize) -> impl Iterator<Item = T> {
        let skip = self.points.len().saturating_sub(count);
        self.points.iter().skip(skip).copied()
    }

    /// Returns the time span of a chart: a round time that holds all points.
    pub fn span_ns(&self) -> u64 {
        self.span() as u64 * POINT_NS
    }

    fn span(&self) -> usize {
        let holds = |span: &&usize| **span >= self.points.len();
        SPANS.iter().find(holds).copied().unwrap_or(POINTS)
    }

    /// Returns that span as `columns` points, oldest first; `None` before the first point.
    pub fn columns(&self, columns: usize) -> Vec<Option<T>> {
        let last = self.span() - 1;
        let at = |column: usize| {
            let back = last - column * last / columns.saturating_sub(1).max(1);
            let index = self.points.len().checked_sub(back + 1)?;
            self.points.get(index).copied()
        };
        (0..columns).map(at).collect()
    }
}

/// Returns the number of the point that contains a moment.
fn point(now_ns: u64) -> u64 {
    (now_ns / POINT_NS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn seen(seconds: u64) -> Timeline<u64> {
        let mut line = Timeline::default();
        for second in 0..seconds {
            line.put(second, (100 + second) * S);
        }
        line
    }

    #[test]
    fn a_picture_spans_a_round_time_that_holds_all_there_is() {
        assert_eq!(seen(1).span_ns(), 30 * S);
        assert_eq!(seen(50).span_ns(), 60 * S);
        assert_eq!(seen(100).span_ns(), 120 * S);
        assert_eq!(seen(2000).span_ns(), 600 * S);
    }

    #[test]
    fn what_was_before_the_first_sight_is_unknown_and_the_newest_is_last() {
        let points = seen(40).columns(60);
        assert_eq!(points.len(), 60);
        assert_eq!(points[0], None);
        assert_eq!(points[59], Some(39));
        assert_eq!(seen(40).columns(1).len(), 1);
        assert_eq!(seen(40).columns(0), []);
    }

    #[test]
    fn a_silence_is_filled_and_memory_is_bounded() {
        let mut line = seen(10);
        line.put(7, 100_000 * S);
        assert_eq!(line.last(9999).count(), POINTS);
        assert_eq!(line.last(2).collect::<Vec<_>>(), [7, 7]);
    }
}
