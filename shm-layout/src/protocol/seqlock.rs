//! A record of words that is read whole or not at all.
//!
//! One writer at a time (its keeper is the caller) and any number of readers, which write nothing and may map the record
//! read-only. A writer that is killed in the middle leaves an odd sequence. Readers give up after a number of attempts and go
//! on with their earlier values, and the next writer starts over from the same odd number.

use crate::protocol::primitive::{AtomicU64, Ordering, READ_ATTEMPTS, fence, pause};

/// Writes all words. Words beyond `values` become zero.
pub fn write(seq: &AtomicU64, words: &[AtomicU64], values: &[u64]) {
    let odd = seq.load(Ordering::Relaxed) | 1;
    seq.store(odd, Ordering::Relaxed);
    // ORDER: pairs with the Acquire fence in read; a reader that sees a new word sees the odd sequence too.
    fence(Ordering::Release);
    for (index, word) in words.iter().enumerate() {
        word.store(values.get(index).copied().unwrap_or(0), Ordering::Relaxed);
    }
    // ORDER: pairs with the Acquire load in read; publishes the words.
    seq.store(odd.wrapping_add(1), Ordering::Release);
}

/// Reads all words as one writer left them; `None` if a writer was busy (or died) all the while.
pub fn read(seq: &AtomicU64, words: &[AtomicU64], out: &mut [u64]) -> Option<()> {
    for _ in 0..READ_ATTEMPTS {
        // ORDER: pairs with the Release store that ends write; its words are visible.
        let before = seq.load(Ordering::Acquire);
        if before & 1 == 0 {
            for (value, word) in out.iter_mut().zip(words) {
                *value = word.load(Ordering::Relaxed);
            }
            // ORDER: pairs with the Release fence in write; a newer word makes the sequence below differ.
            fence(Ordering::Acquire);
            if seq.load(Ordering::Relaxed) == before {
                return Some(());
            }
        }
        pause();
    }
    None
}
