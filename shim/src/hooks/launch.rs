//! The launch path.
//!
//! A submission reads its thread's record (two loads), says that it is inside a call (a plain store),
//! looks at its device's gate, knows its stream, asks the driver, counts, and says that it is outside
//! again. No lock, no locked instruction, no clock, no system call. Whatever does not fit goes through
//! [`admission`], which is allowed to take its time.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpushare_abi::{
    In,
    errors::CUresult,
    types::{CUgraphExec, CUlaunchConfig, CUstream},
};

use crate::{
    admission::{self, Admission},
    guest::guest,
    memory, notice,
    real::Submission,
    symbols::Symbol,
    thread::{self, Tally, add, stream_key},
    trace,
    uncancelled::Uncancelled,
};

/// What is submitted, for the counters.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// A kernel.
    Kernel,
    /// A graph.
    Graph,
    /// An asynchronous copy of so many bytes.
    Copy(usize),
    /// Several copies at once, and the bytes of all.
    Copies(usize, usize),
    /// A memset.
    Memset,
}

impl Work {
    /// Its kind, copies and bytes.
    #[inline(always)]
    fn taken_apart(self) -> (u8, usize, usize) {
        match self {
            Self::Kernel => (0, 0, 0),
            Self::Graph => (1, 0, 0),
            Self::Memset => (2, 0, 0),
            Self::Copy(bytes) => (3, 1, bytes),
            Self::Copies(count, bytes) => (4, count, bytes),
        }
    }

    fn put_together((kind, copies, bytes): (u8, usize, usize)) -> Self {
        match kind {
            0 => Self::Kernel,
            1 => Self::Graph,
            2 => Self::Memset,
            3 => Self::Copy(bytes),
            _ => Self::Copies(copies, bytes),
        }
    }

    /// Counts it.
    #[inline(always)]
    pub fn count(self, tally: &Tally) {
        match self {
            Self::Kernel => add(&tally.launches, 1),
            Self::Graph => add(&tally.graphs, 1),
            Self::Copy(bytes) => {
                add(&tally.copies, 1);
                add(&tally.copy_bytes, bytes as u64);
            }
            Self::Copies(count, bytes) => {
                add(&tally.copies, count as u64);
                add(&tally.copy_bytes, bytes as u64);
            }
            Self::Memset => add(&tally.memsets, 1),
        }
    }
}

/// Submits work to a stream.
#[inline(always)]
pub fn submit(
    real: Submission<impl FnOnce() -> CUresult>,
    stream: CUstream,
    work: Work,
) -> CUresult {
    let key = stream_key(stream as usize, real.per_thread());
    if let Some(thread) = thread::current()
        && thread.begin(key)
    {
        let answer = real.call();
        work.count(thread.tally_here());
        thread.end();
        return answer;
    }
    let slowly = Slowly::begin(real.symbol(), key, work.taken_apart());
    let answer = real.call();
    slowly.end();
    answer
}

/// A submission that the fast path does not settle. What is done before and after it stands on its own and is told in
/// plain numbers, so that the fast path keeps nothing ready for it.
struct Slowly {
    _uncancelled: Uncancelled,
    symbol: Symbol,
    began: u64,
    work: Work,
    admission: Admission,
}

impl Slowly {
    #[cold]
    #[inline(never)]
    fn begin(symbol: Symbol, key: usize, parts: (u8, usize, usize)) -> Self {
        let uncancelled = Uncancelled::enter();
        let work = Work::put_together(parts);
        Self {
            _uncancelled: uncancelled,
            symbol,
            began: trace::begin(),
            work,
            admission: admission::admit(key, work),
        }
    }

    #[cold]
    #[inline(never)]
    fn end(self) {
        admission::finish(self.admission);
        if self.began != 0 {
            trace::submitted(self.symbol, self.began, self.work, self.admission);
        }
    }
}

/// A kernel in a stream.
#[inline(always)]
pub fn kernel(real: Submission<impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    submit(real, stream, Work::Kernel)
}

/// A kernel in the default stream.
#[inline(always)]
pub fn kernel_now(real: Submission<impl FnOnce() -> CUresult>) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Kernel)
}

/// `cuLaunchKernelEx`.
#[inline(always)]
pub fn kernel_ex(
    real: Submission<impl FnOnce() -> CUresult>,
    config: In<CUlaunchConfig>,
) -> CUresult {
    let stream = config
        .get()
        .map_or(std::ptr::null_mut(), |config| config.hStream);
    submit(real, stream, Work::Kernel)
}

/// `cuGraphLaunch`. Only in a process whose graphs allocate is there more to it than to a kernel.
#[inline(always)]
pub fn graph(
    real: Submission<impl FnOnce() -> CUresult>,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    if guest().is_some_and(|guest| guest.memory.graphs_allocate()) {
        return allocating_graph(real, exec, stream);
    }
    submit(real, stream, Work::Graph)
}

#[cold]
#[inline(never)]
fn allocating_graph(
    real: Submission<impl FnOnce() -> CUresult>,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    let key = stream_key(stream as usize, real.per_thread());
    let symbol = real.symbol();
    let claimed = catch_unwind(AssertUnwindSafe(|| {
        memory::graph::claim(symbol, exec, key, true)
    }));
    let claims = match claimed {
        Ok(claims) => claims?,
        Err(_) => {
            notice::fault();
            None
        }
    };
    let answer = submit(real, stream, Work::Graph);
    if let Some(claims) = claims
        && catch_unwind(AssertUnwindSafe(|| claims.settle(answer))).is_err()
    {
        notice::fault();
    }
    answer
}
