//! Asynchronous copies and prefetches: submitted like kernels.

use std::ffi::c_void;

use gpushare_abi::{
    In,
    errors::CUresult,
    types::{
        CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUdevice,
        CUdeviceptr, CUmemLocation, CUmemcpyAttributes, CUstream,
    },
};

use crate::{
    copy::{block_bytes, block_peer_bytes, rectangle_bytes},
    launch::{Work, submit},
    real::Submission,
};

/// `cuMemcpyAsync`, `cuMemcpyDtoDAsync`.
#[inline(always)]
pub fn linear(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(bytes))
}

/// `cuMemcpyPeerAsync`.
#[inline(always)]
pub fn peer(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _dst_ctx: CUcontext,
    _src: CUdeviceptr,
    _src_ctx: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(bytes))
}

/// `cuMemcpyHtoDAsync`.
#[inline(always)]
pub fn host_to_device(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(bytes))
}

/// `cuMemcpyDtoHAsync`.
#[inline(always)]
pub fn device_to_host(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: *mut c_void,
    _src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(bytes))
}

/// `cuMemcpyHtoAAsync`.
#[inline(always)]
pub fn host_to_array(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: CUarray,
    _offset: usize,
    _src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(bytes))
}

/// `cuMemcpyAtoHAsync`.
#[inline(always)]
pub fn array_to_host(
    real: Submission<impl FnOnce() -> CUresult>,
    _dst: *mut c_void,
    _src: CUarray,
    _offset: usize,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(bytes))
}

/// `cuMemcpy2DAsync`.
#[inline(always)]
pub fn rectangle(
    real: Submission<impl FnOnce() -> CUresult>,
    copy: In<CUDA_MEMCPY2D>,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(rectangle_bytes(copy)))
}

/// `cuMemcpy3DAsync`.
#[inline(always)]
pub fn block(
    real: Submission<impl FnOnce() -> CUresult>,
    copy: In<CUDA_MEMCPY3D>,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(block_bytes(copy)))
}

/// `cuMemcpy3DPeerAsync`.
#[inline(always)]
pub fn block_peer(
    real: Submission<impl FnOnce() -> CUresult>,
    copy: In<CUDA_MEMCPY3D_PEER>,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(block_peer_bytes(copy)))
}

/// `cuMemcpyBatchAsync`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
pub fn batch(
    real: Submission<impl FnOnce() -> CUresult>,
    _dsts: *mut CUdeviceptr,
    _srcs: *mut CUdeviceptr,
    sizes: In<usize>,
    count: usize,
    _attrs: *mut CUmemcpyAttributes,
    _attr_index: *mut usize,
    _attr_count: usize,
    _fail_index: *mut usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, batch_of(sizes, count))
}

/// `cuMemcpyBatchAsync`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
pub fn batch_v2(
    real: Submission<impl FnOnce() -> CUresult>,
    _dsts: *mut CUdeviceptr,
    _srcs: *mut CUdeviceptr,
    sizes: In<usize>,
    count: usize,
    _attrs: *mut CUmemcpyAttributes,
    _attr_index: *mut usize,
    _attr_count: usize,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, batch_of(sizes, count))
}

/// `cuMemPrefetchAsync`.
#[inline(always)]
pub fn prefetch(
    real: Submission<impl FnOnce() -> CUresult>,
    _ptr: CUdeviceptr,
    bytes: usize,
    _device: CUdevice,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(bytes))
}

/// `cuMemPrefetchAsync`.
#[inline(always)]
pub fn prefetch_v2(
    real: Submission<impl FnOnce() -> CUresult>,
    _ptr: CUdeviceptr,
    bytes: usize,
    _location: CUmemLocation,
    _flags: u32,
    stream: CUstream,
) -> CUresult {
    submit(real, stream, Work::Copy(bytes))
}

/// What the copies of a batch come to.
fn batch_of(sizes: In<usize>, count: usize) -> Work {
    let bytes = (0..count).filter_map(|index| sizes.nth(index));
    Work::Copies(count, bytes.fold(0, usize::saturating_add))
}
