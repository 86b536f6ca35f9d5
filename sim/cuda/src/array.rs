//! Arrays and mipmapped arrays: memory with a format and a shape.

use std::sync::{Arc, Mutex};

use gpushare_abi::errors::{
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror,
    CUresult,
};
use gpushare_abi::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES,
    CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SPARSE, CUarray, CUdevice, CUmipmappedArray, channel_bytes,
};

use crate::c::{In, Out};
use crate::capture;
use crate::context::{self, current};
use crate::faces::faces;
use crate::handles::{Table, fresh, lock};
use crate::heap::{self, Kind};
use crate::task::Side;

/// An array.
struct Array {
    shape: CUDA_ARRAY3D_DESCRIPTOR,
    side: Side,
    context: u64,
    /// The block that is freed with it; `None` for a level of a mipmapped array or a sparse array.
    block: Option<u64>,
    bytes: u64,
}

/// A mipmapped array.
struct Mipmapped {
    context: u64,
    block: Option<u64>,
    levels: Vec<(CUDA_ARRAY3D_DESCRIPTOR, Side, u64)>,
    handles: Mutex<Vec<Option<u64>>>,
}

static ARRAYS: Table<Array> = Table::new();
static MIPMAPPED: Table<Mipmapped> = Table::new();

const KNOWN_FLAGS: u32 = 0x1ff;
const SIDE_LIMIT: usize = 1 << 17;

