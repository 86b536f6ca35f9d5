//! Texture and surface objects: descriptions of memory that kernels would read. They are checked, kept and
//! handed back; nothing samples them.

use std::sync::Arc;

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult},
    types::{
        CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUsurfObject, CUtexObject,
    },
};

use crate::{
    c::{In, Out, Plain},
    capture,
    context::current,
    driver::driver,
    faces::faces,
    handles::{Table, fresh},
    memory::{array, heap},
};

/// A texture object, or a surface object, which has no more than its resource.
struct Object {
    resource: Plain<CUDA_RESOURCE_DESC>,
    texture: Option<CUDA_TEXTURE_DESC>,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

static TEXTURES: Table<Object> = Table::new();
static SURFACES: Table<Object> = Table::new();

/// `CUresourcetype`.
mod resource {
    pub const ARRAY: u32 = 0;
    pub const MIPMAPPED: u32 = 1;
    pub const LINEAR: u32 = 2;
    pub const PITCHED: u32 = 3;
}

/// Returns a resource after a check that it exists.
fn checked(desc: In<CUDA_RESOURCE_DESC>) -> Result<CUDA_RESOURCE_DESC, CUerror> {
    /// The largest of the resource's forms, as numbers: all of them start with an address or a handle.
    const WORDS: usize = 5;
    let desc_value = desc.get()?;
    if desc_value.flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let [first, _, third, fourth, fifth] =
        In::<[u64; WORDS]>(desc.0.cast::<u64>().wrapping_add(1).cast()).get()?;
    let good = match desc_value.resType {
        resource::ARRAY | resource::MIPMAPPED => array::exists(first),
        resource::LINEAR => third > 0 && heap::check(first, third).is_ok(),
        resource::PITCHED => {
            let bytes = fifth.checked_mul(fourth).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            third > 0 && bytes > 0 && heap::check(first, bytes).is_ok()
        }
        _ => false,
    };
    if good {
        Ok(desc_value)
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

fn given<T: Copy>(optional: In<T>) -> Result<Option<T>, CUerror> {
    if optional.is_null() {
        Ok(None)
    } else {
        optional.get().map(Some)
    }
}

fn get(table: &Table<Object>, handle: u64) -> Result<Arc<Object>, CUerror> {
    driver()?;
    table.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn destroy(table: &Table<Object>, handle: u64) -> CUresult {
    driver()?;
    table
        .remove(handle)
        .map(|_| ())
        .ok_or(CUDA_ERROR_INVALID_VALUE)
}

faces! {
    "cuTexObjectCreate" 5000 cuTexObjectCreate (out: Out<CUtexObject>, desc: In<CUDA_RESOURCE_DESC>, texture: In<CUDA_TEXTURE_DESC>, view: In<CUDA_RESOURCE_VIEW_DESC>) {
        current()?;
        out.check()?;
        capture::forbid_unsafe()?;
        let (resource, texture) = (Plain(checked(desc)?), Some(texture.get()?));
        let handle = fresh();
        TEXTURES.insert(handle, Arc::new(Object { resource, texture, view: given(view)? }));
        out.set(handle)
    }
    "cuTexObjectDestroy" 5000 cuTexObjectDestroy (object: CUtexObject) { destroy(&TEXTURES, object) }
    "cuTexObjectGetResourceDesc" 5000 cuTexObjectGetResourceDesc (out: Out<CUDA_RESOURCE_DESC>, object: CUtexObject) {
        let Plain(desc) = get(&TEXTURES, object)?.resource;
        out.set(desc)
    }
    "cuTexObjectGetTextureDesc" 5000 cuTexObjectGetTextureDesc (out: Out<CUDA_TEXTURE_DESC>, object: CUtexObject) {
        out.set(get(&TEXTURES, object)?.texture.ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
    "cuTexObjectGetResourceViewDesc" 5000 cuTexObjectGetResourceViewDesc (out: Out<CUDA_RESOURCE_VIEW_DESC>, object: CUtexObject) {
        out.set(get(&TEXTURES, object)?.view.ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
    "cuSurfObjectCreate" 5000 cuSurfObjectCreate (out: Out<CUsurfObject>, desc: In<CUDA_RESOURCE_DESC>) {
        current()?;
        out.check()?;
        capture::forbid_unsafe()?;
        let desc = checked(desc)?;
        if desc.resType != resource::ARRAY {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let handle = fresh();
        SURFACES.insert(handle, Arc::new(Object { resource: Plain(desc), texture: None, view: None }));
        out.set(handle)
    }
    "cuSurfObjectDestroy" 5000 cuSurfObjectDestroy (object: CUsurfObject) { destroy(&SURFACES, object) }
    "cuSurfObjectGetResourceDesc" 5000 cuSurfObjectGetResourceDesc (out: Out<CUDA_RESOURCE_DESC>, object: CUsurfObject) {
        let Plain(desc) = get(&SURFACES, object)?.resource;
        out.set(desc)
    }
}
