//! Queries of the driver about memory. None of them is on a path that is called often.
#![allow(unsafe_code, reason = "calls the driver and NVML")]

use std::ffi::{CStr, c_char};

use gpushare_abi::{
    Out,
    errors::CUerror,
    types::{
        CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_PER_THREAD, CUDA_ARRAY3D_DESCRIPTOR, CUarray,
        CUdevice, CUdeviceptr, CUgraph, CUmemoryPool, CUstream, CUuuid, nvmlDevice_t,
    },
};

use crate::{driver::call, driver_query::context};

/// Returns the bytes of the allocation that contains an address.
pub fn size_of_allocation(dptr: CUdeviceptr) -> Option<u64> {
    let mut bytes = 0_usize;
    // SAFETY: either result may be NULL; the other one outlives the call.
    unsafe { call::cuMemGetAddressRange_v2(Out::NULL, Out::to(&mut bytes), dptr) }.ok()?;
    Some(bytes as u64)
}

/// Returns the description of an array.
pub fn shape_of(array: CUarray) -> Option<CUDA_ARRAY3D_DESCRIPTOR> {
    let mut desc = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 0,
        Height: 0,
        Depth: 0,
        Format: 0,
        NumChannels: 0,
        Flags: 0,
    };
    // SAFETY: the driver checks the handle, which the application is about to use; the result outlives the call.
    unsafe { call::cuArray3DGetDescriptor_v2(Out::to(&mut desc), array) }.ok()?;
    Some(desc)
}

/// Frees memory whose address the caller never got.
pub fn free(dptr: CUdeviceptr) {
    // SAFETY: the driver checks the address; no other code knows it.
    let _ = unsafe { call::cuMemFree_v2(dptr) };
}

/// Returns the free bytes of the current context's device, without regard to limits.
pub fn free_bytes() -> Result<u64, CUerror> {
    let mut free = 0_usize;
    let mut total = 0_usize;
    // SAFETY: both results outlive the call.
    unsafe { call::cuMemGetInfo_v2(Out::to(&mut free), Out::to(&mut total)) }?;
    Ok(free as u64)
}

/// Returns the bytes that a pool has reserved, and how many of them are allocated.
pub fn pool_size(pool: CUmemoryPool) -> (u64, u64) {
    const RESERVED_CURRENT: u32 = 5;
    const USED_CURRENT: u32 = 7;
    let ask = |attribute| {
        let mut bytes = 0_u64;
        // SAFETY: the attribute is a number of eight bytes; the result outlives the call.
        unsafe { call::cuMemPoolGetAttribute(pool, attribute, Out::to(&mut bytes)) }
            .map_or(0, |()| bytes)
    };
    (ask(RESERVED_CURRENT), ask(USED_CURRENT))
}

/// Returns the pool from which a device allocates if none is named.
pub fn current_pool(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    // SAFETY: the driver checks the device; the result outlives the call.
    unsafe { call::cuDeviceGetMemPool(Out::to(&mut pool), device) }.ok()?;
    (!pool.is_null()).then_some(pool)
}

/// Releases the free memory that a pool has reserved above `keep` bytes.
pub fn trim(pool: CUmemoryPool, keep: u64) {
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    // SAFETY: the pool is tracked, so the application has not destroyed it.
    let _ = unsafe { call::cuMemPoolTrimTo(pool, keep) };
}

/// Returns true if a stream has no work left. A default stream returns false, because each context has its own.
pub fn is_stream_idle(key: usize) -> bool {
    let mut idle = false;
    if key > CU_STREAM_PER_THREAD as usize {
        context::relaxed(|| {
            if context::is_capturing(key) {
                return;
            }
            // SAFETY: the application launched a graph in the stream and has not destroyed it, or it would not be
            // tracked.
            idle = unsafe { call::cuStreamQuery(key as CUstream) }.is_ok();
        });
    }
    idle
}

/// Returns the bytes that a device keeps for graphs, in the driver's blocks; 0 if it does not say.
pub fn graph_bytes(device: CUdevice) -> u64 {
    const RESERVED_CURRENT: u32 = 2;
    let mut bytes = 0_u64;
    // SAFETY: the driver checks the device; the attribute is a number of eight bytes, and the result outlives the call.
    unsafe { call::cuDeviceGetGraphMemAttribute(device, RESERVED_CURRENT, Out::to(&mut bytes)) }
        .map_or(0, |()| bytes)
}

/// Asks the driver to release the unused memory that a device keeps for graphs. Returns false if it refuses.
pub fn trim_graphs(device: CUdevice) -> bool {
    let mut trimmed = false;
    context::relaxed(|| {
        // SAFETY: the driver checks the device and releases no memory in use.
        trimmed = unsafe { call::cuDeviceGraphMemTrim(device) }.is_ok();
    });
    trimmed
}

/// Returns the graph into which a stream is being captured.
pub fn capturing_graph(stream: CUstream, per_thread: bool) -> Option<CUgraph> {
    let (mut status, mut graph) = (0, std::ptr::null_mut());
    let ask = if per_thread {
        call::cuStreamGetCaptureInfo_v2_ptsz
    } else {
        call::cuStreamGetCaptureInfo_v2
    };
    // SAFETY: all results except the status may be NULL; the others outlive the call.
    unsafe {
        ask(
            stream,
            Out::to(&mut status),
            Out::NULL,
            Out::to(&mut graph),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    }
    .ok()?;
    (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && !graph.is_null()).then_some(graph)
}

/// Returns a device's UUID as CUDA reports it, for a MIG instance that of the instance.
pub fn uuid(device: CUdevice) -> Option<[u8; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: the result outlives the call.
    let new = unsafe { call::cuDeviceGetUuid_v2(Out::to(&mut uuid), device) };
    // SAFETY: as above; drivers before 11.4 have only this function.
    new.or_else(|_| unsafe { call::cuDeviceGetUuid(Out::to(&mut uuid), device) })
        .ok()?;
    Some(uuid.bytes)
}

/// Returns a device's UUID as NVML reports it: the bytes of `GPU-…` or `MIG-…`.
pub fn nvml_uuid(device: nvmlDevice_t) -> Option<[u8; 16]> {
    let mut text = [0 as c_char; 96];
    // SAFETY: the buffer has the stated length and outlives the call.
    unsafe { call::nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96) }.ok()?;
    text[95] = 0;
    // SAFETY: the last byte is NUL, so the text ends within the buffer.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    parse_uuid(text.to_str().ok()?)
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let (_, digits) = text.split_once('-')?;
    let mut uuid = [0; 16];
    let mut nibbles = digits.chars().filter(|c| *c != '-').map(|c| c.to_digit(16));
    for byte in &mut uuid {
        let (high, low) = (nibbles.next()??, nibbles.next()??);
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    nibbles.next().is_none().then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_with_either_prefix() {
        let bytes = [
            0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        assert_eq!(
            parse_uuid("GPU-01234567-89ab-cdef-0102-030405060708"),
            Some(bytes)
        );
        assert_eq!(
            parse_uuid("MIG-01234567-89ab-cdef-0102-030405060708"),
            Some(bytes)
        );
        for text in [
            "",
            "GPU",
            "GPU-0123",
            "GPU-01234567-89ab-cdef-0102-03040506070g",
            "MIG-GPU-1/2/3",
        ] {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }
}
