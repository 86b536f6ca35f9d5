//! The one module that names atomics, so that `tests/loom.rs` can put loom's in their place under the protocols.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Attempts of a reader to read a record without a concurrent write. After them the read fails.
pub(crate) const READ_ATTEMPTS: u32 = 64;

/// Orders a read-modify-write before a load where both are `SeqCst`: their single order is enough and costs nothing more. Loom
/// has no such order and uses a fence here.
#[inline(always)]
pub(crate) fn in_one_order() {}

/// Between two tries.
pub(crate) fn pause() {
    std::hint::spin_loop();
}

/// Waits a little for another thread of this process; false when that took longer than a thread can need.
#[cold]
#[inline(never)]
pub(crate) fn is_patient(attempt: u32) -> bool {
    match attempt {
        0..64 => std::hint::spin_loop(),
        64..1024 => std::thread::yield_now(),
        1024..5000 => std::thread::sleep(std::time::Duration::from_micros(50)),
        _ => return false,
    }
    true
}
