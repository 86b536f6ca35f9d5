//! Memory that is made of parts: addresses that are reserved, physical memory, and the one mapped to the other.
#![allow(unsafe_code, reason = "asks the driver")]

use gpushare_abi::{
    In, Out,
    errors::{CUerror, CUresult},
    types::{
        CU_MEM_ALLOCATION_TYPE_PINNED, CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp,
        CUmemGenericAllocationHandle, CUmemLocation,
    },
};

use crate::{driver::call, driver_query::context};

/// Physical memory of a device that no other process is ever shown.
///
/// It is not for a network card: one that had registered it would go on using it after an eviction has given it back, and we
/// are not asked. The driver says so of it (`CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE` is 0; measured, 580.159.04), so a
/// program that asks goes by way of the host.
fn properties(device: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: 0,
        location: CUmemLocation::on(device),
        win32HandleMetaData: std::ptr::null_mut(),
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    }
}

/// What sizes are a multiple of on a device.
pub fn granularity(device: CUdevice) -> Result<u64, CUerror> {
    const MINIMUM: u32 = 0;
    let (properties, mut bytes) = (properties(device), 0);
    // SAFETY: both places are ours.
    unsafe {
        call::cuMemGetAllocationGranularity(Out::to(&mut bytes), In::from(&properties), MINIMUM)
    }?;
    Ok(bytes as u64)
}

/// So many addresses.
pub fn reserve(bytes: u64) -> Result<CUdeviceptr, CUerror> {
    let mut start = 0;
    // SAFETY: the place is ours.
    unsafe { call::cuMemAddressReserve(Out::to(&mut start), bytes as usize, 0, 0, 0) }?;
    Ok(start)
}

/// Gives addresses back.
pub fn free(start: CUdeviceptr, bytes: u64) -> CUresult {
    // SAFETY: the driver checks that they were reserved, and that nothing is mapped there.
    unsafe { call::cuMemAddressFree(start, bytes as usize) }
}

/// So much physical memory of a device.
pub fn create(device: CUdevice, bytes: u64) -> Result<CUmemGenericAllocationHandle, CUerror> {
    let (properties, mut handle) = (properties(device), 0);
    // SAFETY: both places are ours.
    unsafe {
        call::cuMemCreate(
            Out::to(&mut handle),
            bytes as usize,
            In::from(&properties),
            0,
        )
    }?;
    Ok(handle)
}

/// Gives physical memory back.
pub fn release(handle: CUmemGenericAllocationHandle) -> CUresult {
    // SAFETY: a handle of our own, released once.
    unsafe { call::cuMemRelease(handle) }
}

/// Maps all of it at addresses that were reserved for it.
pub fn map(start: CUdeviceptr, bytes: u64, handle: CUmemGenericAllocationHandle) -> CUresult {
    // SAFETY: the driver checks the addresses; both are our own.
    unsafe { call::cuMemMap(start, bytes as usize, 0, handle, 0) }
}

/// Lets devices read and write it.
pub fn allow(start: CUdeviceptr, bytes: u64, devices: &[u8]) -> CUresult {
    const READ_AND_WRITE: u32 = 3;
    let access = |device: &u8| CUmemAccessDesc {
        location: CUmemLocation::on((*device).into()),
        flags: READ_AND_WRITE,
    };
    let list: Vec<CUmemAccessDesc> = devices.iter().map(access).collect();
    let Some(first) = list.first() else {
        return Ok(());
    };
    // SAFETY: the list is as long as we say; the driver checks the addresses.
    unsafe { call::cuMemSetAccess(start, bytes as usize, In::from(first), list.len()) }
}

/// Takes the mapping away. Nothing that was submitted may use it any more.
pub fn unmap(start: CUdeviceptr, bytes: u64) -> CUresult {
    // SAFETY: a mapping of our own, whole.
    unsafe { call::cuMemUnmap(start, bytes as usize) }
}

/// Waits for all that was submitted in a context.
pub fn synchronize(context: usize) -> CUresult {
    let mut result = Ok(());
    let mut wait = || {
        // SAFETY: takes nothing; a context is current.
        result = unsafe { call::cuCtxSynchronize() };
    };
    if context == context::current() {
        wait();
    } else {
        context::with_current(context, wait);
    }
    result
}
