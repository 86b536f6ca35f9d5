//! The tracing state of a managed process, as plain data. [`control`](super::control) changes it,
//! [`trace`](crate::trace) writes records with it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32},
};

use shm_layout::trace::{Buffer, Order, TraceState};

/// The tracing state of a process.
#[derive(Default)]
pub struct Tracer {
    /// The published trace.
    pub current: Mutex<Current>,
    /// Wakes the thread that writes the files of `PFLOG`.
    pub bell: AtomicU32,
    /// Set at the end; no trace is started afterwards.
    pub over: AtomicBool,
    /// The state of the thread that writes the files: none, writing, or done.
    pub files: AtomicU32,
}

/// The trace that is published, and the order that it follows.
#[derive(Default)]
pub struct Current {
    /// The order that was applied last.
    pub order: Option<Order>,
    /// The state that tools are shown.
    pub state: TraceState,
    /// The buffer in a file for the tools, ordered by the operator or the launch.
    pub shared: Option<Arc<Buffer>>,
    /// The private buffer for the files of `PFLOG`.
    pub private: Option<Arc<Buffer>>,
    /// The first private buffer, until the thread that reads it has taken it.
    pub unread: Option<Arc<Buffer>>,
    /// The number of records dropped by earlier private buffers.
    pub dropped: u64,
}

/// The buffers to which calls are written. A trace is published as a whole, and changed by publishing another.
pub struct Trace {
    /// The buffer in a file for the tools, ordered by the operator or the launch.
    pub shared: Option<Arc<Buffer>>,
    /// The private buffer for the files of `PFLOG`.
    pub private: Option<Arc<Buffer>>,
}

impl Trace {
    /// Calls `write` with each of the buffers.
    pub fn each(&self, mut write: impl FnMut(&Buffer)) {
        for buffer in [&self.shared, &self.private].into_iter().flatten() {
            write(buffer);
        }
    }
}
