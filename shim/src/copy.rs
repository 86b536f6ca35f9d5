//! Synchronous copies: counted, not locked (the driver orders them behind what was submitted), and release points.

use std::ffi::c_void;

use gpushare_abi::{
    In,
    errors::CUresult,
    types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUdeviceptr},
};

use crate::{
    guest::guest,
    real::Real,
    sync,
    thread::{self, add},
};

fn copied(real: Real<'_, impl FnOnce() -> CUresult>, bytes: usize) -> CUresult {
    real.call()?;
    if let Some(device) = guest().and_then(|guest| guest.current_device()) {
        let tally = thread::attached().tally(device.ordinal);
        add(&tally.copies, 1);
        add(&tally.copy_bytes, bytes as u64);
        sync::release_point();
    }
    Ok(())
}

/// Bytes of a two-dimensional copy.
pub fn rectangle_bytes(copy: In<CUDA_MEMCPY2D>) -> usize {
    copy.get()
        .map_or(0, |copy| copy.WidthInBytes.saturating_mul(copy.Height))
}

/// Bytes of a three-dimensional copy.
pub fn block_bytes(copy: In<CUDA_MEMCPY3D>) -> usize {
    copy.get().map_or(0, |copy| {
        copy.WidthInBytes
            .saturating_mul(copy.Height)
            .saturating_mul(copy.Depth)
    })
}

/// Bytes of a three-dimensional copy between contexts.
pub fn block_peer_bytes(copy: In<CUDA_MEMCPY3D_PEER>) -> usize {
    copy.get().map_or(0, |copy| {
        copy.WidthInBytes
            .saturating_mul(copy.Height)
            .saturating_mul(copy.Depth)
    })
}

/// `cuMemcpy`, `cuMemcpyDtoD`.
pub fn linear(
    real: Real<'_, impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _src: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    copied(real, bytes)
}

/// `cuMemcpyPeer`.
pub fn peer(
    real: Real<'_, impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _dst_ctx: CUcontext,
    _src: CUdeviceptr,
    _src_ctx: CUcontext,
    bytes: usize,
) -> CUresult {
    copied(real, bytes)
}

/// `cuMemcpyHtoD`.
pub fn host_to_device(
    real: Real<'_, impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _src: *const c_void,
    bytes: usize,
) -> CUresult {
    copied(real, bytes)
}

/// `cuMemcpyDtoH`.
pub fn device_to_host(
    real: Real<'_, impl FnOnce() -> CUresult>,
    _dst: *mut c_void,
    _src: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    copied(real, bytes)
}

/// `cuMemcpyDtoA`.
pub fn device_to_array(
    real: Real<'_, impl FnOnce() -> CUresult>,
    _dst: CUarray,
    _offset: usize,
    _src: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    copied(real, bytes)
}

/// `cuMemcpyAtoD`.
pub fn array_to_device(
    real: Real<'_, impl FnOnce() -> CUresult>,
    _dst: CUdeviceptr,
    _src: CUarray,
    _offset: usize,
    bytes: usize,
) -> CUresult {
    copied(real, bytes)
}

/// `cuMemcpyHtoA`.
pub fn host_to_array(
    real: Real<'_, impl FnOnce() -> CUresult>,
    _dst: CUarray,
    _offset: usize,
    _src: *const c_void,
    bytes: usize,
) -> CUresult {
    copied(real, bytes)
}

/// `cuMemcpyAtoH`.
pub fn array_to_host(
    real: Real<'_, impl FnOnce() -> CUresult>,
    _dst: *mut c_void,
    _src: CUarray,
    _offset: usize,
    bytes: usize,
) -> CUresult {
    copied(real, bytes)
}

/// `cuMemcpyAtoA`.
pub fn array_to_array(
    real: Real<'_, impl FnOnce() -> CUresult>,
    _dst: CUarray,
    _dst_offset: usize,
    _src: CUarray,
    _src_offset: usize,
    bytes: usize,
) -> CUresult {
    copied(real, bytes)
}

/// `cuMemcpy2D`, `cuMemcpy2DUnaligned`.
pub fn rectangle(real: Real<'_, impl FnOnce() -> CUresult>, copy: In<CUDA_MEMCPY2D>) -> CUresult {
    copied(real, rectangle_bytes(copy))
}

/// `cuMemcpy3D`.
pub fn block(real: Real<'_, impl FnOnce() -> CUresult>, copy: In<CUDA_MEMCPY3D>) -> CUresult {
    copied(real, block_bytes(copy))
}

/// `cuMemcpy3DPeer`.
pub fn block_peer(
    real: Real<'_, impl FnOnce() -> CUresult>,
    copy: In<CUDA_MEMCPY3D_PEER>,
) -> CUresult {
    copied(real, block_peer_bytes(copy))
}
