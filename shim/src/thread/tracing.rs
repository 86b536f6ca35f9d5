//! What a thread keeps for a trace. Only that thread writes; the thread that takes a trace down reads the mark.

use std::cell::Cell;

use crate::{
    protocol::quiescence::{self, Mark},
    sys::own_thread,
};

/// What a thread keeps for a trace.
#[derive(Default)]
pub struct Tracing {
    /// Whether the thread writes.
    pub mark: Mark,
    /// Its number, asked for once.
    tid: Cell<u32>,
    /// What it waited for locks within the call it is in.
    pub waited_ns: Cell<u64>,
}

impl Tracing {
    /// Another thread takes the record over.
    pub fn begins(&self) {
        self.tid.set(0);
        self.waited_ns.set(0);
        quiescence::leave(&self.mark);
    }

    /// The thread's number, as the kernel has it.
    pub fn tid(&self) -> u32 {
        if self.tid.get() == 0 {
            self.tid.set(own_thread::id());
        }
        self.tid.get()
    }
}
