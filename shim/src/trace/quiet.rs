//! The bargain between a thread that writes a trace and whoever takes it down, on two words: the mark and the pointer.
//!
//! ```text
//!   writing thread                       keeper
//!   mark = WRITING                       pointer = another, or none
//!   full barrier                         full barrier
//!   pointer? ── none ─▶ mark = QUIET     while mark == WRITING: wait
//!    │                                   unmap
//!   write
//!   mark = QUIET
//! ```
//!
//! The keeper sees the mark, or the thread sees the new pointer. `tests/loom_trace.rs` compiles this file with loom's words
//! and tries to break it.

use crate::primitive::{AtomicU32, Ordering::*, full};

/// A thread's mark.
#[derive(Default)]
pub struct Mark(AtomicU32);

/// The thread writes until this is dropped.
pub struct Writing<'m>(&'m Mark);

/// The thread is about to look at the pointer; `None` when it writes already.
pub fn enter(mark: &Mark) -> Option<Writing<'_>> {
    if mark.0.load(Relaxed) != 0 {
        return None;
    }
    mark.0.store(1, Relaxed);
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
    // ORDER: pairs with the Acquire in `is_writing`; what was written is in the buffer.
    mark.0.store(0, Release);
}

/// The pointer was changed: from here on a mark that is not set is final.
pub fn changed() {
    // ORDER: pairs with the full barrier in `enter`.
    full();
}

/// Whether the thread may still have the old pointer. Asked behind [`changed`].
pub fn is_writing(mark: &Mark) -> bool {
    // ORDER: pairs with the Release in `leave`.
    mark.0.load(Acquire) != 0
}
