//! Contexts: which device a thread works on, and what becomes of a context's streams and memory.
//!
//! The hooks on the context calls only say that something may have changed; the next submission asks the
//! driver. A process that sees one device needs no asking at all.
#![allow(unsafe_code, reason = "asks the driver")]

use gpushare_abi::{
    Out,
    errors::CUresult,
    types::{CU_STREAM_PER_THREAD, CUcontext, CUdevice, CUstream},
};

use crate::{
    bypass::Bypass,
    driver, gate,
    guest::{Guest, guest},
    memory,
    real::Real,
    thread::{self, Thread, Used},
};

/// The ordinal of the calling thread's current device; `None` when no context is current.
pub fn current_ordinal(guest: &Guest) -> Option<CUdevice> {
    if guest.devices.len() == 1 {
        return Some(0);
    }
    device_of_current()
}

/// The calling thread's context and its device: as settled, else as the driver says.
#[inline(always)]
pub fn place(guest: &Guest, thread: &Thread) -> Option<(usize, u8)> {
    match thread.settled() {
        Some(place) => Some(place),
        None => settle(guest, thread).ok(),
    }
}

/// Asks the driver where the calling thread is, and settles it there.
#[cold]
#[inline(never)]
pub fn settle(guest: &Guest, thread: &Thread) -> Result<(usize, u8), Bypass> {
    let context = current();
    if context == 0 {
        return Err(Bypass::NoContext);
    }
    let ordinal = match guest.devices.len() {
        1 => 0,
        _ => device_of_current().ok_or(Bypass::NoContext)?,
    };
    let ordinal = u8::try_from(ordinal).map_err(|_| Bypass::UnknownDevice)?;
    let gate = gate::of(ordinal).ok_or(Bypass::UnknownDevice)?;
    thread.settle(gate, ordinal, context);
    Ok((context, ordinal))
}

/// The current context, as the driver says; zero for none.
#[inline]
pub fn current() -> usize {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the place is ours.
    match unsafe { driver::call::cuCtxGetCurrent(Out::to(&mut context)) } {
        Ok(()) => context as usize,
        Err(_) => 0,
    }
}

/// The current context's device, as the driver says.
pub fn device_of_current() -> Option<CUdevice> {
    let mut device = -1;
    // SAFETY: the place is ours.
    unsafe { driver::call::cuCtxGetDevice(Out::to(&mut device)) }.ok()?;
    Some(device)
}

/// Where a stream that has a handle of its own belongs, as the driver says.
pub fn of_stream(guest: &Guest, key: usize) -> Option<Used> {
    if key <= CU_STREAM_PER_THREAD as usize {
        return None;
    }
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: a stream the application is about to submit to; the place is ours.
    unsafe { driver::call::cuStreamGetCtx(key as CUstream, Out::to(&mut context)) }.ok()?;
    Some(Used {
        stream: key,
        context: context as usize,
        ordinal: u8::try_from(ordinal_of(guest, context)?).ok()?,
    })
}

/// Makes a context current for as long as `work` runs; does nothing where the driver refuses it.
pub fn with_current(context: usize, work: impl FnOnce()) {
    // SAFETY: a context the application submitted to and has not destroyed: destroying waits for us.
    if unsafe { driver::call::cuCtxPushCurrent_v2(context as CUcontext) }.is_err() {
        return;
    }
    work();
    // SAFETY: takes back what was pushed above.
    let _ = unsafe { driver::call::cuCtxPopCurrent_v2(Out::to(&mut std::ptr::null_mut())) };
}

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
    let ordinal = ordinal_of(guest, ctx);
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
    if !primary_is_active(device) {
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

fn primary_is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 1);
    // SAFETY: the places are ours.
    let asked = unsafe {
        driver::call::cuDevicePrimaryCtxGetState(device, Out::to(&mut flags), Out::to(&mut active))
    };
    asked.is_err() || active != 0
}

/// The device of a context that need not be current.
fn ordinal_of(guest: &Guest, ctx: CUcontext) -> Option<CUdevice> {
    if guest.devices.len() == 1 {
        return Some(0);
    }
    let mut ordinal = None;
    with_current(ctx as usize, || ordinal = device_of_current());
    ordinal
}

/// Streams that are about to vanish are no longer anybody's business; waits for a drain that uses them.
pub fn forget_streams(guest: &Guest, ordinal: Option<CUdevice>, which: impl Fn(&Used) -> bool) {
    for device in &guest.devices {
        if ordinal.is_none_or(|ordinal| ordinal == i32::from(device.ordinal)) {
            device
                .turn
                .forget_streams(|used| used.ordinal == device.ordinal && which(used));
        }
    }
}
