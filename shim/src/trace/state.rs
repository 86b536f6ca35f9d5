//! What a managed process keeps for tracing, as plain data. [`control`](super::control) changes it, [`trace`](crate::trace) writes through it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32},
};

use shm_layout::trace::{Buffer, Order, TraceState};

/// What is traced, and on whose account.
#[derive(Default)]
pub struct Tracer {
    /// What is published now.
    pub current: Mutex<Current>,
    /// Wakes the thread that writes the files of `PFLOG`.
    pub bell: AtomicU32,
    /// Nothing is begun any more.
    pub over: AtomicBool,
    /// That thread has something to write, and has written it.
    pub files: AtomicU32,
}

/// The trace that is published, and the order it follows.
#[derive(Default)]
pub struct Current {
    /// The order that was applied last.
    pub order: Option<Order>,
    /// What the tools are told.
    pub state: TraceState,
    /// The operator's, or the launch's: a file for the tools.
    pub shared: Option<Arc<Buffer>>,
    /// Our own, for the files of `PFLOG`.
    pub private: Option<Arc<Buffer>>,
    /// The first private one, until the thread that reads it has come for it.
    pub unread: Option<Arc<Buffer>>,
    /// What earlier private buffers dropped.
    pub dropped: u64,
}

/// Where calls are written to. Published whole, and changed by publishing another.
pub struct Trace {
    /// The operator's, or the launch's: a file for the tools.
    pub shared: Option<Arc<Buffer>>,
    /// Our own, for the files of `PFLOG`.
    pub private: Option<Arc<Buffer>>,
}

impl Trace {
    /// Writes to each of its buffers.
    pub fn each(&self, mut write: impl FnMut(&Buffer)) {
        for buffer in [&self.shared, &self.private].into_iter().flatten() {
            write(buffer);
        }
    }
}
