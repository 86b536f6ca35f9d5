//! The calls that lock a process, take its memory off the devices, bring it back and let it run.

use std::time::Duration;

use gpushare_abi::errors::{
    CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY,
    CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_UNKNOWN, CUerror, CUresult,
};
use gpushare_sim::World;
use gpushare_sim::checkpoint::{self, Refused, State};

use crate::c::{In, Out};
use crate::driver::driver_while_locked;
use crate::faces::faces;

fn world() -> Result<&'static World, CUerror> {
    Ok(driver_while_locked()?.member.world())
}

fn pid(pid: i32) -> Result<u32, CUerror> {
    u32::try_from(pid).map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

fn code(refused: Refused) -> CUerror {
    match refused {
        Refused::Unknown => CUDA_ERROR_INVALID_VALUE,
        Refused::State => CUDA_ERROR_ILLEGAL_STATE,
        Refused::TimedOut => CUDA_ERROR_NOT_READY,
        Refused::NotSupported => CUDA_ERROR_NOT_SUPPORTED,
        Refused::Failed => CUDA_ERROR_UNKNOWN,
        Refused::NoRoom => CUDA_ERROR_OUT_OF_MEMORY,
        Refused::Lost => CUDA_ERROR_OPERATING_SYSTEM,
    }
}

/// Takes one step.
fn step(process: i32, step: fn(&World, u32) -> Result<(), Refused>) -> CUresult {
    step(world()?, pid(process)?).map_err(code)
}

faces! {
    "cuCheckpointProcessGetRestoreThreadId" 12080 cuCheckpointProcessGetRestoreThreadId (process: i32, out: Out<i32>) {
        checkpoint::state(world()?, pid(process)?).map_err(code)?;
        // The caller performs the restore; its id stands for the restore thread.
        out.set(process)
    }
    "cuCheckpointProcessGetState" 12080 cuCheckpointProcessGetState (process: i32, out: Out<u32>) {
        out.check()?;
        out.set(match checkpoint::state(world()?, pid(process)?).map_err(code)? {
            State::Running => 0,
            State::Locked => 1,
            State::Checkpointed => 2,
            State::Failed => 3,
        })
    }
    "cuCheckpointProcessLock" 12080 cuCheckpointProcessLock (process: i32, arguments: In<u32>) {
        let timeout = if arguments.is_null() { 0 } else { arguments.get()? };
        let timeout = (timeout > 0).then(|| Duration::from_millis(timeout.into()));
        checkpoint::lock(world()?, pid(process)?, timeout).map_err(code)
    }
    "cuCheckpointProcessCheckpoint" 12080 cuCheckpointProcessCheckpoint (process: i32, arguments: In<u32>) {
        let _ = arguments;
        step(process, checkpoint::checkpoint)
    }
    "cuCheckpointProcessRestore" 12080 cuCheckpointProcessRestore (process: i32, arguments: In<u32>) {
        let _ = arguments;
        step(process, checkpoint::restore)
    }
    "cuCheckpointProcessUnlock" 12080 cuCheckpointProcessUnlock (process: i32, arguments: In<u32>) {
        let _ = arguments;
        step(process, checkpoint::unlock)
    }
}
