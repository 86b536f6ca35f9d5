//! Hooks for explicit synchronisations, at which a holder of the lock may yield, because the application waited
//! anyway.

use gpushare_abi::errors::CUresult;

use crate::{
    current_context,
    hooks::Real,
    managed_process,
    thread::{self, add},
};

/// Forwards a wait of the application for a context, a stream or an event.
pub fn wait(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    real.call()?;
    synchronised();
    Ok(())
}

fn synchronised() {
    let Some(device) = managed_process::current().and_then(current_context::current_device) else {
        return;
    };
    add(&thread::attached().tally(device.ordinal).syncs, 1);
    release_point();
}

/// Yields the lock at a synchronisation if another process waits.
pub fn release_point() {
    let Some(process) = managed_process::current() else {
        return;
    };
    if process.devices.iter().all(|device| !device.turn.is_held()) {
        return;
    }
    if let Some(device) = current_context::current_device(process) {
        device.turn.at_release_point(process, device);
    }
}
