//! When a record was made: before or after the process arrived.
//!
//! Records made before may be of a parent's threads, which are not in this process, and nothing of ours looks at them any
//! more. Each thread that is here takes a new one at its next hook.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static NOW: AtomicU32 = AtomicU32::new(0);

/// What a record that is made now is stamped with.
#[inline(always)]
pub fn now() -> u32 {
    NOW.load(Relaxed)
}

/// The process arrives. A thread that sees the guest sees this, for the guest is published afterwards.
pub fn begin() {
    NOW.fetch_add(1, Relaxed);
}
