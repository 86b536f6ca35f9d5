//! A process that locks itself for a checkpoint.
//!
//! While it is locked the driver lets no call in, the keeper's neither: a device it held then could not be drained.
//! So the devices are given up before, and no submission asks for one until the process goes on. If another process
//! locks this one we hear nothing of it: a holder whose keeper is stuck in the driver is passed over, as one that is
//! stopped.

use gpushare_abi::errors::CUresult;
use shm_layout::Reason;

use crate::{hooks::Real, managed_process, turn::state::set_locked};

fn is_own(pid: i32) -> bool {
    u32::try_from(pid) == Ok(std::process::id())
}

/// `cuCheckpointProcessLock`.
pub fn lock(real: Real<'_, impl FnOnce() -> CUresult>, pid: i32) -> CUresult {
    let Some(process) = managed_process::current().filter(|_| is_own(pid)) else {
        return real.call();
    };
    let before = set_locked(true);
    for device in &process.devices {
        device.turn.release(process, device, Reason::Explicit);
    }
    // It may be locked already; then it stays so.
    real.call().inspect_err(|_| _ = set_locked(before))
}

/// `cuCheckpointProcessUnlock`.
pub fn unlock(real: Real<'_, impl FnOnce() -> CUresult>, pid: i32) -> CUresult {
    real.call()?;
    if is_own(pid) {
        set_locked(false);
    }
    Ok(())
}
