//! The atomics of the protocols between threads, which `tests/loom_*.rs` replaces by loom's.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
