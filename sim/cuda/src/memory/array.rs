//! Arrays and mipmapped arrays: memory with a format and a shape.
//!
//! [`shape`] computes the layout, [`calls`] is the interface. A mip level or a plane of an array is an array with a
//! handle of its own, and is destroyed with the whole.

pub mod calls;
pub mod shape;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUerror, CUresult},
    types::{CUarray, CUmipmappedArray},
};
use shape::Shape;

use crate::{
    capture,
    context::{self, Context},
    driver::driver,
    handles::{Table, fresh, lock},
    memory::heap::{self, Kind},
    work::Side,
};

/// An array, or a mipmapped array.
#[derive(Debug)]
struct Array {
    shape: Shape,
    /// Mip levels; 1 for an array.
    levels: u32,
    /// The first address; 0 while the array has no memory.
    address: u64,
    context: u64,
    /// True for a level or a plane of another array.
    is_part: bool,
    /// Handles of its levels or planes.
    parts: Mutex<BTreeMap<u32, u64>>,
}

static ARRAYS: Table<Array> = Table::new();
static MIPMAPPED: Table<Array> = Table::new();

fn get(array: CUarray) -> Result<Arc<Array>, CUerror> {
    driver()?;
    ARRAYS.get(array as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn mipmapped(array: CUmipmappedArray) -> Result<Arc<Array>, CUerror> {
    driver()?;
    MIPMAPPED.get(array as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Makes an array with memory for its first `levels` levels.
fn create(
    table: &Table<Array>,
    context: &Context,
    shape: Shape,
    levels: u32,
) -> Result<u64, CUerror> {
    capture::forbid_unsafe()?;
    let levels = levels.clamp(1, shape.most_levels());
    let bytes = shape.bytes(levels).ok_or(CUDA_ERROR_INVALID_VALUE)? as u64;
    let address = if shape.without_memory() {
        0
    } else {
        let device = context.device;
        heap::allocate(bytes, heap::STEP, device, context.owner, Kind::Array)?.base
    };
    let array = Array {
        shape,
        levels,
        address,
        context: context.owner,
        is_part: false,
        parts: Mutex::default(),
    };
    let handle = fresh();
    table.insert(handle, Arc::new(array));
    Ok(handle)
}

impl Array {
    /// Returns the handle of a part, which starts `before` bytes into the whole.
    fn part(&self, index: u32, shape: Shape, before: usize) -> u64 {
        let make = || {
            let address = match self.address {
                0 => 0,
                base => base + before as u64,
            };
            let part = Self {
                shape,
                levels: 1,
                address,
                context: self.context,
                is_part: true,
                parts: Mutex::default(),
            };
            let handle = fresh();
            ARRAYS.insert(handle, Arc::new(part));
            handle
        };
        *lock(&self.parts).entry(index).or_insert_with(make)
    }

    /// Returns the bytes of all levels, whether the array has memory or not.
    fn size(&self) -> Option<usize> {
        let last = self.shape.level(self.levels - 1)?;
        Some(last.offset + last.bytes())
    }
}

/// Destroys an array with its parts, once the work that may use it is done.
fn destroy(table: &Table<Array>, handle: u64) -> CUresult {
    driver()?;
    let array = table.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if array.is_part {
        // A part is destroyed with the whole array.
        return Ok(());
    }
    if let Ok(context) = context::by_handle(array.context as _) {
        context.synchronize();
    }
    table.remove(handle);
    for part in lock(&array.parts).values() {
        ARRAYS.remove(*part);
    }
    if array.address != 0 {
        // The context may have taken its memory along already.
        let _ = heap::free(array.address, Kind::Array);
    }
    Ok(())
}

/// Removes the arrays of a context that ends; their memory is freed with the context's.
pub fn forget_all(context: u64) {
    ARRAYS.remove_where(|array| array.context == context);
    MIPMAPPED.remove_where(|array| array.context == context);
}

/// Returns the place of an array's bytes, if a box with these ends is inside.
pub fn side(array: CUarray, width: usize, height: usize, depth: usize) -> Result<Side, CUerror> {
    let array = get(array)?;
    let level = array.shape.level(0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let inside = width <= level.row && height <= level.rows && depth <= level.slices;
    if !inside || array.address == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Side {
        address: array.address,
        pitch: level.row,
        slice: level.row * level.rows,
    })
}

/// Returns the bytes of one element of an array.
pub fn element(array: CUarray) -> Result<usize, CUerror> {
    Ok(get(array)?.shape.element())
}

/// Returns true if there is an array or mipmapped array with this handle.
pub fn exists(handle: u64) -> bool {
    ARRAYS.get(handle).is_some() || MIPMAPPED.get(handle).is_some()
}
