//! What the protocols between threads are made of, so that `tests/loom_*.rs` can put loom's in its place.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The launching side's half of the barrier: the compiler keeps the order, the keeper's membarrier makes the processor
/// keep it ([`barrier::heavy`](crate::sys::barrier::heavy)).
#[inline(always)]
pub(crate) fn light() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A full barrier.
#[inline]
pub(crate) fn full() {
    std::sync::atomic::fence(Ordering::SeqCst);
}
