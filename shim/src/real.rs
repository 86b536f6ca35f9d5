//! The caller's own call, forwarded to the driver exactly once; an allocation that waits for memory, once for each try.

use std::cell::Cell;

use gpushare_abi::errors::CUresult;

use crate::{driver::Symbol, guest::Guest, thread::Thread};

/// Where a call comes from: looked up once for a call.
#[derive(Clone, Copy)]
pub struct Here {
    /// The calling thread.
    pub thread: &'static Thread,
    /// The guest, if the process is one.
    pub guest: Option<&'static Guest>,
}

/// A call on its way to the driver. A hook either forwards it with [`Real::call`] or refuses it.
///
/// A panic in a hook is caught behind us: what the driver answered is then the answer, and a call that
/// had not been forwarded is forwarded.
pub struct Real<'a, F> {
    symbol: Symbol,
    here: Here,
    forward: F,
    answer: &'a Cell<Option<CUresult>>,
    bytes: &'a Cell<u64>,
}

impl<'a, F: FnOnce() -> CUresult> Real<'a, F> {
    #[inline(always)]
    pub(crate) fn new(
        symbol: Symbol,
        here: Here,
        forward: F,
        answer: &'a Cell<Option<CUresult>>,
        bytes: &'a Cell<u64>,
    ) -> Self {
        Self {
            symbol,
            here,
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

    /// The guest, if the process is one.
    #[inline(always)]
    pub fn guest(&self) -> Option<&'static Guest> {
        self.here.guest
    }

    /// The calling thread.
    #[inline(always)]
    pub fn thread(&self) -> &'static Thread {
        self.here.thread
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

/// A submission on its way to the driver: like [`Real`], without the boundary that would cost the launch
/// path its speed. Its hooks may not panic before they forward.
pub struct Submission<F> {
    symbol: Symbol,
    forward: F,
}

impl<F: FnOnce() -> CUresult> Submission<F> {
    #[inline(always)]
    pub(crate) fn new(symbol: Symbol, forward: F) -> Self {
        Self { symbol, forward }
    }

    /// Asks the driver.
    #[inline(always)]
    pub fn call(self) -> CUresult {
        (self.forward)()
    }

    /// Which function was called.
    #[inline(always)]
    pub fn symbol(&self) -> Symbol {
        self.symbol
    }

    /// Whether it was called in its per-thread default stream form.
    #[inline(always)]
    pub fn per_thread(&self) -> bool {
        self.symbol.per_thread()
    }
}
