//! A bucket: four entries for keys with their records, in two neighbouring cache lines.
//!
//! A thread claims an entry by one compare-and-swap of its key (`FREE` → `BUSY`), fills it, and publishes it by
//! storing the key. Removal goes the other way. `tests/loom_live.rs` also compiles this file, with loom's atomics,
//! and explores its interleavings.

use crate::primitive::{AtomicU64, Ordering};

/// Key of a free entry. The driver hands out neither 0 nor 1.
pub const FREE: u64 = 0;
/// Key of an entry that a thread fills or empties.
pub const BUSY: u64 = 1;
/// Number of entries in a bucket.
pub const ENTRIES: usize = 4;

/// Three words that belong to a key. The caller defines their meaning.
pub type Record = [u64; 3];

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
