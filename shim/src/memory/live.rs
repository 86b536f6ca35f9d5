//! What is allocated right now: from an address or handle to what it was charged.
//!
//! The reader may rely on this: putting in and taking out cost the same with none and with 100 000 live; nothing here
//! ever waits for another thread, so a thread that was stopped, killed or forked away in the middle holds nobody up; and
//! of several threads that take the same key out, exactly one gets it.
//!
//! The map is a stack of tables, each four times the one before. A table is an array of buckets of eight places, so a
//! key is looked for in two cache lines and no place ever needs to be moved:
//!
//! ```text
//!   top   ▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏   new keys go here: first bucket, else the other one,
//!         ▕▏▕▏▕▏▕▏                            else down the stack, else a new table on top
//!         ▕▏
//! ```
//!
//! A place is claimed by one compare-and-swap of its key (`FREE` → `BUSY`), filled, and published by storing the key;
//! taking out goes the other way. Making the next table is the keeper's work (`grow_if_wanted`); an allocating thread does
//! it only when the keeper did not come in time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// No key has this value: the driver hands out neither 0 nor 1.
const FREE: u64 = 0;
const BUSY: u64 = 1;
const PLACES: usize = 8;
/// Buckets of the lowest table: 512 places.
const FIRST: usize = 64;
/// 64 · 4¹¹ buckets are more allocations than an address space holds.
const TABLES: usize = 12;

/// Three words that go with a key; what they mean is the caller's affair.
pub type Record = [u64; 3];

#[repr(align(64))]
#[derive(Default)]
struct Bucket {
    keys: [AtomicU64; PLACES],
    records: [[AtomicU64; 3]; PLACES],
}

/// The map. One for the whole process; an empty one allocates at its first use.
#[derive(Default)]
pub struct Live {
    tables: [OnceLock<Box<[Bucket]>>; TABLES],
    /// How many tables there are.
    height: AtomicUsize,
    /// A key found no place in the top table.
    wanted: AtomicBool,
}

impl Live {
    /// Remembers `record` under `key`. A key that is in already is in twice, and comes out twice.
    pub fn put(&self, key: u64, record: Record) {
        debug_assert!(key > BUSY, "the driver hands out neither 0 nor 1");
        let (first, second) = hashes(key);
        loop {
            // ORDER: pairs with the Release in grow; a height read means its tables are there.
            let height = self.height.load(Ordering::Acquire);
            for table in self.tables[..height].iter().rev().filter_map(OnceLock::get) {
                if bucket(table, first).put(key, record) || bucket(table, second).put(key, record) {
                    return;
                }
                self.wanted.store(true, Ordering::Relaxed);
            }
            if !self.grow(height) {
                return; // 2³⁰ places are full: the allocation stays charged until the process ends
            }
        }
    }

    /// Forgets `key` and returns its record, if the key is in and `fits` its record.
    #[inline(always)]
    pub fn take(&self, key: u64, fits: impl Fn(&Record) -> bool) -> Option<Record> {
        if key <= BUSY {
            return None;
        }
        let (first, second) = hashes(key);
        // ORDER: pairs with the Release in grow; a height read means its tables are there.
        let height = self.height.load(Ordering::Acquire);
        self.tables[..height]
            .iter()
            .rev()
            .filter_map(OnceLock::get)
            .find_map(|table| {
                let (first, second) = (bucket(table, first), bucket(table, second));
                first.take(key, &fits).or_else(|| second.take(key, &fits))
            })
    }

    /// Forgets every key whose record fits and hands each to `found`. Keys put in meanwhile may or may not be seen.
    pub fn drain(&self, fits: impl Fn(&Record) -> bool, mut found: impl FnMut(u64, Record)) {
        for bucket in self
            .tables
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|table| table.iter())
        {
            for place in &bucket.keys {
                let key = place.load(Ordering::Relaxed);
                if key > BUSY
                    && let Some(record) = bucket.take(key, &fits)
                {
                    found(key, record);
                }
            }
        }
    }

    /// The keeper's part: makes the next table before somebody has to wait for it.
    pub fn grow_if_wanted(&self) {
        if self.wanted.swap(false, Ordering::Relaxed) {
            self.grow(self.height.load(Ordering::Relaxed));
        }
    }

    /// Puts a table on top of `height` others; losing the race to another thread is as good.
    #[cold]
    fn grow(&self, height: usize) -> bool {
        let Some(table) = self.tables.get(height) else {
            return false;
        };
        table.get_or_init(|| {
            (0..FIRST << (2 * height))
                .map(|_| Bucket::default())
                .collect()
        });
        // ORDER: pairs with the Acquire in put and take; publishes the table below the new height.
        self.height.fetch_max(height + 1, Ordering::Release);
        true
    }
}

