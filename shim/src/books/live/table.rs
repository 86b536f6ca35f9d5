//! One table of the map: pages of the kernel's, empty at first and touched as they fill, never moved and never unmapped.
#![allow(unsafe_code, reason = "maps the pages")]

use std::mem::size_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::bucket::Bucket;

/// A huge page: a table this large is asked to be made of them.
const HUGE: usize = 2 << 20;

/// Where a table is and how large: its address, and in the bits that an address of a page does not use, by how much a
/// hash is shifted to be a bucket's number.
#[derive(Clone, Copy)]
pub struct Table(usize);

const SHIFT: usize = 63;

impl Table {
    /// A table of 2^`bits` buckets; `None` when the system has no memory for it.
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
            // SAFETY: the mapping is ours; a kernel that does not know the advice refuses it.
            unsafe { libc::madvise(mapped, bytes, libc::MADV_HUGEPAGE) };
        }
        Some(Self(mapped as usize | (64 - bits as usize)))
    }

    /// Takes back a table that no thread was shown.
    fn unmake(self) {
        // SAFETY: the mapping is ours alone and not used again.
        unsafe {
            libc::munmap(
                self.base().cast_mut().cast(),
                size_of::<Bucket>() << self.bits(),
            )
        };
    }

    /// The bucket that a hash chooses by its upper bits, its number XORed with `within`, which is less than the number of
    /// buckets.
    #[inline(always)]
    pub fn bucket(self, hash: u64, within: usize) -> &'static Bucket {
        // A shift counts modulo 64: the address bits of the word do not matter.
        let index = hash.wrapping_shr(self.0 as u32) as usize ^ within;
        // SAFETY: an index of `bits` bits, and so many buckets are mapped.
        let bucket = unsafe { self.base().add(index) };
        // SAFETY: all-zero buckets are valid, and tables are never unmapped.
        unsafe { &*bucket }
    }

    /// All its buckets.
    pub fn buckets(self) -> &'static [Bucket] {
        // SAFETY: so many were mapped, all-zero ones are valid, and tables are never unmapped.
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

/// A place for a table.
#[derive(Default)]
pub struct Shelf(AtomicUsize);

impl Shelf {
    /// The table, if there is one.
    #[inline(always)]
    pub fn get(&self) -> Option<Table> {
        // ORDER: pairs with the Release in `put`; the pages are mapped and zero.
        match self.0.load(Ordering::Acquire) {
            0 => None,
            word => Some(Table(word)),
        }
    }

    /// Makes a table of 2^`bits` buckets unless there is one; losing the race to another thread is as good.
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

    /// Shows a table that another shelf has, unless it shows a larger one: who made that was quicker.
    pub fn show(&self, table: Table) {
        let larger =
            |shown: usize| (shown == 0 || Table(shown).bits() < table.bits()).then_some(table.0);
        // ORDER: Release as in `fill`; the word that was there is only looked at.
        let _ = self
            .0
            .fetch_update(Ordering::Release, Ordering::Relaxed, larger);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_table_that_comes_late_is_not_shown() {
        let shelf = Shelf::default();
        let sizes = [8, 12, 8];
        for bits in sizes {
            shelf.show(Table::make(bits).expect("room"));
        }
        let shown = shelf.get().expect("a table");
        assert_eq!(shown.buckets().len(), 1 << 12);
        // The last and the first bucket that a hash can choose are in it.
        for (hash, index) in [(0, 0), (u64::MAX, (1 << 12) - 1)] {
            let bucket: *const Bucket = shown.bucket(hash, 0);
            assert_eq!(bucket, &raw const shown.buckets()[index]);
        }
    }
}
