//! Hooks for a process that locks itself for a checkpoint.
//!
//! While it is locked, the driver admits no call, not even the keeper's, so a device that it held could not be
//! drained. So the devices are released first, and no submission acquires one until the process is unlocked. If
//! another process locks this one, the shim gets no notice: a holder whose keeper is stuck in the driver is skipped
//! like a stopped holder.

use gpushare_abi::errors::CUresult;
use shm_layout::Reason;

use crate::{hooks::Real, managed_process, turn::state::set_locked};

fn is_own(pid: i32) -> bool {
    u32::try_from(pid) == Ok(std::process::id())
}

/// Forwards `cuCheckpointProcessLock`, after it has released the devices.
pub fn lock(real: Real<'_, impl FnOnce() -> CUresult>, pid: i32) -> CUresult {
    let Some(process) = managed_process::current().filter(|_| is_own(pid)) else {
        return real.call();
    };
    let before = set_locked(true);
    for device in &process.devices {
        device.turn.release(process, device, Reason::Explicit);
    }
    // After an error the previous state applies: the process may already have been locked.
    real.call().inspect_err(|_| _ = set_locked(before))
}

/// Forwards `cuCheckpointProcessUnlock`.
pub fn unlock(real: Real<'_, impl FnOnce() -> CUresult>, pid: i32) -> CUresult {
    real.call()?;
    if is_own(pid) {
        set_locked(false);
    }
    Ok(())
}
