//! Streams: destroyed ones are forgotten, capturing ones are left alone.

use super::memory;
use gpushare_abi::{errors::CUresult, types::CUstream};

use crate::{
    current_context, driver_query,
    hooks::Real,
    managed_process,
    thread::{self, stream_key},
    turn,
};

/// `cuStreamDestroy`.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    forget(stream as usize);
    if let Some(process) = managed_process::current() {
        process.memory.captures.forget(stream as usize);
        memory::stream_gone(process, stream as usize);
    }
    let result = real.call();
    // Its capture may have been the last.
    if let Some(process) = managed_process::current() {
        memory::swappable::free_late(process);
    }
    result
}

/// `cuStreamBeginCapture` in all its forms.
pub fn begin_capture(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    let key = stream_key(stream as usize, real.per_thread());
    driver_query::context::capture_begins();
    if let Some(process) = managed_process::current() {
        let thread = real.thread();
        // Asked now: a stream that captures may refuse.
        let context = current_context::context_of_stream(process, thread, stream as usize);
        process.memory.captures.begin(key, thread.number(), context);
    }
    forget(key);
    real.call().inspect_err(|_| ended(key))
}

/// `cuStreamEndCapture`, which ends an invalid capture too, and `cuStreamEndCaptureToCig`.
pub fn end_capture(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    let key = stream_key(stream as usize, real.per_thread());
    let answer = real.call();
    ended(key);
    if let Some(process) = managed_process::current() {
        memory::swappable::free_late(process);
    }
    answer
}

/// The stream captures no more, if the driver says so.
fn ended(key: usize) {
    if let Some(process) = managed_process::current()
        && !driver_query::context::is_capturing(key)
    {
        process
            .memory
            .captures
            .end(key, thread::attached().number());
    }
}

/// The stream is not asked about any more; the next submission to it looks again. Waits for a drain that is
/// asking about it now.
fn forget(key: usize) {
    if let Some(process) = managed_process::current() {
        turn::forget_streams(process, None, |used| used.stream == key);
    }
}
