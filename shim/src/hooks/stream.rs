//! Streams: destroyed ones are forgotten, capturing ones are left alone.

use gpushare_abi::{errors::CUresult, types::CUstream};

use super::memory;
use crate::{ask, guest::guest, real::Real, thread::stream_key, turn};

/// `cuStreamDestroy`.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    forget(stream as usize);
    ask::stream::forget(stream as usize);
    if let Some(guest) = guest() {
        memory::stream_gone(guest, stream as usize);
    }
    real.call()
}

/// `cuStreamBeginCapture` in all its forms.
pub fn begin_capture(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    let key = stream_key(stream as usize, real.per_thread());
    ask::stream::capture_begins(key);
    forget(key);
    real.call()
}

/// The stream is not asked about any more; the next submission to it looks again. Waits for a drain that is
/// asking about it now.
fn forget(key: usize) {
    if let Some(guest) = guest() {
        turn::forget_streams(guest, None, |used| used.stream == key);
    }
}
