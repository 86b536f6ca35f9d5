//! What we do at the driver's functions: a file for a subject, a function for a hook.
//!
//! How to write one is told in the crate's documentation.
//!
//! The caller's own call, forwarded to the driver exactly once; an allocation that waits for memory, once for each try.

pub mod checkpoint;
pub mod context;
pub mod copy;
pub mod launch;
pub mod loss;
pub mod memory;
pub mod multi_device;
pub mod stream;
pub mod sync;
pub mod transfer;

use std::cell::Cell;

use gpushare_abi::errors::CUresult;

use crate::{
    driver::Symbol,
    managed_process::{self, ManagedProcess, attach::current_or_attach},
    thread::{Inside, Thread},
};

/// Where a call comes from: looked up once for a call.
#[derive(Clone, Copy)]
pub struct CallContext {
    /// The calling thread.
    pub thread: &'static Thread,
    /// The managed process; `None` where this process is none.
    pub process: Option<&'static ManagedProcess>,
}

/// Where a call comes from. In a forked child, whatever it calls first, the process arrives.
#[inline(always)]
pub fn current(inside: &Inside) -> CallContext {
    match managed_process::current() {
        Some(process) => CallContext {
            thread: inside.thread(),
            process: Some(process),
        },
        None => attach_in_child(inside),
    }
}

#[cold]
#[inline(never)]
fn attach_in_child(inside: &Inside) -> CallContext {
    let process = current_or_attach();
    CallContext {
        thread: inside.renew(),
        process,
    }
}

/// A call on its way to the driver. A hook either forwards it with [`Real::call`] or refuses it.
///
/// A panic in a hook is caught behind us: what the driver answered is then the answer, and a call that
/// had not been forwarded is forwarded.
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

    /// Says how many bytes the call moves or asks for; a trace shows them.
    #[inline(always)]
    pub fn moves(&self, bytes: u64) {
        self.bytes.set(bytes);
    }

    /// The managed process; `None` where this process is none.
    #[inline(always)]
    pub fn process(&self) -> Option<&'static ManagedProcess> {
        self.context.process
    }

    /// The calling thread.
    #[inline(always)]
    pub fn thread(&self) -> &'static Thread {
        self.context.thread
    }

    /// Asks the driver. It is asked once: the call is consumed.
    #[inline(always)]
    pub fn call(self) -> CUresult {
        let answer = (self.forward)();
        self.answer.set(Some(answer));
        answer
    }

    /// What was done in place of asking the driver, and what came of it: the answer, whatever goes wrong from here on.
    pub fn answered(&self, answer: CUresult) {
        self.answer.set(Some(answer));
    }

    /// Asks the driver, as often as an allocation that waits for room has to.
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

    /// Which function was called.
    #[inline(always)]
    pub fn symbol(&self) -> Symbol {
        self.symbol
    }

    /// Whether it was called in its per-thread default stream form.
    pub fn per_thread(&self) -> bool {
        self.symbol.per_thread()
    }
}
