//! What a stream is at.
#![allow(unsafe_code, reason = "asks the driver")]

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use gpushare_abi::{
    Out,
    types::{
        CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_PER_THREAD,
        CUstream,
    },
};

use crate::{driver::call, thread};

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

/// Streams whose capture a thread began, with the thread's record: some may have ended.
static BEGUN: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

fn begun() -> MutexGuard<'static, Vec<(usize, usize)>> {
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn me() -> usize {
    std::ptr::from_ref(thread::attached()) as usize
}

/// A capture is about to begin.
pub fn capture_begins(key: usize) {
    EVER_CAPTURED.store(true, Relaxed);
    let this = (key, me());
    let mut begun = begun();
    begun.retain(|(stream, _)| *stream != key);
    begun.push(this);
}

/// A stream is about to vanish.
pub fn forget(key: usize) {
    if any_capturing() {
        begun().retain(|(stream, _)| *stream != key);
    }
}

/// Whether a capture that the calling thread began is under way.
pub fn is_capturing_here() -> bool {
    if !any_capturing() {
        return false;
    }
    let me = me();
    let mine: Vec<usize> = begun()
        .iter()
        .filter(|(_, thread)| *thread == me)
        .map(|(stream, _)| *stream)
        .collect();
    mine.into_iter().any(is_capturing)
}

/// A capture has ended, or did not begin. The default streams of threads have one key.
pub fn capture_ends(key: usize) {
    if any_capturing() {
        let this = (key, me());
        begun().retain(|other| match key == CU_STREAM_PER_THREAD as usize {
            true => *other != this,
            false => other.0 != key,
        });
    }
}

/// Whether a stream is capturing now, as the calls that begin and end captures say.
pub fn is_any_capturing() -> bool {
    any_capturing() && !begun().is_empty()
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
