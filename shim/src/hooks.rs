//! The hooks of the driver's functions: a file for a subject, a function for a hook.
//!
//! The crate's documentation states how to write a hook.
//!
//! A hook forwards the caller's call to the driver exactly once; a call that waits for memory is forwarded once per attempt.

pub mod checkpoint;
pub mod context;
pub mod copy;
pub mod launch;
pub mod loss;
pub mod memory;
pub mod multi_device;
pub mod stream;
pub mod transfer;

use std::cell::Cell;

use gpushare_abi::errors::CUresult;

use crate::{
    driver::Symbol,
    managed_process::{self, ManagedProcess, attach::current_or_attach},
    thread::{Inside, Thread},
};

/// The caller of a driver function, looked up once per call.
#[derive(Clone, Copy)]
pub struct CallContext {
    /// The calling thread.
    pub thread: &'static Thread,
    /// The managed process; `None` if this process is unmanaged.
    pub process: Option<&'static ManagedProcess>,
}

/// Returns the caller's context, and its scope. In a forked child the first call attaches the process.
#[inline(always)]
pub fn current(inside: Inside) -> (Inside, CallContext) {
    let (inside, process) = match managed_process::current() {
        Some(process) => (inside, Some(process)),
        None => attach_in_child(inside),
    };
    let thread = inside.thread();
    (inside, CallContext { thread, process })
}

#[cold]
#[inline(never)]
fn attach_in_child(inside: Inside) -> (Inside, Option<&'static ManagedProcess>) {
    let process = current_or_attach();
    (inside.renewed(), process)
}

/// A call on its way to the driver. A hook either forwards it with [`Real::call`] or refuses it.
///
/// A panic in a hook is caught by the caller of the hook. The driver's result is then returned, and a call that was
/// not forwarded yet is forwarded.
pub struct Real<'a, F> {
    symbol: Symbol,
    context: CallContext,
    forward: F,
    answer: &'a Cell<Option<CUresult>>,
    bytes: &'a Cell<u64>,
}

impl<'a, F: FnOnce() -> CUresult> Real<'a, F> {
    #[inline(always)]
    pub(crate) fn new(
        symbol: Symbol,
        context: CallContext,
        forward: F,
        answer: &'a Cell<Option<CUresult>>,
        bytes: &'a Cell<u64>,
    ) -> Self {
        Self {
            symbol,
            context,
            forward,
            answer,
            bytes,
        }
    }

    /// Records the bytes that the call moves or requests, for the trace.
    #[inline(always)]
    pub fn moves(&self, bytes: u64) {
        self.bytes.set(bytes);
    }

    /// Returns the managed process; `None` if this process is unmanaged.
    #[inline(always)]
    pub fn process(&self) -> Option<&'static ManagedProcess> {
        self.context.process
    }

    /// Returns the calling thread.
    #[inline(always)]
    pub fn thread(&self) -> &'static Thread {
        self.context.thread
    }

    /// Forwards the call to the driver. It consumes the call, so the call is forwarded once.
    #[inline(always)]
    pub fn call(self) -> CUresult {
        let answer = (self.forward)();
        self.answer.set(Some(answer));
        answer
    }

    /// Records the result of work that replaces the driver's call. This result is returned even after a panic.
    pub fn answered(&self, answer: CUresult) {
        self.answer.set(Some(answer));
    }

    /// Forwards the call to the driver; an allocation that waits for memory may do so several times.
    #[inline(always)]
    pub fn again(&self) -> CUresult
    where
        F: Copy,
    {
        let forward = self.forward;
        let answer = forward();
        self.answer.set(Some(answer));
        answer
    }

    /// Returns the called function.
    #[inline(always)]
    pub fn symbol(&self) -> Symbol {
        self.symbol
    }

    /// Returns true if the function was called in its per-thread default stream form.
    pub fn per_thread(&self) -> bool {
        self.symbol.per_thread()
    }
}
