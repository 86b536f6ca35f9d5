//! How a thread that writes a trace and the thread that takes the trace down agree, by two words: the mark and the pointer.
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
//! The keeper sees the mark, or the thread sees the new pointer. A thread that writes over and over is waited for once.
//! `tests/loom_trace.rs` compiles this file with loom's words and tries to break it.

use crate::primitive::{AtomicU32, Ordering::*, full};

/// A thread's mark. Only the thread writes it.
#[derive(Default)]
pub struct Mark(AtomicU32);

/// The thread writes until this is dropped.
pub struct Writing<'m>(&'m Mark);

fn is_odd(mark: u32) -> bool {
    mark & 1 == 1
}

/// The thread is about to look at the pointer; `None` when it writes already.
pub fn enter(mark: &Mark) -> Option<Writing<'_>> {
    let before = mark.0.load(Relaxed);
    if is_odd(before) {
        return None;
    }
    mark.0.store(before.wrapping_add(1), Relaxed);
    // ORDER: pairs with the full barrier in `changed`: it sees the mark, or we the new pointer.
    full();
    Some(Writing(mark))
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        leave(self.0);
    }
}

/// The thread does not write.
pub fn leave(mark: &Mark) {
    let before = mark.0.load(Relaxed);
    if is_odd(before) {
        // ORDER: pairs with the Acquire in `has_left`; what was written is in the buffer.
        mark.0.store(before.wrapping_add(1), Release);
    }
}

/// The pointer was changed. A look from here on shows each thread that may still have the old one.
pub fn changed() {
    // ORDER: pairs with the full barrier in `enter`.
    full();
}

/// How the mark stands. Asked behind [`changed`].
pub fn read(mark: &Mark) -> u32 {
    // ORDER: as in `has_left`.
    mark.0.load(Acquire)
}

/// Whether a thread whose mark stood so has nothing of the old any more.
pub fn has_left(mark: &Mark, seen: u32) -> bool {
    // ORDER: pairs with the Release in `leave`.
    !is_odd(seen) || mark.0.load(Acquire) != seen
}
