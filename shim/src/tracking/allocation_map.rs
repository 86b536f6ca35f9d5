//! The allocation map: the records of the current allocations, by address or handle.
//!
//! Its guarantees: adding and removing a key costs about the same with 0 and with 100 000 keys. No operation waits
//! for another thread, so a thread that was stopped, killed or forked away in the middle of one delays no other. If
//! several threads remove the same key, exactly one gets its record.
//!
//! The map is a stack of tables, each sixteen times as large as the one before. A table is an array of buckets of
//! four entries. A key belongs to one of two buckets of a table, and no entry is ever moved:
//!
//! ```text
//!   top   ▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏▕▏   new keys go here: first bucket, else the second,
//!         ▕▏▕▏▕▏▕▏                            else down the stack, else a new table on top
//!         ▕▏
//! ```
//!
//! Cache misses dominate the cost of a large map. So a key lies beside its record, and neighbouring addresses have
//! the same first bucket or the next one: a driver that returns successive addresses finds their buckets in the
//! cache. The second bucket is chosen at random.
//!
//! The keeper creates the next table (`grow_if_wanted`). An allocating thread does so only if the keeper was too
//! late.
//!
//! A table consists of pages mapped from the kernel, which are zero at first and touched as they fill. It is never
//! moved or unmapped.
#![allow(unsafe_code, reason = "maps the pages")]

use std::{
    mem::size_of,
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::tracking::record::{BUSY, Bucket, ENTRIES, Entry, Record};

/// Buckets of the lowest table, as a power of two: 1 024 entries.
const FIRST: u32 = 8;
/// Growth of a table over the one before, as a power of two. The last has 2²⁶ entries, more than a driver can hand
/// out.
const GROWTH: u32 = 4;
const TABLES: usize = 5;

/// The records of the current allocations. A process has one map; it allocates its first table at the first use.
#[derive(Default)]
pub struct AllocationMap {
    /// The largest table.
    top: TableSlot,
    tables: [TableSlot; TABLES],
    /// The top table had no free entry for a key.
    wanted: AtomicBool,
}

impl AllocationMap {
    /// Adds `record` under `key`. A key that is added twice can be removed twice.
    #[inline(always)]
    pub fn put(&self, key: u64, record: Record) {
        debug_assert!(key > BUSY, "the driver hands out neither 0 nor 1");
        let hashes = Hashes::of(key);
        let put = |table| hashes.first(table).put(key, &record);
        if !self.top.get().is_some_and(put) {
            self.put_elsewhere(key, record);
        }
    }

    /// Does the work of [`put`](Self::put) if the first bucket is full or there is no table.
    #[cold]
    #[inline(never)]
    pub fn put_elsewhere(&self, key: u64, record: Record) {
        let hashes = Hashes::of(key);
        loop {
            let height = self.height();
            for (index, table) in self.stack().enumerate() {
                if hashes.both(table).any(|bucket| bucket.put(key, &record)) {
                    return;
                }
                if index == 0 {
                    self.wanted.store(true, Ordering::Relaxed);
                }
            }
            if !self.grow(height) {
                return; // full, or no memory: the allocation stays charged until the process ends
            }
        }
    }

    /// Removes `key` and returns its record, if there is one that satisfies `fits`.
    #[inline(always)]
    pub fn take(&self, key: u64, fits: impl Fn(&Record) -> bool + Copy) -> Option<Record> {
        if key <= BUSY {
            return None;
        }
        let bucket = Hashes::of(key).first(self.top.get()?);
        let entry = match bucket.claim(key, fits) {
            Some(entry) => entry,
            None => self.claim_elsewhere(key, fits)?,
        };
        Some(entry.empty())
    }

    /// Claims a key that is not in its first bucket of the top table.
    #[cold]
    #[inline(never)]
    fn claim_elsewhere(
        &self,
        key: u64,
        fits: impl Fn(&Record) -> bool + Copy,
    ) -> Option<&'static Entry> {
        let hashes = Hashes::of(key);
        self.stack()
            .flat_map(|table| hashes.both(table))
            .find_map(|bucket| bucket.claim(key, fits))
    }

    /// Removes every key whose record satisfies `fits` and passes each to `found`. Keys added at the same time may be
    /// missed.
    pub fn drain(&self, fits: impl Fn(&Record) -> bool, mut found: impl FnMut(u64, Record)) {
        for bucket in self.stack().flat_map(|table| table.buckets()) {
            for key in bucket.keys() {
                if let Some(entry) = bucket.claim(key, &fits) {
                    found(key, entry.empty());
                }
            }
        }
    }

    /// Creates the next table before a thread has to; the keeper calls this.
    pub fn grow_if_wanted(&self) {
        let height = self.height();
        if self.wanted.swap(false, Ordering::Relaxed) && self.top.get().is_none_or(is_half_full) {
            self.grow(height);
        }
    }

    /// Returns the tables, the largest first.
    fn stack(&self) -> impl Iterator<Item = Table> {
        self.tables.iter().rev().filter_map(TableSlot::get)
    }

    /// Returns the number of tables.
    fn height(&self) -> usize {
        let made = self.tables.iter().map(TableSlot::get);
        made.take_while(Option::is_some).count()
    }

    /// Adds a table on top of `height` others. If another thread has added it first, that table is used.
    fn grow(&self, height: usize) -> bool {
        let bits = FIRST + GROWTH * height as u32;
        let made = self.tables.get(height).and_then(|slot| slot.fill(bits));
        let Some(table) = made else {
            return false;
        };
        self.top.show(table);
        true
    }
}

