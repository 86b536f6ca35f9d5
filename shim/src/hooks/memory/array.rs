//! Hooks for arrays, which are charged with the exact bytes of their shape.

use super::{
    account,
    allocate::allocate,
    shape::{self, Shape},
    sparse,
};
use gpushare_abi::{
    In, Out,
    errors::CUresult,
    types::{CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUmipmappedArray},
};

use crate::{driver_query::memory as ask, hooks::Real, tracking::record::Kind};

/// Forwards `cuArrayCreate` and `cuArray3DCreate`.
pub fn create(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    array: Out<CUarray>,
    desc: In<impl Shape>,
) -> CUresult {
    let bytes = desc.get().and_then(|desc| shape::array(&desc.whole()));
    allocate(
        real,
        account::of_current_device(),
        bytes,
        Kind::Array,
        || Some(array.get()? as u64),
    )
}

/// Forwards `cuMipmappedArrayCreate`. Its level arrays are parts of it and are not charged.
pub fn create_mipmapped(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    array: Out<CUmipmappedArray>,
    desc: In<CUDA_ARRAY3D_DESCRIPTOR>,
    levels: u32,
) -> CUresult {
    let bytes = desc.get().and_then(|desc| shape::mipmapped(&desc, levels));
    allocate(
        real,
        account::of_current_device(),
        bytes,
        Kind::Mipmapped,
        || Some(array.get()? as u64),
    )
}

/// Forwards `cuArrayDestroy`.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, array: CUarray) -> CUresult {
    sparse::destroy(array as u64, || {
        account::free(real, array as u64, Kind::Array)
    })
}

/// Forwards `cuMipmappedArrayDestroy`.
pub fn destroy_mipmapped(
    real: Real<'_, impl FnOnce() -> CUresult>,
    array: CUmipmappedArray,
) -> CUresult {
    sparse::destroy(array as u64, || {
        account::free(real, array as u64, Kind::Mipmapped)
    })
}

/// Returns the bytes of an array's element, or 1 if the driver does not describe the array.
pub fn element_bytes(array: CUarray) -> usize {
    ask::shape_of(array)
        .and_then(|desc| shape::element(&desc))
        .map_or(1, |bytes| bytes as usize)
}