/// Bytes of an element, or why the shape cannot be.
fn element(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<usize, CUerror> {
    let channel = channel_bytes(shape.Format).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let sizes = [shape.Width, shape.Height, shape.Depth];
    let cubes = shape.Flags & CUDA_ARRAY3D_CUBEMAP == 0
        || shape.Width == shape.Height && shape.Depth > 0 && shape.Depth.is_multiple_of(6);
    let flat = shape.Depth == 0 || shape.Height > 0 || shape.Flags & CUDA_ARRAY3D_LAYERED != 0;
    let good = matches!(shape.NumChannels, 1 | 2 | 4)
        && shape.Width > 0
        && sizes.iter().all(|size| *size <= SIDE_LIMIT)
        && shape.Flags & !KNOWN_FLAGS == 0
        && cubes
        && flat;
    if good {
        Ok(channel * shape.NumChannels as usize)
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Its memory's layout, at address zero, and how many bytes that are.
fn layout(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<(Side, u64), CUerror> {
    let pitch = shape.Width * element(shape)?;
    let slice = pitch * shape.Height.max(1);
    let bytes = slice
        .checked_mul(shape.Depth.max(1))
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok((
        Side {
            address: 0,
            pitch,
            slice,
        },
        bytes as u64,
    ))
}

/// Has it memory of its own from the start?
fn has_memory(shape: &CUDA_ARRAY3D_DESCRIPTOR) -> bool {
    shape.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) == 0
}

fn create(out: Out<CUarray>, shape: CUDA_ARRAY3D_DESCRIPTOR) -> CUresult {
    let context = current()?;
    out.check()?;
    let (mut side, bytes) = layout(&shape)?;
    capture::forbid_unsafe()?;
    let block = if has_memory(&shape) {
        let block = heap::allocate(
            bytes,
            heap::STEP,
            context.device,
            context.handle,
            Kind::Array,
        )?;
        side.address = block.base;
        Some(block.base)
    } else {
        None
    };
    let handle = fresh();
    ARRAYS.insert(
        handle,
        Arc::new(Array {
            shape,
            side,
            context: context.handle,
            block,
            bytes,
        }),
    );
    out.set(handle as CUarray)
}

fn get(array: CUarray) -> Result<Arc<Array>, CUerror> {
    crate::driver::driver()?;
    ARRAYS.get(array as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Where an array's bytes are, if a box up to these ends is inside.
pub fn side(array: CUarray, width: usize, height: usize, depth: usize) -> Result<Side, CUerror> {
    let array = get(array)?;
    let inside = width <= array.side.pitch
        && height <= array.shape.Height.max(1)
        && depth <= array.shape.Depth.max(1);
    if inside && array.side.address != 0 {
        Ok(array.side)
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// An array or mipmapped array with this handle is there.
pub fn exists(handle: u64) -> bool {
    ARRAYS.get(handle).is_some() || MIPMAPPED.get(handle).is_some()
}

fn settle(context: u64) {
    if let Ok(context) = context::by_handle(context as _) {
        context.synchronize();
    }
}

/// Halves a size for the next level; a missing dimension stays missing.
fn half(size: usize, level: u32) -> usize {
    if size == 0 { 0 } else { (size >> level).max(1) }
}

fn create_mipmapped(
    out: Out<CUmipmappedArray>,
    shape: CUDA_ARRAY3D_DESCRIPTOR,
    count: u32,
) -> CUresult {
    let context = current()?;
    out.check()?;
    element(&shape)?;
    let largest = shape.Width.max(shape.Height).max(shape.Depth).max(1);
    let count = count.clamp(1, largest.ilog2() + 1);
    capture::forbid_unsafe()?;
    let layered = shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
    let mut levels = Vec::new();
    let mut total = 0u64;
    for level in 0..count {
        let depth = if layered {
            shape.Depth
        } else {
            half(shape.Depth, level)
        };
        let small = CUDA_ARRAY3D_DESCRIPTOR {
            Width: half(shape.Width, level),
            Height: half(shape.Height, level),
            Depth: depth,
            ..shape
        };
        let (mut side, bytes) = layout(&small)?;
        side.address = total;
        total += bytes;
        levels.push((small, side, bytes));
    }
    let block = if has_memory(&shape) {
        let block = heap::allocate(
            total,
            heap::STEP,
            context.device,
            context.handle,
            Kind::Array,
        )?;
        for (_, side, _) in &mut levels {
            side.address += block.base;
        }
        Some(block.base)
    } else {
        None
    };
    let handles = Mutex::new(vec![None; levels.len()]);
    let handle = fresh();
    MIPMAPPED.insert(
        handle,
        Arc::new(Mipmapped {
            context: context.handle,
            block,
            levels,
            handles,
        }),
    );
    out.set(handle as CUmipmappedArray)
}

fn mipmapped(handle: CUmipmappedArray) -> Result<Arc<Mipmapped>, CUerror> {
    crate::driver::driver()?;
    MIPMAPPED
        .get(handle as u64)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn requirements(out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, bytes: u64) -> CUresult {
    let size = bytes.next_multiple_of(64 << 10) as usize;
    out.set(CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size,
        alignment: 64 << 10,
        reserved: [0; 4],
    })
}

faces! {
    "cuArrayCreate" 3020 cuArrayCreate_v2 (out: Out<CUarray>, shape: In<CUDA_ARRAY_DESCRIPTOR>) {
        current()?;
        let s = shape.get()?;
        let (width, height) = (s.Width, s.Height);
        create(out, CUDA_ARRAY3D_DESCRIPTOR {
            Width: width, Height: height, Depth: 0, Format: s.Format, NumChannels: s.NumChannels, Flags: 0,
        })
    }
    "cuArray3DCreate" 3020 cuArray3DCreate_v2 (out: Out<CUarray>, shape: In<CUDA_ARRAY3D_DESCRIPTOR>) {
        current()?;
        create(out, shape.get()?)
    }
    "cuArrayGetDescriptor" 3020 cuArrayGetDescriptor_v2 (out: Out<CUDA_ARRAY_DESCRIPTOR>, array: CUarray) {
        let s = get(array)?.shape;
        out.set(CUDA_ARRAY_DESCRIPTOR { Width: s.Width, Height: s.Height, Format: s.Format, NumChannels: s.NumChannels })
    }
    "cuArray3DGetDescriptor" 3020 cuArray3DGetDescriptor_v2 (out: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray) {
        out.set(get(array)?.shape)
    }
    "cuArrayDestroy" 2000 cuArrayDestroy (array: CUarray) {
        let array_handle = array as u64;
        let array = get(array)?;
        let Some(block) = array.block else {
            if has_memory(&array.shape) {
                return Err(CUDA_ERROR_INVALID_HANDLE); // A level; it goes with its mipmapped array.
            }
            ARRAYS.remove(array_handle);
            return Ok(());
        };
        settle(array.context);
        ARRAYS.remove(array_handle);
        // The context may have taken its memory along already.
        let _ = heap::free(block, Kind::Array);
        Ok(())
    }
    "cuArrayGetPlane" 11020 cuArrayGetPlane (out: Out<CUarray>, array: CUarray, plane: u32) {
        let _ = (out, plane);
        get(array)?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }
    "cuArrayGetMemoryRequirements" 11060 cuArrayGetMemoryRequirements (out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUarray, device: CUdevice) {
        crate::driver::driver()?.device(device)?;
        let array = get(array)?;
        if has_memory(&array.shape) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        requirements(out, array.bytes)
    }
    "cuMipmappedArrayGetMemoryRequirements" 11060 cuMipmappedArrayGetMemoryRequirements (out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUmipmappedArray, device: CUdevice) {
        crate::driver::driver()?.device(device)?;
        let array = mipmapped(array)?;
        if array.block.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        requirements(out, array.levels.iter().map(|level| level.2).sum())
    }
    "cuArrayGetSparseProperties" 11010 cuArrayGetSparseProperties (out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: CUarray) {
        let array = get(array)?;
        sparse(out, &array.shape)
    }
    "cuMipmappedArrayGetSparseProperties" 11010 cuMipmappedArrayGetSparseProperties (out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: CUmipmappedArray) {
        let array = mipmapped(array)?;
        sparse(out, &array.levels.first().ok_or(CUDA_ERROR_INVALID_HANDLE)?.0)
    }
    "cuMipmappedArrayCreate" 5000 cuMipmappedArrayCreate (out: Out<CUmipmappedArray>, shape: In<CUDA_ARRAY3D_DESCRIPTOR>, levels: u32) {
        current()?;
        create_mipmapped(out, shape.get()?, levels)
    }
    "cuMipmappedArrayGetLevel" 5000 cuMipmappedArrayGetLevel (out: Out<CUarray>, array: CUmipmappedArray, level: u32) {
        let array = mipmapped(array)?;
        let (shape, side, bytes) = *array.levels.get(level as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.check()?;
        let mut handles = lock(&array.handles);
        let handle = *handles[level as usize].get_or_insert_with(|| {
            let handle = fresh();
            ARRAYS.insert(handle, Arc::new(Array { shape, side, context: array.context, block: None, bytes }));
            handle
        });
        out.set(handle as CUarray)
    }
    "cuMipmappedArrayDestroy" 5000 cuMipmappedArrayDestroy (array: CUmipmappedArray) {
        let handle = array as u64;
        let array = mipmapped(array)?;
        settle(array.context);
        MIPMAPPED.remove(handle);
        for level in lock(&array.handles).iter().flatten() {
            ARRAYS.remove(*level);
        }
        if let Some(block) = array.block {
            // The context may have taken its memory along already.
            let _ = heap::free(block, Kind::Array);
        }
        Ok(())
    }
    "cuMemMapArrayAsync" 11010 cuMemMapArrayAsync (list: u64, count: u32, stream: u64) / cuMemMapArrayAsync_ptsz 11010 |default| {
        let _ = (list, count, stream, default);
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
}

fn sparse(out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, shape: &CUDA_ARRAY3D_DESCRIPTOR) -> CUresult {
    if shape.Flags & CUDA_ARRAY3D_SPARSE == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    out.set(CUDA_ARRAY_SPARSE_PROPERTIES {
        tileWidth: 128,
        tileHeight: 128,
        tileDepth: 1,
        miptailFirstLevel: 0,
        miptailSize: 0,
        flags: 0,
        reserved: [0; 4],
    })
}