/// Estimates from a sample of the buckets whether half of the entries are in use.
fn is_half_full(table: Table) -> bool {
    let buckets = table.buckets();
    let sample = buckets.iter().step_by(buckets.len() >> FIRST);
    let taken: usize = sample.map(|bucket| bucket.keys().count()).sum();
    taken >= (ENTRIES << FIRST) / 2
}

/// The hashes that choose the two buckets of a key.
struct Hashes {
    first: u64,
    within: usize,
    second: u64,
}

impl Hashes {
    /// Hashes a key. The first bucket is one of a group of 32, chosen by the 32 KiB block that contains the address.
    /// Addresses at a distance of 512 bytes, which the driver uses, are two to a bucket in consecutive buckets;
    /// closer ones are spread over the group.
    #[inline(always)]
    fn of(key: u64) -> Self {
        Self {
            first: (key >> 15).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            within: ((key >> 10 ^ (key >> 6 & 7) << 2) & 31) as usize,
            second: key.wrapping_mul(0xd6e8_feb8_6659_fd93),
        }
    }

    #[inline(always)]
    fn first(&self, table: Table) -> &'static Bucket {
        table.bucket(self.first, self.within)
    }

    fn both(&self, table: Table) -> impl Iterator<Item = &'static Bucket> + use<> {
        [self.first(table), table.bucket(self.second, 0)].into_iter()
    }
}

/// Size of a huge page in bytes. A table of at least this size is advised to use huge pages.
const HUGE: usize = 2 << 20;

/// The address and the size of a table in one word. The bits that a page's address leaves unused contain the shift
/// that turns a hash into a bucket's number.
#[derive(Clone, Copy)]
pub struct Table(usize);

const SHIFT: usize = 63;

impl Table {
    /// Creates a table of 2^`bits` buckets. Returns `None` if the system has no memory for it.
    pub fn make(bits: u32) -> Option<Self> {
        let bytes = size_of::<Bucket>() << bits;
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let mapped = unsafe {
            libc::mmap(
                null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        if bytes >= HUGE {
            // SAFETY: the mapping belongs to this table; a kernel that does not support the advice refuses it.
            unsafe { libc::madvise(mapped, bytes, libc::MADV_HUGEPAGE) };
        }
        Some(Self(mapped as usize | (64 - bits as usize)))
    }

    /// Unmaps a table that no other thread has seen.
    fn unmake(self) {
        // SAFETY: no other thread has seen the mapping, and it is not used again.
        unsafe {
            libc::munmap(
                self.base().cast_mut().cast(),
                size_of::<Bucket>() << self.bits(),
            )
        };
    }

    /// Returns the bucket whose number is the upper bits of `hash`, XORed with `within`. `within` must be less than
    /// the number of buckets.
    #[inline(always)]
    pub fn bucket(self, hash: u64, within: usize) -> &'static Bucket {
        // The shift count is taken modulo 64, so the address bits of the word do not matter.
        let index = hash.wrapping_shr(self.0 as u32) as usize ^ within;
        // SAFETY: the index has `bits` bits, and 2^`bits` buckets are mapped.
        let bucket = unsafe { self.base().add(index) };
        // SAFETY: all-zero buckets are valid, and tables are never unmapped.
        unsafe { &*bucket }
    }

    /// Returns all buckets of the table.
    pub fn buckets(self) -> &'static [Bucket] {
        // SAFETY: this many buckets were mapped, all-zero ones are valid, and tables are never unmapped.
        unsafe { std::slice::from_raw_parts(self.base(), 1 << self.bits()) }
    }

    #[inline(always)]
    fn base(self) -> *const Bucket {
        (self.0 & !SHIFT) as *const Bucket
    }

    fn bits(self) -> usize {
        64 - (self.0 & SHIFT)
    }
}

/// An atomic slot for a table.
#[derive(Default)]
pub struct TableSlot(AtomicUsize);

impl TableSlot {
    /// Returns the table, or `None`.
    #[inline(always)]
    pub fn get(&self) -> Option<Table> {
        // ORDER: Acquire pairs with the Release in `fill` and `show`, so that the mapping is visible.
        match self.0.load(Ordering::Acquire) {
            0 => None,
            word => Some(Table(word)),
        }
    }