impl Bucket {
    #[inline(always)]
    fn put(&self, key: u64, record: Record) -> bool {
        for (place, words) in self.keys.iter().zip(&self.records) {
            if place.load(Ordering::Relaxed) != FREE {
                continue;
            }
            // ORDER: Acquire pairs with the Release that freed the place; our words come after the taker's reads.
            if place
                .compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            for (word, value) in words.iter().zip(record) {
                word.store(value, Ordering::Relaxed);
            }
            // ORDER: pairs with the Acquire in take; publishes the words.
            place.store(key, Ordering::Release);
            return true;
        }
        false
    }

    #[inline(always)]
    fn take(&self, key: u64, fits: &impl Fn(&Record) -> bool) -> Option<Record> {
        for (place, words) in self.keys.iter().zip(&self.records) {
            if place.load(Ordering::Relaxed) != key {
                continue;
            }
            // ORDER: Acquire pairs with the Release in put; the words read below are this key's.
            if place
                .compare_exchange(key, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            let record = [0, 1, 2].map(|index: usize| words[index].load(Ordering::Relaxed));
            let fitting = fits(&record);
            // ORDER: pairs with the Acquire in put and take; the next owner's accesses come after our reads.
            place.store(if fitting { FREE } else { key }, Ordering::Release);
            if fitting {
                return Some(record);
            }
        }
        None
    }
}

/// Two independent bucket numbers; addresses differ mostly in their middle bits, so both come from a full product.
fn hashes(key: u64) -> (usize, usize) {
    let product = u128::from(key) * 0x9e37_79b9_7f4a_7c15;
    let mixed = (product >> 64) as u64 ^ product as u64;
    (mixed as usize, mixed.rotate_right(32) as usize)
}

fn bucket(table: &[Bucket], hash: usize) -> &Bucket {
    &table[hash & (table.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;

    const ALL: fn(&Record) -> bool = |_| true;

    #[test]
    fn what_was_put_in_comes_out_once() {
        let live = Live::default();
        live.put(0x7f00_0000_0200, [512, 1, 2]);
        assert_eq!(
            live.take(0x7f00_0000_0200, |record| record[0] == 1),
            None,
            "it does not fit"
        );
        assert_eq!(live.take(0x7f00_0000_0200, ALL), Some([512, 1, 2]));
        assert_eq!(live.take(0x7f00_0000_0200, ALL), None);
        assert_eq!(live.take(0, ALL), None);
        assert_eq!(live.take(1, ALL), None);
    }

    #[test]
    fn a_hundred_thousand_live_keys_are_all_found() {
        let live = Live::default();
        let key = |index: u64| 0x7f00_0000_0000 + index * 512;
        for index in 0..100_000 {
            live.put(key(index), [index, 0, 0]);
            if index % 1000 == 0 {
                live.grow_if_wanted();
            }
        }
        for index in (0..100_000).rev() {
            assert_eq!(live.take(key(index), ALL), Some([index, 0, 0]));
        }
        let mut rest = 0;
        live.drain(ALL, |_, _| rest += 1);
        assert_eq!(rest, 0);
    }

    #[test]
    fn draining_takes_what_fits_and_leaves_the_rest() {
        let live = Live::default();
        for index in 0..5000_u64 {
            live.put(4096 + index * 64, [1, index % 2, 0]);
        }
        let mut odd = HashSet::new();
        live.drain(|record| record[1] == 1, |key, _| assert!(odd.insert(key)));
        assert_eq!(odd.len(), 2500);
        assert!(live.take(4096 + 64, ALL).is_none());
        assert!(live.take(4096, ALL).is_some());
    }

    #[test]
    fn of_many_threads_taking_one_key_exactly_one_gets_it() {
        let live = Live::default();
        let start = Barrier::new(4);
        let got: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut got = 0;
                        for round in 2..2000_u64 {
                            start.wait();
                            live.put(round * 4, [round, 0, 0]);
                            start.wait();
                            got += (0..4).filter_map(|_| live.take(round * 4, ALL)).count();
                        }
                        got
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        });
        assert_eq!(got, 4 * 1998);
    }

    #[test]
    fn threads_that_allocate_and_free_at_once_lose_nothing() {
        let live = Live::default();
        thread::scope(|scope| {
            for thread in 1..5_u64 {
                let live = &live;
                scope.spawn(move || {
                    for round in 0..20_000_u64 {
                        let key = (thread << 32) | ((round % 700) << 9) | 256;
                        live.put(key, [round, thread, key]);
                        assert_eq!(live.take(key, ALL), Some([round, thread, key]));
                    }
                });
            }
        });
        live.drain(ALL, |_, _| panic!("nothing is left"));
    }
}
