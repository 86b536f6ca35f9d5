//! The spans of time in which a lane is shown.

use std::ops::Range;

use super::BIN_NS;

/// Consecutive spans of equal length. Columns narrower than [`BIN_NS`] are known for the last seconds only; wider ones
/// begin where a bin begins.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// The time at which the first column begins.
    pub from_ns: u64,
    /// The width of each column.
    pub column_ns: u64,
}

impl Columns {
    /// Returns the begin and end of a column.
    pub fn span(self, column: usize) -> Range<u64> {
        // A recording may name any time.
        let after_ns = self.column_ns.saturating_mul(column as u64);
        let begin = self.from_ns.saturating_add(after_ns);
        begin..begin.saturating_add(self.column_ns)
    }

    /// Returns the time from which a column's activity is known.
    pub(super) fn begin(self, column: usize) -> u64 {
        let begin = self.span(column).start;
        match self.column_ns >= BIN_NS {
            true => begin / BIN_NS * BIN_NS,
            false => begin,
        }
    }

    /// Returns the column of a moment that is not before the first column.
    fn of(self, at_ns: u64) -> usize {
        let column = at_ns.saturating_sub(self.from_ns) / self.column_ns.max(1);
        let column = usize::try_from(column).unwrap_or(usize::MAX - 1);
        column + usize::from(self.begin(column + 1) <= at_ns)
    }

    /// Adds the share of each column that lies in a span.
    pub(super) fn add(self, from_ns: u64, to_ns: u64, shares: &mut [f32]) {
        let first = self.of(from_ns);
        let mut begin = self.begin(first);
        for (column, share) in shares.iter_mut().enumerate().skip(first) {
            if begin >= to_ns {
                break;
            }
            let end = self.begin(column + 1);
            let ns = end.min(to_ns).saturating_sub(begin.max(from_ns));
            *share += ns as f32 / (end - begin).max(1) as f32;
            begin = end;
        }
    }
}
