//! Queries for the current context, for the context and device of streams, and for stream captures.
#![allow(unsafe_code, reason = "asks the driver")]

use std::{
    ffi::c_char,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use gpushare_abi::{
    Out,
    errors::CUerror,
    types::{
        CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_LEGACY,
        CU_STREAM_PER_THREAD, CUcontext, CUdevice, CUgreenCtx, CUstream,
    },
};

use crate::driver::call;

/// Returns the current context as the driver reports it; 0 for none.
#[inline]
pub fn current() -> usize {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the result is a local variable.
    match unsafe { call::cuCtxGetCurrent(Out::to(&mut context)) } {
        Ok(()) => context as usize,
        Err(_) => 0,
    }
}

/// Returns the current context's device as the driver reports it.
pub fn device_of_current() -> Option<CUdevice> {
    let mut device = -1;
    // SAFETY: the result is a local variable.
    unsafe { call::cuCtxGetDevice(Out::to(&mut device)) }.ok()?;
    Some(device)
}

/// Returns the most threads that a device can run at once.
pub fn threads_of(device: CUdevice) -> Option<u64> {
    const MULTIPROCESSORS: u32 = 16;
    const THREADS_PER_MULTIPROCESSOR: u32 = 39;
    let ask = |attribute| {
        let mut value = 0;
        // SAFETY: the result is a local variable.
        unsafe { call::cuDeviceGetAttribute(Out::to(&mut value), attribute, device) }.ok()?;
        u64::try_from(value).ok()
    };
    ask(MULTIPROCESSORS)?.checked_mul(ask(THREADS_PER_MULTIPROCESSOR)?)
}

/// Returns a limit of the current context.
pub fn limit(limit: u32) -> Option<u64> {
    let mut value = 0_usize;
    // SAFETY: the result is a local variable.
    unsafe { call::cuCtxGetLimit(Out::to(&mut value), limit) }.ok()?;
    Some(value as u64)
}

/// Returns the name of a device; empty if the driver does not tell it.
pub fn name(device: CUdevice) -> String {
    let mut name = [0 as c_char; 128];
    // SAFETY: the driver writes to a local buffer of the stated length.
    if unsafe { call::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32 - 1, device) }.is_err() {
        return String::new();
    }
    let bytes: Vec<u8> = name
        .iter()
        .map(|&c| c as u8)
        .take_while(|&c| c != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the generation of a device: its major compute capability.
pub fn generation(device: CUdevice) -> Option<u32> {
    const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
    let mut value = 0;
    // SAFETY: the result is a local variable.
    unsafe { call::cuDeviceGetAttribute(Out::to(&mut value), COMPUTE_CAPABILITY_MAJOR, device) }
        .ok()?;
    u32::try_from(value).ok()
}

/// Returns true if contexts on a device are created by an MPS server; `None` if the driver is too old to report it.
pub fn is_mps(device: CUdevice) -> Option<bool> {
    const MPS_ENABLED: u32 = 133;
    let mut value = 0;
    // SAFETY: the result is a local variable.
    unsafe { call::cuDeviceGetAttribute(Out::to(&mut value), MPS_ENABLED, device) }.ok()?;
    Some(value != 0)
}

/// Returns the context of a stream that the application is about to submit to.
pub fn of_stream(stream: CUstream) -> Option<CUcontext> {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the application is about to submit to the stream; the result is a local variable.
    unsafe { call::cuStreamGetCtx(stream, Out::to(&mut context)) }.ok()?;
    Some(context)
}

/// Returns the context of a green context of the application.
pub fn of_green(green: CUgreenCtx) -> Option<CUcontext> {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: the green context is the application's; the result is a local variable.
    unsafe { call::cuCtxFromGreenCtx(Out::to(&mut context), green) }.ok()?;
    Some(context)
}

/// Returns true if a stream with a handle of its own was created in a green context.
pub fn is_in_green(stream: usize, green: CUgreenCtx) -> bool {
    let mut own: CUgreenCtx = std::ptr::null_mut();
    stream > CU_STREAM_PER_THREAD as usize && {
        // SAFETY: the application used the stream and has not destroyed it; the result is a local variable.
        let asked = unsafe { call::cuStreamGetGreenCtx(stream as CUstream, Out::to(&mut own)) };
        asked.is_ok() && own == green
    }
}

/// Makes a context current while `work` runs. Does not run it if the driver refuses.
pub fn with_current(context: usize, work: impl FnOnce()) {
    // SAFETY: the application submitted to the context and has not destroyed it; its destruction waits for this
    // thread.
    if unsafe { call::cuCtxPushCurrent_v2(context as CUcontext) }.is_err() {
        return;
    }
    let _pops = Pops;
    work();
}

/// Pops a context when it is dropped.
struct Pops;

impl Drop for Pops {
    fn drop(&mut self) {
        // SAFETY: pops what `with_current` has pushed.
        let _ = unsafe { call::cuCtxPopCurrent_v2(Out::to(&mut std::ptr::null_mut())) };
    }
}

/// Returns true if a device's primary context is active, or if the driver does not report it.
pub fn primary_is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 1);
    // SAFETY: the results are local variables.
    let asked = unsafe {
        call::cuDevicePrimaryCtxGetState(device, Out::to(&mut flags), Out::to(&mut active))
    };
    asked.is_err() || active != 0
}

