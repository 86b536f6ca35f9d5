//! The launch path: hooks for kernels, graphs and memsets.
//!
//! A submission reads its thread's record (two loads), marks the thread as inside a call (a plain store), checks its
//! device's gate, looks up its stream, calls the driver, counts, and marks the thread as outside. It takes no lock,
//! executes no locked instruction, reads no clock and makes no system call. Every other case goes through
//! [`admission`], which may be slow, and a submission that failed for want of memory may be repeated.
//!
//! Memsets are submitted like kernels, whether the host waits for them or not.

use gpushare_abi::{
    In,
    errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult},
    types::{CUgraphExec, CUlaunchConfig, CUstream},
};

use crate::{
    admission::{self, Admission},
    driver::Symbol,
    driver_query::context,
    eviction,
    hooks::{
        loss,
        memory::{self, code::SubmissionWait},
    },
    managed_process,
    sys::caller_state::{Errno, Uncancelled, catch},
    thread::{self, Thread, Work, stream_key},
    trace,
};

/// A submission on its way to the driver. It is like [`Real`](super::Real), but panics are not caught, because that
/// would slow the launch path. Its hooks must not panic before they forward it.
pub struct Submission<F> {
    symbol: Symbol,
    forward: F,
}

impl<F: FnOnce() -> CUresult + Copy> Submission<F> {
    #[inline(always)]
    pub(crate) fn new(symbol: Symbol, forward: F) -> Self {
        Self { symbol, forward }
    }

    /// Forwards the call to the driver. If the driver refuses, the call may be repeated.
    #[inline(always)]
    pub fn call(&self) -> CUresult {
        (self.forward)()
    }

    /// Returns the called function.
    #[inline(always)]
    pub fn symbol(&self) -> Symbol {
        self.symbol
    }

    /// Returns true if the function was called in its per-thread default stream form.
    #[inline(always)]
    pub fn per_thread(&self) -> bool {
        self.symbol.per_thread()
    }
}

/// Submits work to a stream.
#[inline(always)]
pub fn submit(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    stream: CUstream,
    work: Work,
) -> CUresult {
    let key = stream_key(stream as usize, real.per_thread());
    let symbol = real.symbol();
    let place = thread::place();
    // A graph is not like the kernels for which the thread has an allotment.
    let is_graph = matches!(work, Work::Graph);
    if let Some(thread) = thread::current()
        && (thread.begin(key, place) || !is_graph && thread.begin_allotted(key, place))
    {
        let ends = EndsSubmission(thread);
        let answer = real.call();
        work.count(thread.current_tally());
        drop(ends);
        if let Err(error) = answer {
            let again = real.forward;
            return failed(symbol, (key, place), work.to_parts(), error, &move || {
                again()
            });
        }
        return answer;
    }
    let submission = SlowSubmission::begin(symbol, (key, place), work.to_parts());
    if let Some(error) = submission.admission.refusal() {
        return Err(error);
    }
    let answer = real.call();
    submission.end();
    if let Err(error) = answer {
        let again = real.forward;
        return failed(symbol, (key, place), work.to_parts(), error, &move || {
            again()
        });
    }
    answer
}

/// Repeats a submission for which the driver had no memory, once a full device has room: the driver needs some at the
/// first launch of a kernel or in a stream. A submission that was refused for want of memory has done nothing. Another
/// error is returned.
#[cold]
#[inline(never)]
fn failed(
    symbol: Symbol,
    (key, place): (usize, usize),
    parts: (u8, usize, usize),
    error: CUerror,
    again: &dyn Fn() -> CUresult,
) -> CUresult {
    let mut answer = Err(error);
    let mut wait = SubmissionWait::default();
    while answer == Err(CUDA_ERROR_OUT_OF_MEMORY) && has_waited(&mut wait, symbol, key) {
        let submission = SlowSubmission::begin(symbol, (key, place), parts);
        answer = match submission.admission.refusal() {
            Some(error) => Err(error),
            None => again(),
        };
        submission.end();
    }
    let _errno = Errno::keep();
    wait.end(answer.is_ok());
    answer.inspect_err(|error| loss::check(symbol, *error))
}

/// Waits for memory outside of the gate. Returns false if the submission must not wait: it captures, or is the driver's own.
fn has_waited(wait: &mut SubmissionWait, symbol: Symbol, key: usize) -> bool {
    within_a_call(|| !context::is_capturing(key) && wait.wait(symbol, key as CUstream))
}

