//! Contexts: a thread may work on another device now, and what becomes of a context's streams and memory.
//!
//! A hook here only says that something may have changed; the next submission asks the driver.

use gpushare_abi::{
    errors::CUresult,
    types::{CUcontext, CUdevice},
};

use super::memory;
use crate::{ask, guest::guest, place, real::Real, thread, turn::forget_streams};

/// The calling thread's context may be another one now.
fn changed() {
    if let Some(thread) = thread::current() {
        thread.unsettle();
    }
}

/// A call after which another context may be current: `cuCtxCreate`, `cuCtxPopCurrent`.
pub fn changes(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    changed();
    real.call()
}

/// `cuCtxSetCurrent`, `cuCtxPushCurrent`.
pub fn set_current(real: Real<'_, impl FnOnce() -> CUresult>, ctx: CUcontext) -> CUresult {
    // The same context once more is common, and changes nothing.
    if thread::current().is_some_and(|thread| thread.context() != ctx as usize) {
        changed();
    }
    real.call()
}

/// `cuCtxDestroy`.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, ctx: CUcontext) -> CUresult {
    changed();
    let Some(guest) = guest() else {
        return real.call();
    };
    let ordinal = place::ordinal_of(guest, ctx);
    forget_streams(guest, ordinal, |used| used.context == ctx as usize);
    real.call()?;
    if let Some(ordinal) = ordinal {
        memory::context_gone(guest, ctx, ordinal);
    }
    Ok(())
}

/// `cuCtxDetach`, which destroys at the last reference.
pub fn detach(real: Real<'_, impl FnOnce() -> CUresult>, ctx: CUcontext) -> CUresult {
    destroy(real, ctx)
}

/// `cuDevicePrimaryCtxRelease`, which resets at the last reference.
pub fn primary_release(real: Real<'_, impl FnOnce() -> CUresult>, device: CUdevice) -> CUresult {
    changed();
    let Some(guest) = guest() else {
        return real.call();
    };
    forget_streams(guest, Some(device), |_| true);
    real.call()?;
    if !ask::context::primary_is_active(device) {
        memory::context_gone(guest, std::ptr::null_mut(), device);
    }
    Ok(())
}

/// `cuDevicePrimaryCtxReset`.
pub fn primary_reset(real: Real<'_, impl FnOnce() -> CUresult>, device: CUdevice) -> CUresult {
    changed();
    let Some(guest) = guest() else {
        return real.call();
    };
    forget_streams(guest, Some(device), |_| true);
    real.call()?;
    memory::context_gone(guest, std::ptr::null_mut(), device);
    Ok(())
}
