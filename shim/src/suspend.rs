//! The suspension word, which every call of the driver except a launch checks: calls wait while the process is
//! evicted.
//!
//! Launches check their gates, which are closed then too. A forked child has its own word; the driver does not work
//! there.
//!
//! The threads that call the driver and the evictor synchronise by two words: `inside` of each thread and this one.
//!
//! ```text
//!   thread that calls the driver         thread that evicts
//!   inside = ELSEWHERE                   word = SUSPENDED
//!   light barrier                        heavy barrier
//!   running?   ── no ─▶ inside = OUTSIDE while inside != OUTSIDE: wait, or give it up
//!    │ yes              wait for resume   lock, checkpoint … restore, unlock
//!   the driver's call                    word = RUNNING
//!   inside = OUTSIDE
//! ```
//!
//! It works like a gate ([`gate`](super::gate)), for all calls. A call that is stuck in the driver while the process
//! is checkpointed is invisible to the shim, so no call may go in. `tests/loom_gate.rs` explores the interleavings.
//! The assembly of `face::passthrough` does the same steps as plain moves.

use crate::primitive::{AtomicU32, Ordering::*, light};

/// Calls go to the driver. It is 0.
pub const RUNNING: u32 = 0;
/// Memory is being moved: calls wait.
pub const SUSPENDED: u32 = 1;
/// The process ended while it was evicted: calls return an error.
pub const ENDED: u32 = 2;
/// Memory was copied to the host, and the driver answers: queries go to it, other calls wait.
pub const COPIED: u32 = 3;
/// The driver's checkpoint has moved the memory: queries are answered as [`gpushare_abi::Query`] states, other calls
/// wait.
pub const CHECKPOINTED: u32 = 4;

/// Returns true if a thread that is marked as inside may continue.
#[inline(always)]
pub fn is_running(word: &AtomicU32) -> bool {
    light();
    word.load(Relaxed) == RUNNING
}

/// Suspends calls. Every thread is sure to see it only after the heavy barrier.
pub fn suspend(word: &AtomicU32) {
    word.store(SUSPENDED, Relaxed);
}

/// Admits queries while calls are suspended; `state` is [`COPIED`] or [`CHECKPOINTED`].
pub fn admit_queries(word: &AtomicU32, state: u32) {
    // ORDER: Release pairs with the Acquire in `poll`; the tables that answer are complete.
    word.store(state, Release);
}

/// Resumes calls.
pub fn resume(word: &AtomicU32) {
    // ORDER: Release pairs with the Acquire in `poll`; the device is as it was.
    word.store(RUNNING, Release);
}

/// Makes calls return an error from now on.
pub fn end(word: &AtomicU32) {
    word.store(ENDED, Release);
}

/// Returns the value for a waiting thread.
pub fn poll(word: &AtomicU32) -> u32 {
    // ORDER: Acquire pairs with the Release in `resume` and `admit_queries`.
    word.load(Acquire)
}
