//! Explicit synchronisations: the application waited anyway, so this is where a holder likes to yield.

use gpushare_abi::errors::CUresult;

use crate::{
    current_context,
    hooks::Real,
    managed_process,
    thread::{self, add},
};

/// The application waits: for a context, a stream or an event.
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

/// The application has waited for the device: yield if another process waits.
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
