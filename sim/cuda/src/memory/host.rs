//! Pinned host memory: allocated by the driver, or registered by the application.
//!
//! Its addresses are the same on the host and on every device. It uses no device memory.

use gpushare_abi::{
    errors::{
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUresult,
    },
    types::CUdeviceptr,
};

use crate::{
    c::Out,
    capture,
    context::{self, current},
    driver::driver,
    faces::faces,
    memory::heap::{self, Kind},
};

/// The flag `CU_MEMHOSTALLOC_DEVICEMAP`, which always applies under unified addressing.
const DEVICE_MAP: u32 = 2;
/// `CU_MEMHOSTALLOC_…`: portable, device-mapped, write-combined.
const ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_…`: portable, device-mapped, memory of a device, read-only.
const REGISTER_FLAGS: u32 = 15;

fn allocate(out: Out<u64>, bytes: usize, flags: u32) -> CUresult {
    let context = current()?;
    out.check()?;
    if flags & !ALLOC_FLAGS != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    capture::forbid_unsafe()?;
    if bytes == 0 {
        return out.set(0);
    }
    let address = heap::map_host(bytes as u64).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let kind = Kind::Host(flags | DEVICE_MAP);
    let noted = heap::note(address, bytes as u64, context.device, context.owner, kind);
    noted.inspect_err(|_| heap::unmap_host(address, bytes as u64))?;
    out.set(address)
}

fn register(address: u64, bytes: usize, flags: u32) -> CUresult {
    let context = current()?;
    if address == 0 || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    capture::forbid_unsafe()?;
    address
        .checked_add(bytes as u64)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let kind = Kind::Registered(flags);
    let noted = heap::note(address, bytes as u64, context.device, context.owner, kind);
    noted
        .map(|_| ())
        .map_err(|_| CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
}

/// Waits until nothing that was queued can use the memory.
fn settle(context: u64) {
    if let Ok(context) = context::by_handle(context as _) {
        context.synchronize();
    }
}

faces! {
    "cuMemAllocHost" 3020 cuMemAllocHost_v2 (out: Out<u64>, bytes: usize) { allocate(out, bytes, 0) }
    "cuMemHostAlloc" 2020 cuMemHostAlloc (out: Out<u64>, bytes: usize, flags: u32) { allocate(out, bytes, flags) }
    "cuMemFreeHost" 2000 cuMemFreeHost (address: u64) {
        driver()?;
        capture::forbid_unsafe()?;
        let block = heap::find(address).filter(|block| block.base == address && matches!(block.kind, Kind::Host(_)));
        let block = block.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        settle(block.context);
        heap::forget(address, |block| matches!(block.kind, Kind::Host(_)))?;
        heap::unmap_host(block.base, block.bytes);
        Ok(())
    }
    "cuMemHostRegister" 6050 cuMemHostRegister_v2 (address: u64, bytes: usize, flags: u32) { register(address, bytes, flags) }
    "cuMemHostRegister" 4000 cuMemHostRegister (address: u64, bytes: usize, flags: u32) { register(address, bytes, flags) }
    "cuMemHostUnregister" 4000 cuMemHostUnregister (address: u64) {
        driver()?;
        capture::forbid_unsafe()?;
        if address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let block = heap::find(address).filter(|block| block.base == address && matches!(block.kind, Kind::Registered(_)));
        let block = block.ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
        settle(block.context);
        heap::forget(address, |block| matches!(block.kind, Kind::Registered(_))).map(|_| ())
    }
    "cuMemHostGetDevicePointer" 3020 cuMemHostGetDevicePointer_v2 (out: Out<CUdeviceptr>, address: u64, flags: u32) {
        current()?;
        out.check()?;
        let block = heap::find(address).filter(|block| block.kind.is_host());
        if flags != 0 || block.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(address)
    }
    "cuMemHostGetFlags" 2030 cuMemHostGetFlags (out: Out<u32>, address: u64) {
        driver()?;
        out.check()?;
        match heap::find(address).map(|block| block.kind) {
            Some(Kind::Host(flags)) => out.set(flags),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}
