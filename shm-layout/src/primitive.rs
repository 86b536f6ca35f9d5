//! The one module that names atomics, so that `tests/loom.rs` can put loom's in their place under the protocols.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// How often a reader tries to find a record whole before it gives up.
pub(crate) const READ_ATTEMPTS: u32 = 64;

/// Between two tries.
pub(crate) fn pause() {
    std::hint::spin_loop();
}
