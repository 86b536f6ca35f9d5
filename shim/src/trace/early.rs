//! The calls before a trace can begin: the look-ups before the first `cuInit`, and that call itself.
//!
//! The CUDA runtime looks up several hundred functions before it initialises anything. Their sums are kept, and for
//! the first successful `cuInit` also its time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use shm_layout::{
    clock,
    trace::{Buffer, Call},
};

use crate::{driver::Symbol, managed_process};

/// The sum of a function's calls before the process was registered. Any thread adds to it.
struct Sum {
    symbol: Symbol,
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Sum {
    const fn of(symbol: Symbol) -> Sum {
        Sum {
            symbol,
            count: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
        }
    }
}

static LOOK_UPS: [Sum; 2] = [
    Sum::of(Symbol::cuGetProcAddress),
    Sum::of(Symbol::cuGetProcAddress_v2),
];

/// The begin and the duration of the first successful `cuInit`, in nanoseconds.
static FIRST_INIT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The process to which the sums belong: a forked child begins with none.
static OWNER: AtomicU32 = AtomicU32::new(0);

fn forget_others() {
    let pid = std::process::id();
    if OWNER.swap(pid, Relaxed) == pid {
        return;
    }
    for sum in &LOOK_UPS {
        for word in [&sum.count, &sum.total_ns, &sum.longest_ns] {
            word.store(0, Relaxed);
        }
    }
    FIRST_INIT[0].store(0, Relaxed);
}

/// A look-up under way. When dropped, it is added to the sums, unless the process was registered when it began.
pub struct LookUp {
    began: Option<(&'static Sum, u64)>,
}

impl LookUp {
    /// Starts to measure a look-up.
    pub fn begins(symbol: Symbol) -> LookUp {
        let early = managed_process::current().is_none();
        let mut sums = LOOK_UPS.iter().filter(|sum| early && sum.symbol == symbol);
        LookUp {
            began: sums.next().map(|sum| (sum, clock::now())),
        }
    }
}

impl Drop for LookUp {
    fn drop(&mut self) {
        if let Some((sum, began)) = self.began {
            let took = clock::now().saturating_sub(began);
            forget_others();
            sum.count.fetch_add(1, Relaxed);
            sum.total_ns.fetch_add(took, Relaxed);
            sum.longest_ns.fetch_max(took, Relaxed);
        }
    }
}

/// Records a successful `cuInit` that began at `began`.
pub fn initialised(began: u64) {
    if managed_process::current().is_none() {
        forget_others();
        let [start, duration] = &FIRST_INIT;
        duration.store(clock::now().saturating_sub(began), Relaxed);
        start.store(began, Relaxed);
    }
}

/// Writes the sums and the `cuInit` to a buffer that is used from the start of the process.
pub fn write(buffer: &Buffer) {
    forget_others();
    for sum in &LOOK_UPS {
        let [count, total_ns, longest_ns] =
            [&sum.count, &sum.total_ns, &sum.longest_ns].map(|word| word.load(Relaxed));
        buffer.before(sum.symbol as u16, count, total_ns, longest_ns);
    }
    let [start_ns, duration_ns] = [&FIRST_INIT[0], &FIRST_INIT[1]].map(|word| word.load(Relaxed));
    if start_ns != 0 {
        buffer.call(&Call {
            code: Symbol::cuInit as u16,
            start_ns,
            duration_ns,
            waited_ns: 0,
            bytes: 0,
            tid: 0,
            device: None,
        });
    }
}