/// Does what a hook does within a call of the application's, before or after a submission, which is none. Does nothing within
/// another call, and while calls are refused.
pub fn within_a_call<T: Default>(work: impl FnOnce() -> T) -> T {
    let _errno = Errno::keep();
    let _uncancelled = Uncancelled::enter();
    let done = catch(|| match eviction::enter() {
        Ok(Some(_inside)) => work(),
        _ => T::default(),
    });
    done.unwrap_or_else(|_| {
        managed_process::fault();
        T::default()
    })
}

/// Ends a submission, also if the application leaves the call by unwinding.
struct EndsSubmission(&'static Thread);

impl Drop for EndsSubmission {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A submission that the fast path cannot handle. The code before and after the call is in separate functions with
/// plain numbers as arguments, so that the fast path prepares nothing for them.
struct SlowSubmission {
    _uncancelled: Uncancelled,
    symbol: Symbol,
    began: u64,
    work: Work,
    admission: Admission,
}

impl SlowSubmission {
    #[cold]
    #[inline(never)]
    fn begin(symbol: Symbol, (key, place): (usize, usize), parts: (u8, usize, usize)) -> Self {
        let _errno = Errno::keep();
        let uncancelled = Uncancelled::enter();
        let work = Work::from_parts(parts);
        Self {
            _uncancelled: uncancelled,
            symbol,
            began: trace::begin(),
            work,
            admission: admission::admit(key, place, work),
        }
    }

    #[cold]
    #[inline(never)]
    fn end(self) {
        let _errno = Errno::keep();
        admission::finish(self.admission);
        // The driver's own submissions happen within a call that the trace already records.
        if self.began != 0 && !self.admission.is_nested() {
            let (bytes, device) = (self.work.bytes(), self.admission.ordinal());
            trace::submitted(self.symbol, self.began, bytes, device);
        }
    }
}

impl Drop for SlowSubmission {
    fn drop(&mut self) {
        self.admission.leave();
    }
}

/// Submits a kernel to a stream.
#[inline(always)]
pub fn kernel(real: Submission<impl FnOnce() -> CUresult + Copy>, stream: CUstream) -> CUresult {
    submit(real, stream, Work::Kernel)
}

/// Submits a kernel to the default stream.
#[inline(always)]
pub fn kernel_now(real: Submission<impl FnOnce() -> CUresult + Copy>) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Kernel)
}

/// Forwards `cuLaunchKernelEx`.
#[inline(always)]
pub fn kernel_ex(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    config: In<CUlaunchConfig>,
) -> CUresult {
    let stream = config
        .get()
        .map_or(std::ptr::null_mut(), |config| config.hStream);
    submit(real, stream, Work::Kernel)
}

/// Forwards `cuGraphLaunch`. Only in a process whose graphs allocate does it do more than for a kernel.
#[inline(always)]
pub fn graph(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    if managed_process::current().is_some_and(|process| process.memory.graphs.any()) {
        return allocating_graph(real, exec, stream);
    }
    submit(real, stream, Work::Graph)
}

#[cold]
#[inline(never)]
fn allocating_graph(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    let _uncancelled = Uncancelled::enter();
    let key = stream_key(stream as usize, real.per_thread());
    let symbol = real.symbol();
    let claimed = catch(|| {
        let _errno = Errno::keep();
        let _uncancelled = Uncancelled::enter();
        // Other streams are queried for finished work, and the driver may be queried only inside a call.
        let _inside = eviction::enter()?;
        memory::graph::claim(symbol, exec, key, true)
    });
    let claims = match claimed {
        Ok(claims) => claims?,
        Err(_) => {
            managed_process::fault();
            None
        }
    };
    let answer = submit(real, stream, Work::Graph);
    let _errno = Errno::keep();
    if let Some(claims) = claims
        && catch(|| claims.complete(answer)).is_err()
    {
        managed_process::fault();
    }
    answer
}

/// Submits a memset to the default stream.
#[inline(always)]
pub fn memset_now(real: Submission<impl FnOnce() -> CUresult + Copy>) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Memset)
}

/// Submits a memset to a stream.
#[inline(always)]
pub fn memset(real: Submission<impl FnOnce() -> CUresult + Copy>, stream: CUstream) -> CUresult {
    submit(real, stream, Work::Memset)
}
