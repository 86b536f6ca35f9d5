//! The spans of time in which a lane is shown.

use std::ops::Range;

use super::BIN_NS;

/// Consecutive spans of equal length. Columns narrower than [`BIN_NS`] are known for the last seconds only; wider ones are
/// whole bins.
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

    /// Returns the begin of the first column.
    pub(super) fn begin(self) -> u64 {
        match self.column_ns < BIN_NS {
            true => self.from_ns,
            false => self.from_ns / BIN_NS * BIN_NS,
        }
    }
}
