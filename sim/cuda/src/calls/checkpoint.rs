//! The calls that lock a process, move its memory off the devices, restore it and unlock it.

use std::path::Path;
use std::time::Duration;

use gpushare_abi::errors::{
    CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_READY,
    CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_SYSTEM_NOT_READY, CUDA_ERROR_UNKNOWN, CUerror, CUresult,
};
use gpushare_sim::World;
use gpushare_sim::checkpoint::{self, Refused, State};

use crate::c::{In, Out};
use crate::driver;
use crate::faces::faces;

/// Returns the world. The caller need not have initialised the driver, because the steps apply to another process.
fn world() -> Result<&'static World, CUerror> {
    if driver::is_forked() {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    let world = driver::world().ok_or(CUDA_ERROR_SYSTEM_NOT_READY)?;
    Ok(world)
}

/// Checks a process ID as a driver (580.159.04) does: a process that does not exist and one without the driver give
/// different errors.
fn process(pid: i32) -> Result<u32, CUerror> {
    match u32::try_from(pid) {
        Ok(number) if Path::new(&format!("/proc/{pid}")).exists() => Ok(number),
        _ => Err(CUDA_ERROR_OPERATING_SYSTEM),
    }
}

fn code(refused: Refused) -> CUerror {
    match refused {
        Refused::Unknown => CUDA_ERROR_NOT_INITIALIZED,
        Refused::State => CUDA_ERROR_ILLEGAL_STATE,
        Refused::TimedOut => CUDA_ERROR_NOT_READY,
        Refused::NotSupported => CUDA_ERROR_NOT_SUPPORTED,
        Refused::Failed => CUDA_ERROR_UNKNOWN,
        Refused::NoRoom => CUDA_ERROR_OUT_OF_MEMORY,
        Refused::Lost => CUDA_ERROR_OPERATING_SYSTEM,
    }
}

/// Makes one step of a checkpoint.
fn step(pid: i32, step: fn(&World, u32) -> Result<(), Refused>) -> CUresult {
    step(world()?, process(pid)?).map_err(code)
}

faces! {
    "cuCheckpointProcessGetRestoreThreadId" 12080 cuCheckpointProcessGetRestoreThreadId (pid: i32, out: Out<i32>) {
        out.check()?;
        out.set(checkpoint::restorer(world()?, process(pid)?).map_err(code)?.cast_signed())
    }
    "cuCheckpointProcessGetState" 12080 cuCheckpointProcessGetState (pid: i32, out: Out<u32>) {
        out.check()?;
        out.set(match checkpoint::state(world()?, process(pid)?).map_err(code)? {
            State::Running => 0,
            State::Locked => 1,
            State::Checkpointed => 2,
            State::Failed => 3,
        })
    }
    "cuCheckpointProcessLock" 12080 cuCheckpointProcessLock (pid: i32, arguments: In<u32>) {
        let timeout = if arguments.is_null() { 0 } else { arguments.get()? };
        let timeout = (timeout > 0).then(|| Duration::from_millis(timeout.into()));
        checkpoint::lock(world()?, process(pid)?, timeout).map_err(code)
    }
    "cuCheckpointProcessCheckpoint" 12080 cuCheckpointProcessCheckpoint (pid: i32, arguments: In<u32>) {
        let _ = arguments;
        step(pid, checkpoint::checkpoint)
    }
    "cuCheckpointProcessRestore" 12080 cuCheckpointProcessRestore (pid: i32, arguments: In<u32>) {
        let _ = arguments;
        step(pid, checkpoint::restore)
    }
    "cuCheckpointProcessUnlock" 12080 cuCheckpointProcessUnlock (pid: i32, arguments: In<u32>) {
        let _ = arguments;
        step(pid, checkpoint::unlock)
    }
}
