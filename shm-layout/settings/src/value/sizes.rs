//! Sizes that a value's range depends on.

/// Process slots in a segment.
pub const MAX_PROCESSES: usize = 256;
/// Device entries in one process's slot.
pub const DEVICES_PER_PROCESS: usize = 16;
/// Records a buffer may have.
pub const RECORDS: std::ops::RangeInclusive<u32> = 1_000..=4_000_000;
/// Default number of records of a buffer: 8 MiB.
pub const DEFAULT_RECORDS: u32 = 262_144;
