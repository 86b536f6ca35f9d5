//! The bell that every edit rings.

use std::sync::atomic::AtomicU32;

use crate::{os::futex, segment::Segments};

/// The futex word that every edit bumps and wakes (shared futex, not private).
pub fn control_bell(segments: &Segments) -> &AtomicU32 {
    &segments.control().bell
}

/// Sleeps until the bell is no longer `seen`, or `timeout_ns` passed, or a signal came.
pub fn wait_bell(segments: &Segments, seen: u32, timeout_ns: u64) {
    futex::wait(control_bell(segments), seen, timeout_ns);
}
