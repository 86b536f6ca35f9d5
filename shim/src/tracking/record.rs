//! The record of an allocation: its bytes, its context, and one word with its pool (48 bits), its counter and its kind
//! (4 bits each) and its device (8 bits). A bucket has four entries for keys with their records, in two neighbouring
//! cache lines.
//!
//! A thread claims an entry by one compare-and-swap of its key (`FREE` → `BUSY`), fills it, and publishes it by
//! storing the key. Removal goes the other way. `tests/loom_live.rs` also compiles this file, with loom's atomics,
//! and explores its interleavings.

use crate::primitive::{AtomicU64, Ordering};

/// Three words that belong to a key.
pub type Record = [u64; 3];

/// The kind of an allocation, which decides how it may be freed and where it is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Device memory with an address.
    Linear,
    /// Managed memory, which the host may access too.
    Managed,
    /// Device memory of a pool.
    Pooled,
    /// An array.
    Array,
    /// An array with mip levels.
    Mipmapped,
    /// Memory reserved by a limit of a context. No free call applies to it.
    Limit,
    /// Pinned host memory allocated by the driver.
    Host,
    /// Host memory of a pool.
    PooledHost,
    /// Host memory of the application, pinned by `cuMemHostRegister`.
    Registered,
    /// An allocation of another process's pool.
    PoolShared,
    /// Memory of another process.
    Shared,
    /// Memory of another interface.
    External,
    /// Device memory with an address that the shim has mapped itself, so that it can be evicted.
    Swappable,
}

/// The counter to which an allocation is charged.
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
    /// Returns the counter for this kind.
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

/// Creates the record of an allocation.
#[inline]
pub fn new(bytes: u64, context: usize, kind: Kind, ordinal: u8) -> Record {
    [
        bytes,
        context as u64,
        of_kind(kind) << 8 | u64::from(ordinal),
    ]
}

/// Returns a kind and its counter as one byte.
const fn of_kind(kind: Kind) -> u64 {
    (kind.counted() as u64) << 4 | kind as u64
}

/// Returns the record with the pool from which the allocation is. A handle of more than 48 bits, which no driver is known to
/// use, is not kept.
pub fn with_pool([bytes, context, word]: Record, pool: usize) -> Record {
    let pool = pool as u64;
    let kept = if pool >> 48 == 0 { pool << 16 } else { 0 };
    [bytes, context, kept | word]
}

/// Returns the handle of the allocation's pool; 0 if it is from none, or from an unknown one.
pub fn pool(record: &Record) -> usize {
    (record[2] >> 16) as usize
}

/// Returns the requested bytes.
#[inline]
pub fn bytes(record: &Record) -> u64 {
    record[0]
}

/// Returns the context with which the allocation ends.
#[inline]
pub fn context(record: &Record) -> u64 {
    record[1]
}

/// Returns true if the allocation is of this kind.
#[inline]
pub fn is(record: &Record, kind: Kind) -> bool {
    u64::from((record[2] >> 8) as u8) == of_kind(kind)
}

/// Returns a set of kinds as a bit mask.
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
    kinds >> (record[2] >> 8 & 15) & 1 != 0
}

/// Returns true if `cuMemFree` and `cuMemFreeAsync` may free the allocation: it is linear memory, or from a pool.
#[inline]
pub fn is_linear(record: &Record) -> bool {
    const ALL: u64 = set(&[Kind::Linear, Kind::Swappable, Kind::Managed, Kind::Host]) | OF_POOLS;
    is_one_of(record, ALL)
}

/// Returns true if the allocation is from a pool. Such memory ends with a primary context, but not with a created
/// one.
#[inline]
pub fn is_of_a_pool(record: &Record) -> bool {
    is_one_of(record, OF_POOLS)
}

const OF_POOLS: u64 = set(&[Kind::Pooled, Kind::PooledHost, Kind::PoolShared]);

/// Returns the counter to which the allocation is charged.
#[inline]
pub fn counted(record: &Record) -> Counted {
    match record[2] >> 12 & 15 {
        0 => Counted::Ledger,
        1 => Counted::Pinned,
        _ => Counted::Imported,
    }
}

/// Returns the ordinal of the allocation's device.
#[inline]
pub fn ordinal(record: &Record) -> u8 {
    record[2] as u8
}

/// Key of a free entry. The driver hands out neither 0 nor 1.
pub const FREE: u64 = 0;
/// Key of an entry that a thread fills or empties.
pub const BUSY: u64 = 1;
/// Number of entries in a bucket.
pub const ENTRIES: usize = 4;

/// A key and its record.
#[derive(Default)]
#[repr(C, align(32))]
pub struct Entry {
    key: AtomicU64,
    record: [AtomicU64; 3],
}

/// A group of entries. All-zero bytes are an empty bucket.
#[derive(Default)]
#[repr(C, align(128))]
pub struct Bucket([Entry; ENTRIES]);

impl Entry {
    #[inline(always)]
    fn record(&self) -> Record {
        let [one, two, three] = &self.record;
        [
            one.load(Ordering::Relaxed),
            two.load(Ordering::Relaxed),
            three.load(Ordering::Relaxed),
        ]
    }

    /// Empties a claimed entry and returns its record.
    #[inline(always)]
    pub fn empty(&self) -> Record {
        let record = self.record();
        // ORDER: Release pairs with the Acquire in `put`, so that the next owner's words come after these reads.
        self.key.store(FREE, Ordering::Release);
        record
    }
}

impl Bucket {
    /// Adds a key. Returns false if no entry is free.
    #[inline(always)]
    pub fn put(&self, key: u64, record: &Record) -> bool {
        for entry in &self.0 {
            if entry.key.load(Ordering::Relaxed) != FREE {
                continue;
            }
            // ORDER: Acquire pairs with the Release that freed the entry, so that these words come after the reads of
            // the thread that freed it.
            if entry
                .key
                .compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            for (word, value) in entry.record.iter().zip(record) {
                word.store(*value, Ordering::Relaxed);
            }
            // ORDER: Release pairs with the Acquire in `claim` and publishes the words.
            entry.key.store(key, Ordering::Release);
            return true;
        }
        false
    }

    /// Finds a key whose record satisfies `fits`, and claims its entry, so that no other thread finds it. A record
    /// that does not fit is only read, because a claim would hide it from the thread that it fits.
    #[inline(always)]
    pub fn claim(&self, key: u64, fits: impl Fn(&Record) -> bool) -> Option<&Entry> {
        for entry in &self.0 {
            // ORDER: Acquire pairs with the Release in `put`: the words belong to this key or to a later one of this
            // entry.
            if entry.key.load(Ordering::Acquire) != key || !fits(&entry.record()) {
                continue;
            }
            // ORDER: Acquire pairs with the Release in `put`: the words read from now on belong to this key.
            if entry
                .key
                .compare_exchange(key, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            if fits(&entry.record()) {
                return Some(entry);
            }
            // The key was removed and added again since its record was read.
            // ORDER: Release as in `put`.
            entry.key.store(key, Ordering::Release);
        }
        None
    }

    /// Returns the keys that are present now.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        let keys = self.0.iter().map(|entry| entry.key.load(Ordering::Relaxed));
        keys.filter(|key| *key > BUSY)
    }
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
            assert_eq!(pool(&record), 0);
            let record = with_pool(record, 0x7fff_ffff_fff0);
            assert_eq!(pool(&record), 0x7fff_ffff_fff0);
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
