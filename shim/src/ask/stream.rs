//! What a stream is at.
#![allow(unsafe_code, reason = "asks the driver")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use gpushare_abi::{
    Out,
    types::{
        CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_LEGACY, CUstream,
    },
};

use crate::driver::call;

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
