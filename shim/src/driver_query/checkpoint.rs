//! The driver's checkpoint calls, for this process itself.
#![allow(unsafe_code, reason = "asks the driver")]

use std::ptr::null_mut;

use gpushare_abi::{
    Out,
    errors::{CUerror, CUresult},
};

use crate::driver::{self, Symbol, call};

/// What the driver says of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// Its calls wait.
    Locked,
    /// And its memory is away.
    Checkpointed,
    /// Its checkpoint failed.
    Failed,
}

/// What the driver takes as the arguments of a lock.
#[repr(C)]
struct LockArguments {
    timeout_ms: u32,
    reserved0: u32,
    reserved1: [u64; 7],
}

fn own() -> i32 {
    std::process::id() as i32
}

/// Whether the driver has the calls.
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

/// What the process is in.
pub fn state() -> Result<State, CUerror> {
    let mut state = 0_u32;
    // SAFETY: the place is ours.
    unsafe { call::cuCheckpointProcessGetState(own(), Out::to(&mut state)) }?;
    Ok(match state {
        0 => State::Running,
        1 => State::Locked,
        2 => State::Checkpointed,
        _ => State::Failed,
    })
}

/// Keeps all calls waiting, once work and calls under way have ended; not longer than that.
pub fn lock(timeout_ms: u32) -> CUresult {
    let mut arguments = LockArguments {
        timeout_ms: timeout_ms.max(1),
        reserved0: 0,
        reserved1: [0; 7],
    };
    let arguments = std::ptr::from_mut(&mut arguments).cast();
    // SAFETY: the driver reads 64 bytes, which are ours.
    unsafe { call::cuCheckpointProcessLock(own(), arguments) }
}

/// Moves the memory to the host.
pub fn checkpoint() -> CUresult {
    // SAFETY: the arguments may be left out.
    unsafe { call::cuCheckpointProcessCheckpoint(own(), null_mut()) }
}

/// Moves it back.
pub fn restore() -> CUresult {
    // SAFETY: the arguments may be left out.
    unsafe { call::cuCheckpointProcessRestore(own(), null_mut()) }
}

/// Lets calls go on.
pub fn unlock() -> CUresult {
    // SAFETY: the arguments may be left out.
    unsafe { call::cuCheckpointProcessUnlock(own(), null_mut()) }
}
