//! The barriers of the protocols between threads, which `tests/loom_*.rs` replaces by loom's.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Orders memory accesses on the launching side: the compiler keeps the order, and the keeper's membarrier makes the
/// processor keep it ([`barrier::heavy`](crate::sys::barrier::heavy)).
#[inline(always)]
pub(crate) fn light() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Orders memory accesses on all processors.
#[inline]
pub(crate) fn full() {
    std::sync::atomic::fence(Ordering::SeqCst);
}