/// Returns true if a stream is capturing, or cannot be queried because another one is.
pub fn is_capturing(key: usize) -> bool {
    match capture_status(key) {
        Ok(status) => status != CU_STREAM_CAPTURE_STATUS_NONE,
        // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the legacy stream, while a stream it waits for captures.
        Err(error) => error.code() == 906,
    }
}

/// Returns true if a stream is capturing itself. The legacy stream never does.
pub fn captures_itself(key: usize) -> bool {
    capture_status(key).is_ok_and(|status| status != CU_STREAM_CAPTURE_STATUS_NONE)
}

fn capture_status(key: usize) -> Result<u32, CUerror> {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the application is submitting to the stream; the result is a local variable.
    unsafe { call::cuStreamIsCapturing(key as CUstream, Out::to(&mut status)) }?;
    Ok(status)
}

/// Number of open captures, counted from before the driver begins one.
static OPEN_CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// Sets the number of open captures.
pub fn set_open_captures(count: usize) {
    OPEN_CAPTURES.store(count, Relaxed);
}

/// Returns true if a query of a stream, or an event in it, would break a capture.
///
/// While a capture is open, any use of the legacy stream breaks it, also if the capture begins between two calls of
/// the shim. So the legacy stream is not used from before the driver begins the capture. The caller holds a lock that
/// `begin_capture` waits for after it has counted the capture: a turn that drains, or the lock of the queue depth or of the
/// pending frees. A hook needs none for the stream that its own call has just used: that call could break the capture just as well.
pub fn is_left_alone(key: usize) -> bool {
    let is_legacy = key == CU_STREAM_LEGACY as usize;
    is_legacy && OPEN_CAPTURES.load(Relaxed) != 0 || is_capturing(key)
}

/// Set when the first capture of this process begins; until then no call needs to query for one.
static EVER_CAPTURED: AtomicBool = AtomicBool::new(false);

/// Returns true if a stream may be capturing.
#[inline]
pub fn any_capturing() -> bool {
    EVER_CAPTURED.load(Relaxed)
}

/// Records that a capture is about to begin.
pub fn capture_begins() {
    EVER_CAPTURED.store(true, Relaxed);
}

/// Runs `work` with the calling thread in relaxed capture mode.
pub fn relaxed(work: impl FnOnce()) {
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the mode is a local variable.
    let exchanged = unsafe { call::cuThreadExchangeStreamCaptureMode(Out::to(&mut mode)) }.is_ok();
    let _restores = exchanged.then_some(Restores(mode));
    work();
}

/// Restores the capture mode of the calling thread when it is dropped.
struct Restores(u32);

impl Drop for Restores {
    fn drop(&mut self) {
        // SAFETY: the mode belongs to this value.
        let _ = unsafe { call::cuThreadExchangeStreamCaptureMode(Out::to(&mut self.0)) };
    }
}