    /// Creates a table of 2^`bits` buckets unless the slot has one. If another thread creates it first, that one is
    /// used.
    pub fn fill(&self, bits: u32) -> Option<Table> {
        if let Some(table) = self.get() {
            return Some(table);
        }
        let table = Table::make(bits)?;
        // ORDER: pairs with the Acquire in `get`; publishes the mapping.
        let filled = self
            .0
            .compare_exchange(0, table.0, Ordering::AcqRel, Ordering::Acquire);
        if filled.is_err() {
            table.unmake();
        }
        self.get()
    }

    /// Stores a table of another slot, unless this slot already has a larger one.
    pub fn show(&self, table: Table) {
        let larger =
            |shown: usize| (shown == 0 || Table(shown).bits() < table.bits()).then_some(table.0);
        // ORDER: Release as in `fill`; the previous word is only compared.
        let _ = self
            .0
            .fetch_update(Ordering::Release, Ordering::Relaxed, larger);
    }
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
        let map = AllocationMap::default();
        map.put(0x7f00_0000_0200, [512, 1, 2]);
        assert_eq!(
            map.take(0x7f00_0000_0200, |record| record[0] == 1),
            None,
            "it does not fit"
        );
        assert_eq!(map.take(0x7f00_0000_0200, ALL), Some([512, 1, 2]));
        assert_eq!(map.take(0x7f00_0000_0200, ALL), None);
        assert_eq!(map.take(0, ALL), None);
        assert_eq!(map.take(1, ALL), None);
    }

    #[test]
    fn a_hundred_thousand_live_keys_are_all_found() {
        let map = AllocationMap::default();
        let key = |index: u64| 0x7f00_0000_0000 + index * 512;
        for index in 0..100_000 {
            map.put(key(index), [index, 0, 0]);
            if index % 1000 == 0 {
                map.grow_if_wanted();
            }
        }
        for index in (0..100_000).rev() {
            assert_eq!(map.take(key(index), ALL), Some([index, 0, 0]));
        }
        let mut rest = 0;
        map.drain(ALL, |_, _| rest += 1);
        assert_eq!(rest, 0);
    }

    #[test]
    fn keys_at_any_distance_are_all_found() {
        for distance in [2, 64, 512, 12_345, 2 << 20, 1 << 36] {
            let map = AllocationMap::default();
            let key = |index: u64| (1 << 40) + index * distance;
            for index in 0..20_000 {
                map.put(key(index), [index, 0, 0]);
            }
            for index in 0..20_000 {
                assert_eq!(map.take(key(index), ALL), Some([index, 0, 0]));
            }
        }
    }

    #[test]
    fn of_many_threads_that_find_it_full_one_makes_the_next_table() {
        let map = AllocationMap::default();
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (map, start) = (&map, &start);
                scope.spawn(move || {
                    start.wait();
                    for index in 0..2_000 {
                        map.put((thread << 32) + (index + 1) * 512, [0; 3]);
                    }
                });
            }
        });
        assert_eq!(map.height(), 2, "8 000 keys have room in the second");
    }

    #[test]
    fn draining_takes_what_fits_and_leaves_the_rest() {
        let map = AllocationMap::default();
        for index in 0..5000_u64 {
            map.put(4096 + index * 64, [1, index % 2, 0]);
        }
        let mut odd = HashSet::new();
        map.drain(|record| record[1] == 1, |key, _| assert!(odd.insert(key)));
        assert_eq!(odd.len(), 2500);
        assert!(map.take(4096 + 64, ALL).is_none());
        assert!(map.take(4096, ALL).is_some());
    }

    #[test]
    fn of_many_threads_taking_one_key_exactly_one_gets_it() {
        let map = AllocationMap::default();
        let start = Barrier::new(4);
        let got: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut got = 0;
                        for round in 2..2000_u64 {
                            start.wait();
                            map.put(round * 4, [round, 0, 0]);
                            start.wait();
                            got += (0..4).filter_map(|_| map.take(round * 4, ALL)).count();
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
        let map = AllocationMap::default();
        thread::scope(|scope| {
            for thread in 1..5_u64 {
                let map = &map;
                scope.spawn(move || {
                    for round in 0..20_000_u64 {
                        let key = (thread << 32) | ((round % 700) << 9) | 256;
                        map.put(key, [round, thread, key]);
                        assert_eq!(map.take(key, ALL), Some([round, thread, key]));
                    }
                });
            }
        });
        map.drain(ALL, |_, _| panic!("nothing is left"));
    }
}

#[cfg(test)]
mod table_tests {
    use super::*;

    #[test]
    fn a_smaller_table_that_comes_late_is_not_shown() {
        let slot = TableSlot::default();
        let sizes = [8, 12, 8];
        for bits in sizes {
            slot.show(Table::make(bits).expect("room"));
        }
        let shown = slot.get().expect("a table");
        assert_eq!(shown.buckets().len(), 1 << 12);
        // The last and the first bucket that a hash can choose are in it.
        for (hash, index) in [(0, 0), (u64::MAX, (1 << 12) - 1)] {
            let bucket: *const Bucket = shown.bucket(hash, 0);
            assert_eq!(bucket, &raw const shown.buckets()[index]);
        }
    }
}
