//! The driver's virtual memory calls: reserved addresses, physical memory, and mappings of the one to the other.
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

/// Returns the properties of physical memory on a device that is never shared with another process.
///
/// The memory is not for a network card: a card that had registered it would continue to use it after an eviction has
/// released it, and the shim would get no notice. The driver reports that
/// (`CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE` is 0; measured, 580.159.04), so a program that checks the
/// attribute copies through the host.
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

/// Returns the unit of sizes on a device, in bytes.
pub fn granularity(device: CUdevice) -> Result<u64, CUerror> {
    const MINIMUM: u32 = 0;
    let (properties, mut bytes) = (properties(device), 0);
    // SAFETY: both are local variables.
    unsafe {
        call::cuMemGetAllocationGranularity(Out::to(&mut bytes), In::from(&properties), MINIMUM)
    }?;
    Ok(bytes as u64)
}

/// Reserves a range of addresses.
pub fn reserve(bytes: u64) -> Result<CUdeviceptr, CUerror> {
    let mut start = 0;
    // SAFETY: the result is a local variable.
    unsafe { call::cuMemAddressReserve(Out::to(&mut start), bytes as usize, 0, 0, 0) }?;
    Ok(start)
}

/// Releases a range of addresses.
pub fn free(start: CUdeviceptr, bytes: u64) -> CUresult {
    // SAFETY: the driver checks that they were reserved, and that nothing is mapped there.
    unsafe { call::cuMemAddressFree(start, bytes as usize) }
}

/// Creates physical memory on a device.
pub fn create(device: CUdevice, bytes: u64) -> Result<CUmemGenericAllocationHandle, CUerror> {
    let (properties, mut handle) = (properties(device), 0);
    // SAFETY: both are local variables.
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

/// Releases physical memory.
pub fn release(handle: CUmemGenericAllocationHandle) -> CUresult {
    // SAFETY: the handle is the shim's own and is released once.
    unsafe { call::cuMemRelease(handle) }
}

/// Maps all of the physical memory at addresses reserved for it.
pub fn map(start: CUdeviceptr, bytes: u64, handle: CUmemGenericAllocationHandle) -> CUresult {
    // SAFETY: the driver checks the addresses; the addresses and the handle are the shim's own.
    unsafe { call::cuMemMap(start, bytes as usize, 0, handle, 0) }
}

/// Gives devices read and write access.
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
    // SAFETY: the list has the stated length; the driver checks the addresses.
    unsafe { call::cuMemSetAccess(start, bytes as usize, In::from(first), list.len()) }
}

/// Removes a mapping. No submitted work may use it any more.
pub fn unmap(start: CUdeviceptr, bytes: u64) -> CUresult {
    // SAFETY: the whole of a mapping that the shim has made.
    unsafe { call::cuMemUnmap(start, bytes as usize) }
}

/// Waits for all work submitted in a context.
pub fn synchronize(context: usize) -> CUresult {
    let mut result = Ok(());
    let mut wait = || {
        // SAFETY: the function has no arguments; a context is current.
        result = unsafe { call::cuCtxSynchronize() };
    };
    if context == context::current() {
        wait();
    } else {
        context::with_current(context, wait);
    }
    result
}
