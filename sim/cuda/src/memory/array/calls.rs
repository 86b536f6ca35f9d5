//! The calls on arrays and mipmapped arrays.

use gpushare_abi::{
    errors::{
        CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUresult,
    },
    types::{
        CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES,
        CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_SPARSE, CUarray, CUdevice, CUmipmappedArray,
    },
};

use crate::{
    c::{In, Out},
    context::current,
    driver::driver,
    faces::faces,
    memory::array::{ARRAYS, Array, MIPMAPPED, create, destroy, get, mipmapped, shape::Shape},
};

/// Writes the size and the alignment of the memory that an array without memory needs.
fn requirements(out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: &Array) -> CUresult {
    const ALIGNMENT: usize = 64 << 10;
    out.check()?;
    if !array.shape.without_memory() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let size = array.size().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    out.set(CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: size.next_multiple_of(ALIGNMENT),
        alignment: ALIGNMENT,
        reserved: [0; 4],
    })
}

/// Writes the properties of a sparse array. All of the simulator's tiles have the same size, and no level is in a
/// tail.
fn sparse(out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: &Array) -> CUresult {
    out.check()?;
    if array.shape.flags() & CUDA_ARRAY3D_SPARSE == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    out.set(CUDA_ARRAY_SPARSE_PROPERTIES {
        tileWidth: 128,
        tileHeight: 128,
        tileDepth: 1,
        miptailFirstLevel: array.levels,
        miptailSize: 0,
        flags: 0,
        reserved: [0; 4],
    })
}

faces! {
    "cuArrayCreate" 3020 cuArrayCreate_v2 (out: Out<CUarray>, shape: In<CUDA_ARRAY_DESCRIPTOR>) {
        let context = current()?;
        out.check()?;
        out.set(create(&ARRAYS, &context, Shape::of(&shape.get()?)?, 1)? as CUarray)
    }
    "cuArray3DCreate" 3020 cuArray3DCreate_v2 (out: Out<CUarray>, shape: In<CUDA_ARRAY3D_DESCRIPTOR>) {
        let context = current()?;
        out.check()?;
        out.set(create(&ARRAYS, &context, Shape::of_3d(&shape.get()?)?, 1)? as CUarray)
    }
    "cuArrayGetDescriptor" 3020 cuArrayGetDescriptor_v2 (out: Out<CUDA_ARRAY_DESCRIPTOR>, array: CUarray) {
        out.set(get(array)?.shape.descriptor())
    }
    "cuArray3DGetDescriptor" 3020 cuArray3DGetDescriptor_v2 (out: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray) {
        out.set(get(array)?.shape.descriptor_3d())
    }
    "cuArrayDestroy" 2000 cuArrayDestroy (array: CUarray) { destroy(&ARRAYS, array as u64) }
    "cuArrayGetPlane" 11020 cuArrayGetPlane (out: Out<CUarray>, array: CUarray, index: u32) {
        let array = get(array)?;
        out.check()?;
        let (shape, before) = array.shape.plane(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.set(array.part(index, shape, before) as CUarray)
    }
    "cuArrayGetMemoryRequirements" 11060 cuArrayGetMemoryRequirements (out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUarray, device: CUdevice) {
        driver()?.device(device)?;
        requirements(out, &*get(array)?)
    }
    "cuMipmappedArrayGetMemoryRequirements" 11060 cuMipmappedArrayGetMemoryRequirements (out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUmipmappedArray, device: CUdevice) {
        driver()?.device(device)?;
        requirements(out, &*mipmapped(array)?)
    }
    "cuArrayGetSparseProperties" 11010 cuArrayGetSparseProperties (out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: CUarray) {
        sparse(out, &*get(array)?)
    }
    "cuMipmappedArrayGetSparseProperties" 11010 cuMipmappedArrayGetSparseProperties (out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: CUmipmappedArray) {
        sparse(out, &*mipmapped(array)?)
    }
    "cuMipmappedArrayCreate" 5000 cuMipmappedArrayCreate (out: Out<CUmipmappedArray>, shape: In<CUDA_ARRAY3D_DESCRIPTOR>, levels: u32) {
        let context = current()?;
        out.check()?;
        let shape = Shape::of_3d(&shape.get()?)?;
        out.set(create(&MIPMAPPED, &context, shape, levels)? as CUmipmappedArray)
    }
    "cuMipmappedArrayGetLevel" 5000 cuMipmappedArrayGetLevel (out: Out<CUarray>, array: CUmipmappedArray, index: u32) {
        let array = mipmapped(array)?;
        out.check()?;
        if index >= array.levels {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let level = array.shape.level(index).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        out.set(array.part(index, array.shape.of_level(index), level.offset) as CUarray)
    }
    "cuMipmappedArrayDestroy" 5000 cuMipmappedArrayDestroy (array: CUmipmappedArray) {
        destroy(&MIPMAPPED, array as u64)
    }
    "cuMemMapArrayAsync" 11010 cuMemMapArrayAsync (list: In<u64>, count: u32, stream: u64) / cuMemMapArrayAsync_ptsz 11010 |default| {
        let _ = (count, stream, default);
        current()?;
        list.get()?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
}
