//! What is current, and to which context and device a thing belongs.
//!
//! What a stream is at.
#![allow(unsafe_code, reason = "asks the driver")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use gpushare_abi::{
    Out,
    types::{
        CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_LEGACY,
        CU_STREAM_PER_THREAD, CUcontext, CUdevice, CUgreenCtx, CUstream,
    },
};

use crate::driver::call;

/// The current context, as the driver says; zero for none.
#[inline]
pub fn current() -> usize {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the place is ours.
    match unsafe { call::cuCtxGetCurrent(Out::to(&mut context)) } {
        Ok(()) => context as usize,
        Err(_) => 0,
    }
}

/// The current context's device, as the driver says.
pub fn device_of_current() -> Option<CUdevice> {
    let mut device = -1;
    // SAFETY: the place is ours.
    unsafe { call::cuCtxGetDevice(Out::to(&mut device)) }.ok()?;
    Some(device)
}

/// How many threads a device runs at once at most.
pub fn threads_of(device: CUdevice) -> Option<u64> {
    const MULTIPROCESSORS: u32 = 16;
    const THREADS_PER_MULTIPROCESSOR: u32 = 39;
    let ask = |attribute| {
        let mut value = 0;
        // SAFETY: the place is ours.
        unsafe { call::cuDeviceGetAttribute(Out::to(&mut value), attribute, device) }.ok()?;
        u64::try_from(value).ok()
    };
    ask(MULTIPROCESSORS)?.checked_mul(ask(THREADS_PER_MULTIPROCESSOR)?)
}

/// What a limit of the current context is.
pub fn limit(limit: u32) -> Option<u64> {
    let mut value = 0_usize;
    // SAFETY: the place is ours.
    unsafe { call::cuCtxGetLimit(Out::to(&mut value), limit) }.ok()?;
    Some(value as u64)
}

/// Whether contexts on a device are made by an MPS server; `None` where the driver is too old to say.
pub fn is_mps(device: CUdevice) -> Option<bool> {
    const MPS_ENABLED: u32 = 133;
    let mut value = 0;
    // SAFETY: the place is ours.
    unsafe { call::cuDeviceGetAttribute(Out::to(&mut value), MPS_ENABLED, device) }.ok()?;
    Some(value != 0)
}

/// The context of a stream that the application is about to submit to.
pub fn of_stream(stream: CUstream) -> Option<CUcontext> {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: a stream the application is about to submit to; the place is ours.
    unsafe { call::cuStreamGetCtx(stream, Out::to(&mut context)) }.ok()?;
    Some(context)
}

/// The context of a green context that the application has.
pub fn of_green(green: CUgreenCtx) -> Option<CUcontext> {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the application's own green context; the place is ours.
    unsafe { call::cuCtxFromGreenCtx(Out::to(&mut context), green) }.ok()?;
    Some(context)
}

/// Whether a stream that has a handle of its own was made in a green context.
pub fn is_in_green(stream: usize, green: CUgreenCtx) -> bool {
    let mut own: CUgreenCtx = std::ptr::null_mut();
    stream > CU_STREAM_PER_THREAD as usize && {
        // SAFETY: a stream the application used and has not destroyed; the place is ours.
        let asked = unsafe { call::cuStreamGetGreenCtx(stream as CUstream, Out::to(&mut own)) };
        asked.is_ok() && own == green
    }
}

/// Makes a context current for as long as `work` runs; does nothing where the driver refuses it.
pub fn with_current(context: usize, work: impl FnOnce()) {
    // SAFETY: a context the application submitted to and has not destroyed: destroying waits for us.
    if unsafe { call::cuCtxPushCurrent_v2(context as CUcontext) }.is_err() {
        return;
    }
    work();
    // SAFETY: takes back what was pushed above.
    let _ = unsafe { call::cuCtxPopCurrent_v2(Out::to(&mut std::ptr::null_mut())) };
}

/// Whether a device's primary context is active, as far as the driver says.
pub fn primary_is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 1);
    // SAFETY: the places are ours.
    let asked = unsafe {
        call::cuDevicePrimaryCtxGetState(device, Out::to(&mut flags), Out::to(&mut active))
    };
    asked.is_err() || active != 0
}

/// Whether a stream is capturing, or cannot be asked because another one is.
pub fn is_capturing(key: usize) -> bool {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: a stream the application is submitting to; the place is ours.
    let asked = unsafe { call::cuStreamIsCapturing(key as CUstream, Out::to(&mut status)) };
    match asked {
        Ok(()) => status != CU_STREAM_CAPTURE_STATUS_NONE,
        // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the legacy stream, while a stream it waits for captures.
        Err(error) => error.code() == 906,
    }
}

/// How many captures are open, from before the driver begins one.
static OPEN_CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// Sets how many captures are open.
pub fn set_open_captures(count: usize) {
    OPEN_CAPTURES.store(count, Relaxed);
}

/// Whether a stream is not to be asked, nor given an event, because that would break a capture.
///
/// A capture that begins between two calls of ours makes any use of the legacy stream break it, and the driver says so only
/// when it has begun. So the legacy stream is left alone from before that. The caller holds what `begin_capture` waits for
/// after it has noted the capture: a turn that drains, or the lock of what is queued.
pub fn is_left_alone(key: usize) -> bool {
    let is_legacy = key == CU_STREAM_LEGACY as usize;
    is_legacy && OPEN_CAPTURES.load(Relaxed) != 0 || is_capturing(key)
}

/// A capture was begun in this process; until then no call needs to ask for one.
static EVER_CAPTURED: AtomicBool = AtomicBool::new(false);

/// Whether a stream may be capturing.
#[inline]
pub fn any_capturing() -> bool {
    EVER_CAPTURED.load(Relaxed)
}

/// A capture is about to begin.
pub fn capture_begins() {
    EVER_CAPTURED.store(true, Relaxed);
}

/// Runs `work` with the calling thread in relaxed capture mode.
pub fn relaxed(work: impl FnOnce()) {
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the place is ours.
    let exchanged = unsafe { call::cuThreadExchangeStreamCaptureMode(Out::to(&mut mode)) }.is_ok();
    work();
    if exchanged {
        // SAFETY: puts back what was there; the place is ours.
        let _ = unsafe { call::cuThreadExchangeStreamCaptureMode(Out::to(&mut mode)) };
    }
}
