//! The protocol between a thread that writes a trace and the thread that removes the trace, by two words: the mark
//! and the pointer.
//!
//! ```text
//!   writing thread                       keeper
//!   mark += 1, odd: writing              pointer = another, or none
//!   full barrier                         full barrier
//!   pointer? ── none ─▶ mark += 1        mark odd? wait until it is another number
//!    │                                   unmap
//!   write
//!   mark += 1, even: not writing
//! ```
//!
//! The keeper sees the mark, or the thread sees the new pointer. A thread that writes over and over is waited for
//! once. `tests/loom_trace.rs` also compiles this file, with loom's atomics, and explores its interleavings.

use crate::primitive::{AtomicU32, Ordering::*, fence};

/// A thread's mark: odd while the thread writes. Only the thread changes it.
#[derive(Default)]
pub struct Mark(AtomicU32);

/// A scope in which the thread writes.
pub struct Writing<'m>(&'m Mark);

fn is_odd(mark: u32) -> bool {
    mark & 1 == 1
}

/// Marks the thread as writing before it reads the pointer. Returns `None` if it is already writing.
pub fn enter(mark: &Mark) -> Option<Writing<'_>> {
    let before = mark.0.load(Relaxed);
    if is_odd(before) {
        return None;
    }
    mark.0.store(before.wrapping_add(1), Relaxed);
    // ORDER: pairs with the full barrier in `changed`: that thread sees the mark, or this one the new pointer.
    fence(SeqCst);
    Some(Writing(mark))
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        leave(self.0);
    }
}

/// Marks the thread as not writing.
pub fn leave(mark: &Mark) {
    let before = mark.0.load(Relaxed);
    if is_odd(before) {
        // ORDER: Release pairs with the Acquire in `has_left`; the written records are in the buffer.
        mark.0.store(before.wrapping_add(1), Release);
    }
}

/// Orders a change of the pointer before later reads of the marks, which then show each thread that may still use the
/// old one.
pub fn changed() {
    // ORDER: pairs with the full barrier in `enter`.
    fence(SeqCst);
}

/// Returns the mark. Called after [`changed`].
pub fn read(mark: &Mark) -> u32 {
    // ORDER: Acquire as in `has_left`.
    mark.0.load(Acquire)
}

/// Returns true if a thread whose mark was `seen` does not use the old pointer any more.
pub fn has_left(mark: &Mark, seen: u32) -> bool {
    // ORDER: Acquire pairs with the Release in `leave`.
    !is_odd(seen) || mark.0.load(Acquire) != seen
}
