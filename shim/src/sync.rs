//! Explicit synchronisations: the application waited anyway, so this is where a holder likes to yield.

use gpushare_abi::{
    errors::CUresult,
    types::{CUcontext, CUevent, CUstream},
};

use crate::{
    guest::guest,
    real::Real,
    thread::{self, add},
};

/// `cuCtxSynchronize`.
pub fn context(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    real.call()?;
    synchronised();
    Ok(())
}

/// `cuCtxSynchronize` of a named context.
pub fn context_v2(real: Real<'_, impl FnOnce() -> CUresult>, _ctx: CUcontext) -> CUresult {
    context(real)
}

/// `cuStreamSynchronize`.
pub fn stream(real: Real<'_, impl FnOnce() -> CUresult>, _stream: CUstream) -> CUresult {
    context(real)
}

/// `cuEventSynchronize`.
pub fn event(real: Real<'_, impl FnOnce() -> CUresult>, _event: CUevent) -> CUresult {
    context(real)
}

fn synchronised() {
    let Some(device) = guest().and_then(|guest| guest.current_device()) else {
        return;
    };
    add(&thread::attached().tally(device.ordinal).syncs, 1);
    release_point();
}

/// The application has waited for the device: yield if somebody waits for us.
pub fn release_point() {
    let Some(guest) = guest() else { return };
    if guest.devices.iter().all(|device| !device.turn.is_held()) {
        return;
    }
    if let Some(device) = guest.current_device() {
        device.turn.at_release_point(guest, device);
    }
}
