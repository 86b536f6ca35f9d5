//! Streams: destroyed ones are forgotten, capturing ones are none of our business.
#![allow(unsafe_code, reason = "asks the driver")]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use gpushare_abi::{
    Out,
    errors::CUresult,
    types::{CU_STREAM_CAPTURE_STATUS_NONE, CUstream},
};

use crate::{context, driver, guest::guest, memory, real::Real, thread::stream_key};

/// Whether a stream is capturing, or cannot be asked because another one is.
pub fn is_capturing(key: usize) -> bool {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: a stream the application is submitting to; the place is ours.
    let asked = unsafe { driver::call::cuStreamIsCapturing(key as CUstream, Out::to(&mut status)) };
    match asked {
        Ok(()) => status != CU_STREAM_CAPTURE_STATUS_NONE,
        // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the legacy stream, while a stream it waits for captures.
        Err(error) => error.code() == 906,
    }
}

/// A capture was begun in this process; until then nobody needs to ask for one.
static EVER_CAPTURED: AtomicBool = AtomicBool::new(false);

/// Whether a stream may be capturing.
#[inline]
pub fn any_capturing() -> bool {
    EVER_CAPTURED.load(Relaxed)
}

/// `cuStreamDestroy`.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    forget(stream as usize);
    if let Some(guest) = guest() {
        memory::stream_gone(guest, stream as usize);
    }
    real.call()
}

/// `cuStreamBeginCapture` in all its forms.
pub fn begin_capture(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    EVER_CAPTURED.store(true, Relaxed);
    forget(stream_key(stream as usize, real.per_thread()));
    real.call()
}

/// The stream is not asked about any more; the next submission to it looks again. Waits for a drain that is
/// asking about it now.
fn forget(key: usize) {
    if let Some(guest) = guest() {
        context::forget_streams(guest, None, |used| used.stream == key);
    }
}
