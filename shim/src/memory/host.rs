//! Pinned host memory: counted, never against a device's quota.

use std::ffi::c_void;

use gpushare_abi::Out;
use gpushare_abi::errors::CUresult;

use crate::real::Real;

use super::account;
use super::record::Kind;

/// `cuMemAllocHost`.
pub fn alloc(
    real: Real<'_, impl FnOnce() -> CUresult>,
    ptr: Out<*mut c_void>,
    bytes: usize,
) -> CUresult {
    account::count(
        real,
        Kind::Host,
        || bytes as u64,
        || Some(ptr.get()? as u64),
    )
}

/// `cuMemHostAlloc`.
pub fn alloc_flags(
    real: Real<'_, impl FnOnce() -> CUresult>,
    ptr: Out<*mut c_void>,
    bytes: usize,
    _flags: u32,
) -> CUresult {
    alloc(real, ptr, bytes)
}

/// `cuMemFreeHost`.
pub fn free(real: Real<'_, impl FnOnce() -> CUresult>, ptr: *mut c_void) -> CUresult {
    account::free(real, ptr as u64, Kind::Host)
}

/// `cuMemHostRegister`.
pub fn register(
    real: Real<'_, impl FnOnce() -> CUresult>,
    ptr: *mut c_void,
    bytes: usize,
    _flags: u32,
) -> CUresult {
    account::count(real, Kind::Registered, || bytes as u64, || Some(ptr as u64))
}

/// `cuMemHostUnregister`.
pub fn unregister(real: Real<'_, impl FnOnce() -> CUresult>, ptr: *mut c_void) -> CUresult {
    account::free(real, ptr as u64, Kind::Registered)
}
