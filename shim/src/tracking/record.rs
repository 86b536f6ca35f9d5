//! What the allocation map keeps of an allocation: its bytes, its context, and in one word its kind, where it is counted, and the
//! device it is on.

use crate::tracking::allocation_map::Record;

/// What an entry of the allocation map is: which free fits it, and what it is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Device memory with an address.
    Linear,
    /// The same, which the host may touch too.
    Managed,
    /// Device memory of a pool.
    Pooled,
    /// An array.
    Array,
    /// An array with its mip levels.
    Mipmapped,
    /// What a limit of a context takes. No free fits it.
    Limit,
    /// Pinned host memory the driver allocated.
    Host,
    /// Memory of a pool on the host.
    PooledHost,
    /// Host memory of the application's own, pinned.
    Registered,
    /// An allocation of another process's pool.
    PoolShared,
    /// Another process's memory.
    Shared,
    /// Another interface's memory.
    External,
    /// Device memory with an address, made of parts of our own.
    Swappable,
}

/// Where an allocation is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Counted {
    /// The device's ledger.
    Ledger,
    /// The counter of pinned host bytes.
    Pinned,
    /// The counter of imported bytes.
    Imported,
}

impl Kind {
    #[inline]
    /// Where such an allocation is counted.
    pub const fn counted(self) -> Counted {
        match self {
            Self::Linear
            | Self::Managed
            | Self::Pooled
            | Self::Array
            | Self::Mipmapped
            | Self::Limit
            | Self::Swappable => Counted::Ledger,
            Self::Host | Self::PooledHost | Self::Registered => Counted::Pinned,
            Self::PoolShared | Self::Shared | Self::External => Counted::Imported,
        }
    }
}

/// The record of an allocation.
#[inline]
pub fn new(bytes: u64, context: usize, kind: Kind, ordinal: u8) -> Record {
    let word = (kind as u64) << 16 | (kind.counted() as u64) << 8 | u64::from(ordinal);
    [bytes, context as u64, word]
}

/// The bytes asked for.
#[inline]
pub fn bytes(record: &Record) -> u64 {
    record[0]
}

/// The context whose end takes it away.
#[inline]
pub fn context(record: &Record) -> u64 {
    record[1]
}

/// Whether it is of this kind.
#[inline]
pub fn is(record: &Record, kind: Kind) -> bool {
    record[2] >> 16 == kind as u64
}

/// A set of kinds.
const fn set(kinds: &[Kind]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < kinds.len() {
        bits |= 1 << kinds[at] as u8;
        at += 1;
    }
    bits
}

#[inline]
fn is_one_of(record: &Record, kinds: u64) -> bool {
    kinds >> (record[2] >> 16 & 63) & 1 != 0
}

/// Whether `cuMemFree` and `cuMemFreeAsync` may free it: it is linear memory, or of a pool.
#[inline]
pub fn is_linear(record: &Record) -> bool {
    const ALL: u64 = set(&[Kind::Linear, Kind::Swappable, Kind::Managed, Kind::Host]) | OF_POOLS;
    is_one_of(record, ALL)
}

/// Whether a pool gave it: a primary context takes such memory along, a created one does not.
#[inline]
pub fn is_of_a_pool(record: &Record) -> bool {
    is_one_of(record, OF_POOLS)
}

const OF_POOLS: u64 = set(&[Kind::Pooled, Kind::PooledHost, Kind::PoolShared]);

/// Where it is counted.
#[inline]
pub fn counted(record: &Record) -> Counted {
    match (record[2] >> 8) as u8 {
        0 => Counted::Ledger,
        1 => Counted::Pinned,
        _ => Counted::Imported,
    }
}

/// The device it is on.
#[inline]
pub fn ordinal(record: &Record) -> u8 {
    record[2] as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_what_it_was_made_of() {
        for (kind, place) in [
            (Kind::Linear, Counted::Ledger),
            (Kind::Managed, Counted::Ledger),
            (Kind::Pooled, Counted::Ledger),
            (Kind::Array, Counted::Ledger),
            (Kind::Mipmapped, Counted::Ledger),
            (Kind::Limit, Counted::Ledger),
            (Kind::Host, Counted::Pinned),
            (Kind::PooledHost, Counted::Pinned),
            (Kind::Registered, Counted::Pinned),
            (Kind::PoolShared, Counted::Imported),
            (Kind::Shared, Counted::Imported),
            (Kind::External, Counted::Imported),
            (Kind::Swappable, Counted::Ledger),
        ] {
            let record = new(u64::MAX, 7, kind, 15);
            assert_eq!(
                (bytes(&record), context(&record), ordinal(&record)),
                (u64::MAX, 7, 15)
            );
            assert_eq!(counted(&record), place);
            assert!(is(&record, kind));
            assert_eq!(is(&record, Kind::Linear), kind == Kind::Linear);
            let pooled = matches!(kind, Kind::Pooled | Kind::PooledHost | Kind::PoolShared);
            assert_eq!(is_of_a_pool(&record), pooled);
            let linear = pooled
                || matches!(
                    kind,
                    Kind::Linear | Kind::Swappable | Kind::Managed | Kind::Host
                );
            assert_eq!(is_linear(&record), linear);
        }
    }
}
