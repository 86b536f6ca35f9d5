//! Hooks for pinned host memory, which is counted and never charged to a device's quota.

use std::ffi::c_void;

use super::account;
use gpushare_abi::{Amount, Out, errors::CUresult};

use crate::{hooks::Real, tracking::record::Kind};

/// Forwards `cuMemAllocHost` and `cuMemHostAlloc`.
pub fn alloc(
    real: Real<'_, impl FnOnce() -> CUresult>,
    ptr: Out<*mut c_void>,
    bytes: impl Amount,
) -> CUresult {
    account::count(
        real,
        Kind::Host,
        || bytes.wide(),
        || Some(ptr.get()? as u64),
    )
}

/// Forwards `cuMemFreeHost`.
pub fn free(real: Real<'_, impl FnOnce() -> CUresult>, ptr: *mut c_void) -> CUresult {
    account::free(real, ptr as u64, Kind::Host)
}

/// Forwards `cuMemHostRegister`.
pub fn register(
    real: Real<'_, impl FnOnce() -> CUresult>,
    ptr: *mut c_void,
    bytes: usize,
) -> CUresult {
    account::count(real, Kind::Registered, || bytes as u64, || Some(ptr as u64))
}

/// Forwards `cuMemHostUnregister`.
pub fn unregister(real: Real<'_, impl FnOnce() -> CUresult>, ptr: *mut c_void) -> CUresult {
    account::free(real, ptr as u64, Kind::Registered)
}
