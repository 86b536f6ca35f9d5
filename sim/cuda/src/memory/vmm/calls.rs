//! The calls on virtual memory.

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror, CUresult},
    types::{
        CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST, CUdeviceptr, CUmemAccessDesc,
        CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    },
};

use crate::{
    c::{In, Out, Plain},
    capture,
    driver::driver,
    faces::faces,
    memory::vmm::{
        self, GRANULARITY, create, export, import, map, physical, place, release, reserve,
        retain_at,
        space::{HOST, Place},
    },
};

/// Returns the properties of pinned memory at a place.
pub(super) fn properties(place: Place, handle_types: u32) -> CUmemAllocationProp {
    let device = CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_DEVICE,
        id: place,
    };
    let host = CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_HOST,
        id: 0,
    };
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handle_types,
        location: if place == HOST { host } else { device },
        win32HandleMetaData: std::ptr::null_mut(),
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    }
}

/// Returns the place of a location. The host is one place.
fn place_of(location: CUmemLocation) -> Result<Place, CUerror> {
    match location.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => {
            driver()?.device(location.id)?;
            Ok(location.id)
        }
        CU_MEM_LOCATION_TYPE_HOST => Ok(HOST),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

faces! {
    "cuMemCreate" 10020 cuMemCreate (out: Out<CUmemGenericAllocationHandle>, bytes: usize, props: In<CUmemAllocationProp>, flags: u64) {
        driver()?;
        out.check()?;
        let props = props.get()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        capture::forbid_unsafe()?;
        out.set(create(bytes as u64, props)?)
    }
    "cuMemRelease" 10020 cuMemRelease (handle: CUmemGenericAllocationHandle) { release(handle) }
    "cuMemRetainAllocationHandle" 11000 cuMemRetainAllocationHandle (out: Out<CUmemGenericAllocationHandle>, address: u64) {
        driver()?;
        out.check()?;
        out.set(retain_at(address)?)
    }
    "cuMemAddressReserve" 10020 cuMemAddressReserve (out: Out<CUdeviceptr>, bytes: usize, alignment: usize, wanted: CUdeviceptr, flags: u64) {
        driver()?;
        out.check()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(reserve(bytes as u64, alignment as u64, wanted)?)
    }
    "cuMemAddressFree" 10020 cuMemAddressFree (address: CUdeviceptr, bytes: usize) {
        vmm::free_reservation(address, bytes as u64)
    }
    "cuMemMap" 10020 cuMemMap (address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) {
        driver()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        map(address, bytes as u64, offset as u64, handle)
    }
    "cuMemUnmap" 10020 cuMemUnmap (address: CUdeviceptr, bytes: usize) {
        driver()?;
        capture::forbid_unsafe()?;
        vmm::unmap(address, bytes as u64)
    }
    "cuMemSetAccess" 10020 cuMemSetAccess (address: CUdeviceptr, bytes: usize, list: In<CUmemAccessDesc>, count: usize) {
        driver()?;
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let list = list.all(count)?;
        let grants = list.into_iter().map(|one| Ok((place_of(one.location)?, one.flags)));
        vmm::set_access(address, bytes as u64, &grants.collect::<Result<Vec<_>, CUerror>>()?)
    }
    "cuMemGetAccess" 10020 cuMemGetAccess (out: Out<u64>, location: In<CUmemLocation>, address: CUdeviceptr) {
        driver()?;
        out.check()?;
        let place = place_of(location.get()?)?;
        out.set(vmm::access(address, place)?.into())
    }
    "cuMemGetAllocationGranularity" 10020 cuMemGetAllocationGranularity (out: Out<usize>, props: In<CUmemAllocationProp>, option: u32) {
        driver()?;
        out.check()?;
        place(&props.get()?)?;
        if option > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(GRANULARITY as usize)
    }
    "cuMemGetAllocationPropertiesFromHandle" 10020 cuMemGetAllocationPropertiesFromHandle (out: Out<CUmemAllocationProp>, handle: CUmemGenericAllocationHandle) {
        driver()?;
        out.check()?;
        let Plain(props) = physical(handle)?.props;
        out.set(props)
    }
    "cuMemExportToShareableHandle" 10020 cuMemExportToShareableHandle (out: Out<i32>, handle: CUmemGenericAllocationHandle, kind: u32, flags: u64) {
        driver()?;
        out.check()?;
        if flags != 0 || kind == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        out.set(export(handle)?)
    }
    "cuMemImportFromShareableHandle" 10020 cuMemImportFromShareableHandle (out: Out<CUmemGenericAllocationHandle>, handle: usize, kind: u32) {
        driver()?;
        out.check()?;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        out.set(import(handle as i32)?)
    }
}
