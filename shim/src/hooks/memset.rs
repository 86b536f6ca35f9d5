//! Memsets: submitted like kernels, whether the host waits for them or not.

use gpushare_abi::{errors::CUresult, types::CUstream};

use super::launch::submit;
use crate::{real::Submission, thread::Work};

/// A memset in the default stream.
#[inline(always)]
pub fn now(real: Submission<impl FnOnce() -> CUresult>) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Memset)
}

/// A memset in a stream.
#[inline(always)]
pub fn on(real: Submission<impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    submit(real, stream, Work::Memset)
}
