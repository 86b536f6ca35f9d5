//! What a stream is at.
#![allow(unsafe_code, reason = "asks the driver")]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use gpushare_abi::{
    Out,
    types::{CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CUstream},
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
