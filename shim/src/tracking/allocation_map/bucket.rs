//! Four places for keys with their records, in two neighbouring cache lines.
//!
//! A place is claimed by one compare-and-swap of its key (`FREE` → `BUSY`), filled, and published by storing the key;
//! taking out goes the other way. `tests/loom_live.rs` compiles this file with loom's words and tries to break it.

use crate::primitive::{AtomicU64, Ordering};

/// No key has this value: the driver hands out neither 0 nor 1.
pub const FREE: u64 = 0;
/// A thread fills or empties the place.
pub const BUSY: u64 = 1;
/// Places of a bucket.
pub const ENTRIES: usize = 4;

/// Three words that go with a key; the caller gives them their meaning.
pub type Record = [u64; 3];

/// A key and its record.
#[derive(Default)]
#[repr(C, align(32))]
pub struct Entry {
    key: AtomicU64,
    record: [AtomicU64; 3],
}

/// Some places. All-zero is an empty one.
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

    /// Empties a claimed place.
    #[inline(always)]
    pub fn empty(&self) -> Record {
        let record = self.record();
        // ORDER: pairs with the Acquire in put; the next owner's words come after our reads.
        self.key.store(FREE, Ordering::Release);
        record
    }
}

impl Bucket {
    /// Puts a key in, if there is a free place.
    #[inline(always)]
    pub fn put(&self, key: u64, record: &Record) -> bool {
        for entry in &self.0 {
            if entry.key.load(Ordering::Relaxed) != FREE {
                continue;
            }
            // ORDER: Acquire pairs with the Release that freed the place; our words come after the taker's reads.
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
            // ORDER: pairs with the Acquire in claim; publishes the words.
            entry.key.store(key, Ordering::Release);
            return true;
        }
        false
    }

    /// Finds a key whose record fits and claims its place: no other thread finds it any more. A record that does not fit is
    /// only read, for a claim would hide it from the thread that it does fit.
    #[inline(always)]
    pub fn claim(&self, key: u64, fits: impl Fn(&Record) -> bool) -> Option<&Entry> {
        for entry in &self.0 {
            // ORDER: Acquire pairs with the Release in put; the words are this key's, or those of one that came after it.
            if entry.key.load(Ordering::Acquire) != key || !fits(&entry.record()) {
                continue;
            }
            // ORDER: Acquire pairs with the Release in put; the words read from now on are this key's.
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
            // The key was taken out and put in again since its record was read. ORDER: as in put.
            entry.key.store(key, Ordering::Release);
        }
        None
    }

    /// The keys that are in just now.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        let keys = self.0.iter().map(|entry| entry.key.load(Ordering::Relaxed));
        keys.filter(|key| *key > BUSY)
    }
}
