//! The protocols under loom, which tries every interleaving. They are compiled here from their own sources with loom's atomics.
//!
//! Loom cannot model time. The real lock has deadlines and periodic polls as a second safety; every model below must end
//! without them.

#![expect(
    unsafe_code,
    reason = "loom's cell checks the exclusion that the lock claims"
)]

mod limits;
mod queue;
mod records;
mod room;
mod strokes;
mod switch;
mod turns;

#[allow(dead_code, reason = "the models use what they need")]
#[path = "../../src/protocol"]
mod protocol {
    pub mod account;
    pub mod bell;
    pub mod claim;
    pub mod memory_queue;
    pub mod seqlock;
    pub mod turn;

    pub(crate) mod primitive {
        pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

        pub(crate) const READ_ATTEMPTS: u32 = 2;

        pub(crate) fn in_one_order() {
            fence(Ordering::SeqCst);
        }

        pub(crate) fn pause() {
            loom::thread::yield_now();
        }

        thread_local! {
            /// Set by a model in which no thread waits for another. All threads of a model run on this thread.
            pub(crate) static IMPATIENT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        }

        pub(crate) fn is_patient(_: u32) -> bool {
            loom::thread::yield_now();
            !IMPATIENT.get()
        }
    }

    pub(crate) mod crash {
        macro_rules! crash_point {
            ($name:literal) => {};
        }
        pub(crate) use crash_point;
    }
}

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
};
use protocol::{
    account::{self, Account, Kept, Own, Refusal, SharedLimit},
    bell, claim, memory_queue, seqlock,
    turn::{BITMAP, Entry, Passed, Turn, who},
};

fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.check(model);
}

fn words<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}
