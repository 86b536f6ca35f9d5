//! The words that a call checks before it goes to the driver: a submission its device's gate, any other call the
//! suspension.
//!
//! A gate is open while the process holds the lock of the device, or while none is required. There is one per device,
//! on the page that is empty in a forked child ([`managed_process`](crate::managed_process)). A closed gate sends the
//! submission to the slow path, which finds the reason. Calls are suspended while the process is evicted, and the
//! gates are closed then too. A forked child has its own word for that; the driver does not work there.
//!
//! A thread that calls the driver and the one that keeps it out synchronise by two words, `inside` of the thread and
//! the gate or the suspension:
//!
//! ```text
//!   launching thread                     keeper
//!   inside = SUBMITTING                  gate = CLOSED
//!   light barrier                        heavy barrier
//!   gate open? ── no ─▶ inside = OUTSIDE while inside == SUBMITTING: wait
//!    │ yes                               drain, hand over
//!   the driver's call
//!   inside = OUTSIDE
//!
//!   thread that calls the driver         thread that evicts
//!   inside = ELSEWHERE                   word = SUSPENDED
//!   light barrier                        heavy barrier
//!   running?   ── no ─▶ inside = OUTSIDE while inside != OUTSIDE: wait, or give it up
//!    │ yes              wait for resume   lock, checkpoint … restore, unlock
//!   the driver's call                    word = RUNNING
//!   inside = OUTSIDE
//! ```
//!
//! Each writes its own word and then reads the other's: the keeper sees the thread inside, or the thread sees the
//! gate closed. A call that is stuck in the driver while the process is checkpointed is invisible to the shim, so no
//! call may go in. `tests/loom_gate.rs` and `tests/loom_suspend.rs` also compile this file, with loom's atomics, and
//! explore its interleavings. The assembly of `face::fast` and `face::passthrough` does the same steps in the same
//! order, as plain moves.

use crate::primitive::{AtomicU32, Ordering::*, compiler_fence};

/// Orders memory accesses on the calling side: the compiler keeps the order, and the other side's membarrier makes the
/// processor keep it ([`barrier::heavy`](crate::sys::barrier::heavy)).
#[inline(always)]
pub(crate) fn light() {
    compiler_fence(SeqCst);
}

/// The gate of a device. Its turn writes it.
pub struct Gate(pub(crate) AtomicU32);

impl Gate {
    /// Returns true if the gate admits submissions on the fast path.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        is_open(&self.0)
    }

    /// Returns true if the gate admits submissions, traced or not.
    pub fn is_passable(&self) -> bool {
        is_passable(&self.0)
    }

    /// Returns true if the gate admits the submissions that were allotted to a thread.
    #[inline(always)]
    pub fn is_metered(&self) -> bool {
        is_metered(&self.0)
    }

    /// Opens the gate; with `traced`, submissions take the path that measures them.
    pub fn open(&self, traced: bool) {
        open(&self.0, traced);
    }

    /// Opens the gate for the submissions that were allotted to a thread.
    pub fn meter(&self) {
        meter(&self.0);
    }

    /// Closes the gate, so that submissions take the slow path. Every thread is sure to have seen it only after
    /// `sys::barrier::heavy`.
    pub fn close(&self) {
        close(&self.0);
    }
}

/// A closed gate, which sends submissions to the slow path. It is 0, so the gates of a wiped page are closed.
pub const CLOSED: u32 = 0;
/// An open gate, which admits submissions.
pub const OPEN: u32 = 1;
/// A gate that admits submissions on the slow path, where they are measured, while a trace is on.
pub const TRACED: u32 = 2;
/// A gate that admits a thread's allotted submissions on the slow path; all others are checked.
pub const METERED: u32 = 3;

/// The thread is in no hook.
pub const OUTSIDE: u32 = 0;
/// The thread submits to the device it is bound to.
pub const SUBMITTING: u32 = 1;

/// Marks the thread as inside. It must check the gate only afterwards.
#[inline(always)]
pub fn step_in(inside: &AtomicU32) {
    inside.store(SUBMITTING, Relaxed);
    light();
}

/// Returns true if the gate admits the thread, on either path.
#[inline(always)]
pub fn is_passable(gate: &AtomicU32) -> bool {
    matches!(gate.load(Relaxed), OPEN | TRACED)
}

/// Returns true if the gate admits a thread's allotted submissions.
#[inline(always)]
pub fn is_metered(gate: &AtomicU32) -> bool {
    gate.load(Relaxed) == METERED
}

/// Returns true if the gate admits the thread on the fast path.
#[inline(always)]
pub fn is_open(gate: &AtomicU32) -> bool {
    gate.load(Relaxed) == OPEN
}

/// Marks the thread as outside after a closed gate; it has submitted nothing.
#[inline(always)]
pub fn step_back(inside: &AtomicU32) {
    inside.store(OUTSIDE, Relaxed);
}

/// Marks the thread as inside, whatever the gate's state. Only for a caller that has locked a turn that is held.
pub fn admitted(inside: &AtomicU32) {
    inside.store(SUBMITTING, Relaxed);
}

/// Marks the thread as outside after the driver has returned.
#[inline(always)]
pub fn step_out(inside: &AtomicU32) {
    // ORDER: Release pairs with the keeper's Acquire load in `is_inside`; the call has been made.
    inside.store(OUTSIDE, Release);
}

/// Opens a gate. Only for a caller whose process holds the lock or needs none.
pub fn open(gate: &AtomicU32, traced: bool) {
    gate.store(if traced { TRACED } else { OPEN }, Relaxed);
}

/// Opens a gate for allotted submissions. Only for a caller whose process may submit.
pub fn meter(gate: &AtomicU32) {
    gate.store(METERED, Relaxed);
}

/// Closes a gate. Every thread is sure to see it only after the heavy barrier.
pub fn close(gate: &AtomicU32) {
    gate.store(CLOSED, Relaxed);
}

/// Returns true if a thread submits to the device with this mark. After [`close`] and the heavy barrier, `false` is
/// final.
pub fn is_inside(inside: &AtomicU32, bound_device: &AtomicU32, mark: u32) -> bool {
    // ORDER: Acquire pairs with the Release store in `step_out`, so that the call's effects are visible. The thread's
    // device was stored before it was marked as inside, and the heavy barrier has ordered both.
    inside.load(Acquire) == SUBMITTING && bound_device.load(Relaxed) == mark
}

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
