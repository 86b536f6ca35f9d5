//! The gate that a submission looks at: open means "submit, the lock is ours or none is asked for".
//!
//! There is one for each device, on the page that a forked child finds empty ([`managed_process`](crate::managed_process)). A
//! closed gate sends the submission to the slow path, which finds out what is wanted.
//!
//! How a thread that submits and the thread that closes its gate agree, by two words: `inside` and the gate.
//!
//! ```text
//!   launching thread                     keeper
//!   inside = SUBMITTING                  gate = CLOSED
//!   light barrier                        heavy barrier
//!   gate open? ── no ─▶ inside = OUTSIDE while inside == SUBMITTING: wait
//!    │ yes                               drain, hand over
//!   the driver's call
//!   inside = OUTSIDE
//! ```
//!
//! Each writes its own word and then looks at the other's: the keeper sees the thread inside, or the thread sees the
//! gate closed. `tests/loom_gate.rs` compiles this file with loom's words and tries to break it; the assembly of
//! `face::fast` is the same steps in the same order, spelled as plain moves.

use crate::primitive::{AtomicU32, Ordering::*, light};

/// One gate. Written by the holder of its turn's lock.
pub struct Gate(pub(crate) AtomicU32);

impl Gate {
    /// Whether it lets submissions through on the fast path.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        is_open(&self.0)
    }

    /// Whether it lets submissions through, traced or not.
    pub fn is_passable(&self) -> bool {
        is_passable(&self.0)
    }

    /// Lets submissions through; `traced` ones on the path where they are timed.
    pub fn open(&self, traced: bool) {
        open(&self.0, traced);
    }

    /// Sends submissions to the slow path. Only after `sys::barrier::heavy` is it certain that
    /// every thread has seen it.
    pub fn close(&self) {
        close(&self.0);
    }
}

/// A gate that sends submissions to the slow path. All-zero, so a wiped page is closed.
pub const CLOSED: u32 = 0;
/// A gate that lets submissions through.
pub const OPEN: u32 = 1;
/// A gate that lets submissions through on the slow path, where they are timed: a trace is on.
pub const TRACED: u32 = 2;

/// A thread is in no hook of ours.
pub const OUTSIDE: u32 = 0;
/// A thread submits to the device it is settled on.
pub const SUBMITTING: u32 = 1;

/// The thread comes inside; only then may it look at the gate.
#[inline(always)]
pub fn step_in(inside: &AtomicU32) {
    inside.store(SUBMITTING, Relaxed);
    light();
}

/// Whether the gate lets it through, on whichever path.
#[inline(always)]
pub fn is_passable(gate: &AtomicU32) -> bool {
    gate.load(Relaxed) != CLOSED
}

/// Whether the gate lets it through on the fast path.
#[inline(always)]
pub fn is_open(gate: &AtomicU32) -> bool {
    gate.load(Relaxed) == OPEN
}

/// The gate was closed: the thread has submitted nothing.
#[inline(always)]
pub fn step_back(inside: &AtomicU32) {
    inside.store(OUTSIDE, Relaxed);
}

/// The thread comes inside past the gate, whatever it says: only under the turn's mutex, while the turn is held.
pub fn admitted(inside: &AtomicU32) {
    inside.store(SUBMITTING, Relaxed);
}

/// The driver has answered.
#[inline(always)]
pub fn step_out(inside: &AtomicU32) {
    // ORDER: pairs with the keeper's Acquire load in `is_inside`; the call has been made.
    inside.store(OUTSIDE, Release);
}

/// Lets submissions through. Only while the lock is held or none is asked for.
pub fn open(gate: &AtomicU32, traced: bool) {
    gate.store(if traced { TRACED } else { OPEN }, Relaxed);
}

/// Sends submissions to the slow path; certain for every thread behind the heavy barrier only.
pub fn close(gate: &AtomicU32) {
    gate.store(CLOSED, Relaxed);
}

/// Whether a thread submits to the device whose place is asked for. Asked behind the heavy barrier, after
/// [`close`], a `false` is final.
pub fn is_inside(inside: &AtomicU32, bound_device: &AtomicU32, mark: u32) -> bool {
    // ORDER: pairs with the Release store in `step_out`; the call's effects come with it. Where the thread is
    // settled was stored before it came inside, and the heavy barrier has made it pass both.
    inside.load(Acquire) == SUBMITTING && bound_device.load(Relaxed) == mark
}
