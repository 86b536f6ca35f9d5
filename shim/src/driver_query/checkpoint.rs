//! The driver's checkpoint calls, for this process itself.
#![allow(unsafe_code, reason = "asks the driver")]

use std::ptr::null_mut;

use gpushare_abi::{
    Out,
    errors::{CUerror, CUresult},
};

use crate::driver::{self, Symbol, call};

/// The checkpoint state of a process, as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The process runs.
    Running,
    /// Calls of the process wait.
    Locked,
    /// Calls of the process wait, and its memory is on the host.
    Checkpointed,
    /// The process's checkpoint has failed.
    Failed,
}

/// The driver's arguments of a lock.
#[repr(C)]
struct LockArguments {
    timeout_ms: u32,
    reserved0: u32,
    reserved1: [u64; 7],
}

fn own() -> i32 {
    std::process::id() as i32
}

/// Returns true if the driver has the checkpoint calls.
pub fn exists() -> bool {
    [
        Symbol::cuCheckpointProcessGetState,
        Symbol::cuCheckpointProcessLock,
        Symbol::cuCheckpointProcessCheckpoint,
        Symbol::cuCheckpointProcessRestore,
        Symbol::cuCheckpointProcessUnlock,
    ]
    .into_iter()
    .all(|symbol| !driver::address(symbol).is_null())
}

/// Returns the state of this process.
pub fn state() -> Result<State, CUerror> {
    let mut state = 0_u32;
    // SAFETY: the result is a local variable.
    unsafe { call::cuCheckpointProcessGetState(own(), Out::to(&mut state)) }?;
    Ok(match state {
        0 => State::Running,
        1 => State::Locked,
        2 => State::Checkpointed,
        _ => State::Failed,
    })
}

/// Suspends all calls once work and calls under way have ended, at most after `timeout_ms` milliseconds; then it
/// fails.
pub fn lock(timeout_ms: u32) -> CUresult {
    let mut arguments = LockArguments {
        timeout_ms: timeout_ms.max(1),
        reserved0: 0,
        reserved1: [0; 7],
    };
    let arguments = std::ptr::from_mut(&mut arguments).cast();
    // SAFETY: the driver reads 64 bytes, the size of the local structure.
    unsafe { call::cuCheckpointProcessLock(own(), arguments) }
}

/// Moves the memory to the host.
pub fn checkpoint() -> CUresult {
    // SAFETY: the arguments may be NULL.
    unsafe { call::cuCheckpointProcessCheckpoint(own(), null_mut()) }
}

/// Moves the memory back.
pub fn restore() -> CUresult {
    // SAFETY: the arguments may be NULL.
    unsafe { call::cuCheckpointProcessRestore(own(), null_mut()) }
}

/// Resumes calls.
pub fn unlock() -> CUresult {
    // SAFETY: the arguments may be NULL.
    unsafe { call::cuCheckpointProcessUnlock(own(), null_mut()) }
}
