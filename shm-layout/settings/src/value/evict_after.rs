//! The idle time after which a process is evicted.

use std::ops::RangeInclusive;

/// After which idle time a process is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictAfter {
    /// Never by itself.
    Never,
    /// When the application has called nothing of the driver for so many nanoseconds.
    Idle(u64),
}

impl EvictAfter {
    /// The shortest and the longest idle time.
    pub const SPANS: RangeInclusive<u64> = 100_000_000..=30 * 24 * 3_600_000_000_000;

    /// The idle time, if there is one.
    pub fn ns(self) -> Option<u64> {
        match self {
            EvictAfter::Never => None,
            EvictAfter::Idle(ns) => Some(ns),
        }
    }

    /// Whether it makes sense.
    pub fn is_valid(self) -> bool {
        self.ns().is_none_or(|ns| Self::SPANS.contains(&ns))
    }
}
