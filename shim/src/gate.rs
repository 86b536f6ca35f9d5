//! The gate that a submission looks at: open means "submit, the lock is ours or none is asked for".
//!
//! There is one for each device, on the page that a forked child finds empty ([`guest::page`](mod@crate::guest::page)). A
//! closed gate sends the submission to the slow path, which finds out what is wanted.

use std::sync::atomic::AtomicU32;

use crate::protocol::submission;

pub use submission::{CLOSED, OPEN};

/// One gate. Written by the holder of its turn's lock.
pub struct Gate(AtomicU32);

impl Gate {
    /// Whether it lets submissions through on the fast path.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        submission::is_open(&self.0)
    }

    /// Whether it lets submissions through, traced or not.
    pub fn is_passable(&self) -> bool {
        submission::is_passable(&self.0)
    }

    /// Lets submissions through; `traced` ones on the path where they are timed.
    pub fn open(&self, traced: bool) {
        submission::open(&self.0, traced);
    }

    /// Sends submissions to the slow path. Only after `sys::barrier::heavy` is it certain that
    /// every thread has seen it.
    pub fn close(&self) {
        submission::close(&self.0);
    }
}

static ALWAYS_CLOSED: Gate = Gate(AtomicU32::new(CLOSED));

/// The gate of a thread whose device is not known.
pub fn always_closed() -> &'static Gate {
    &ALWAYS_CLOSED
}
