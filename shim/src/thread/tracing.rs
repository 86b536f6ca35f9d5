//! What a thread keeps for a trace. Only that thread writes; the thread that takes a trace down reads the mark.

use std::cell::Cell;

use crate::protocol::quiescence::{self, Mark};

/// What a thread keeps for a trace.
#[derive(Default)]
pub struct Tracing {
    /// Whether the thread writes.
    pub mark: Mark,
    /// What it waited for locks within the call it is in.
    pub waited_ns: Cell<u64>,
}

impl Tracing {
    /// Another thread takes the record over.
    pub fn begins(&self) {
        self.waited_ns.set(0);
        quiescence::leave(&self.mark);
    }
}
