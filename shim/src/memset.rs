//! Memsets: submitted like kernels, whether the host waits for them or not.

use gpushare_abi::{
    errors::CUresult,
    types::{CUdeviceptr, CUstream},
};

use crate::{
    launch::{Work, submit},
    real::Submission,
};

/// `cuMemsetD8`.
#[inline(always)]
pub fn d8(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _value: u8,
    _count: usize,
) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Memset)
}

/// `cuMemsetD16`.
#[inline(always)]
pub fn d16(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _value: u16,
    _count: usize,
) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Memset)
}

/// `cuMemsetD32`.
#[inline(always)]
pub fn d32(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _value: u32,
    _count: usize,
) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Memset)
}

/// `cuMemsetD2D8`.
#[inline(always)]
pub fn rows8(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _pitch: usize,
    _value: u8,
    _width: usize,
    _height: usize,
) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Memset)
}

/// `cuMemsetD2D16`.
#[inline(always)]
pub fn rows16(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _pitch: usize,
    _value: u16,
    _width: usize,
    _height: usize,
) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Memset)
}

/// `cuMemsetD2D32`.
#[inline(always)]
pub fn rows32(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _pitch: usize,
    _value: u32,
    _width: usize,
    _height: usize,
) -> CUresult {
    submit(real, std::ptr::null_mut(), Work::Memset)
}

/// `cuMemsetD8Async`.
#[inline(always)]
pub fn d8_async(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _value: u8,
    _count: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Memset)
}

/// `cuMemsetD16Async`.
#[inline(always)]
pub fn d16_async(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _value: u16,
    _count: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Memset)
}

/// `cuMemsetD32Async`.
#[inline(always)]
pub fn d32_async(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _value: u32,
    _count: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Memset)
}

/// `cuMemsetD2D8Async`.
#[inline(always)]
pub fn rows8_async(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _pitch: usize,
    _value: u8,
    _width: usize,
    _height: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Memset)
}

/// `cuMemsetD2D16Async`.
#[inline(always)]
pub fn rows16_async(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _pitch: usize,
    _value: u16,
    _width: usize,
    _height: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Memset)
}

/// `cuMemsetD2D32Async`.
#[inline(always)]
pub fn rows32_async(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _pitch: usize,
    _value: u32,
    _width: usize,
    _height: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Memset)
}
