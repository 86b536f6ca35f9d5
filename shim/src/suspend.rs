//! The door that every call of the driver but a launch looks at: closed while the process's memory is not on its devices.
//!
//! Launches look at their gates, which are closed then too. A forked child has a door of its own; the driver does not work there.
//!
//! How the threads that call the driver and the one that takes the process's memory off the device agree, by two words:
//! `inside` of each thread and the door.
//!
//! ```text
//!   thread that calls the driver         thread that evicts
//!   inside = ELSEWHERE                   door = CLOSED
//!   light barrier                        heavy barrier
//!   door open? ── no ─▶ inside = OUTSIDE while inside != OUTSIDE: wait, or give it up
//!    │ yes              wait for the door lock, checkpoint … restore, unlock
//!   the driver's call                    door = OPEN
//!   inside = OUTSIDE
//! ```
//!
//! The same as a gate ([`gate`](super::gate)), for all calls: what is stuck in the driver while the process is
//! checkpointed is seen by none of us, so no call may go in. `tests/loom_gate.rs` tries it; the assembly of `face::passthrough` is
//! the same steps by plain moves.

use crate::primitive::{AtomicU32, Ordering::*, light};

/// Calls go to the driver. All-zero.
pub const RUNNING: u32 = 0;
/// The memory is away, or on its way: calls wait.
pub const SUSPENDED: u32 = 1;
/// The process ended while it was away: calls are answered for the driver.
pub const ENDED: u32 = 2;

/// Whether a thread that has stepped inside may go on.
#[inline(always)]
pub fn is_running(word: &AtomicU32) -> bool {
    light();
    word.load(Relaxed) == RUNNING
}

/// Lets no further call in; certain for every thread behind the heavy barrier only.
pub fn suspend(word: &AtomicU32) {
    word.store(SUSPENDED, Relaxed);
}

/// Lets calls in again.
pub fn resume(word: &AtomicU32) {
    // ORDER: pairs with the Acquire in `look`; the device is as it was.
    word.store(RUNNING, Release);
}

/// Answers calls from now on.
pub fn end(word: &AtomicU32) {
    word.store(ENDED, Release);
}

/// What a thread that waits sees.
pub fn poll(word: &AtomicU32) -> u32 {
    // ORDER: pairs with the Release in `open`.
    word.load(Acquire)
}
