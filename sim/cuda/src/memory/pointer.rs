//! The attributes of addresses: `cuPointerGetAttribute` and similar calls.

use std::ffi::c_void;

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUresult},
    types::{CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUdeviceptr},
};

use crate::{
    c::{In, Out},
    driver::driver,
    faces::faces,
    memory::{
        heap::{self, Block, Kind},
        pool,
    },
};

/// An attribute's value, in its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Word(u64),
    Half(u32),
}

/// The supported values of `CUpointer_attribute`.
mod attribute {
    pub const CONTEXT: u32 = 1;
    pub const MEMORY_TYPE: u32 = 2;
    pub const DEVICE_POINTER: u32 = 3;
    pub const HOST_POINTER: u32 = 4;
    pub const SYNC_MEMOPS: u32 = 6;
    pub const BUFFER_ID: u32 = 7;
    pub const IS_MANAGED: u32 = 8;
    pub const DEVICE_ORDINAL: u32 = 9;
    pub const IPC_CAPABLE: u32 = 10;
    pub const RANGE_START: u32 = 11;
    pub const RANGE_SIZE: u32 = 12;
    pub const MAPPED: u32 = 13;
    pub const HANDLE_TYPES: u32 = 14;
    pub const RDMA_CAPABLE: u32 = 15;
    pub const ACCESS: u32 = 16;
    pub const POOL: u32 = 17;
    pub const MAPPING_SIZE: u32 = 18;
    pub const MAPPING_START: u32 = 19;
    pub const BLOCK_ID: u32 = 20;
    pub const DECOMPRESS: u32 = 21;
}

/// Returns the value of an attribute for an address of the simulator; `None` if it does not apply.
fn value(which: u32, block: &Block, address: u64) -> Option<Value> {
    use Value::{Half, Word};
    let host = block.kind.is_host();
    let managed = block.kind.is_managed();
    Some(match which {
        attribute::CONTEXT => Word(block.context),
        attribute::MEMORY_TYPE => Half(if host {
            CU_MEMORYTYPE_HOST
        } else {
            CU_MEMORYTYPE_DEVICE
        }),
        attribute::DEVICE_POINTER => Word(address),
        attribute::HOST_POINTER if host || managed => Word(address),
        attribute::SYNC_MEMOPS => Half(block.sync_memops.into()),
        attribute::BUFFER_ID | attribute::BLOCK_ID => Word(block.id),
        attribute::IS_MANAGED => Half(managed.into()),
        attribute::DEVICE_ORDINAL => Half(block.device as u32),
        attribute::IPC_CAPABLE => Half((block.kind == Kind::Device).into()),
        attribute::RANGE_START | attribute::MAPPING_START => Word(block.base),
        attribute::RANGE_SIZE | attribute::MAPPING_SIZE => Word(block.bytes),
        attribute::MAPPED => Half(1),
        attribute::HANDLE_TYPES => Word(pool::handle_types_at(block.base).into()),
        attribute::RDMA_CAPABLE | attribute::DECOMPRESS => Half(0),
        attribute::ACCESS => Half(3),
        attribute::POOL => Word(pool::of_address(block.base).unwrap_or(0)),
        _ => return None,
    })
}

/// Returns the value that `cuPointerGetAttributes` gives for an unknown address, or for an attribute that does not
/// apply.
fn nothing(which: u32) -> Value {
    const NO_DEVICE: u32 = -2_i32 as u32;
    match which {
        attribute::DEVICE_ORDINAL => Value::Half(NO_DEVICE),
        attribute::MEMORY_TYPE
        | attribute::SYNC_MEMOPS
        | attribute::IS_MANAGED
        | attribute::IPC_CAPABLE
        | attribute::MAPPED
        | attribute::RDMA_CAPABLE
        | attribute::ACCESS
        | attribute::DECOMPRESS => Value::Half(0),
        _ => Value::Word(0),
    }
}

fn put(out: Out<c_void>, value: Value) -> CUresult {
    match value {
        Value::Word(word) => Out(out.0.cast()).set(word),
        Value::Half(half) => Out(out.0.cast()).set(half),
    }
}

faces! {
    "cuPointerGetAttribute" 4000 cuPointerGetAttribute (out: Out<c_void>, which: u32, address: CUdeviceptr) {
        driver()?;
        let block = heap::find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        put(out, value(which, &block, address).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
    "cuPointerGetAttributes" 7000 cuPointerGetAttributes (count: u32, which: In<u32>, out: In<*mut c_void>, address: CUdeviceptr) {
        driver()?;
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let block = heap::find(address);
        for index in 0..count as usize {
            let which = which.at(index)?;
            let known = block.as_ref().and_then(|block| value(which, block, address));
            put(Out(out.at(index)?), known.unwrap_or(nothing(which)))?;
        }
        Ok(())
    }
    "cuPointerSetAttribute" 6000 cuPointerSetAttribute (given: In<u32>, which: u32, address: CUdeviceptr) {
        driver()?;
        let given = given.get()?;
        if which == attribute::SYNC_MEMOPS && heap::set_sync_memops(address, given != 0) {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }
}
