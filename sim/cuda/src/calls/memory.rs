//! Linear memory: allocating, freeing, asking, setting.

use gpushare_abi::{
    errors::{
        CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_OPERATING_SYSTEM, CUresult,
    },
    types::{CUdeviceptr, CUstream},
};

use crate::{
    c::Out,
    capture,
    context::{self, current},
    copy,
    driver::driver,
    faces::{DefaultStream, faces},
    graph::node::Node,
    memory::{
        free,
        heap::{self, Kind},
    },
    submit,
    work::Fill,
};

/// Bytes between rows that start well.
const PITCH: usize = 512;

fn allocate(out: Out<CUdeviceptr>, bytes: usize, kind: Kind) -> CUresult {
    let context = current()?;
    out.check()?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    capture::forbid_unsafe()?;
    let block = heap::allocate(
        bytes as u64,
        heap::STEP,
        context.device,
        context.owner,
        kind,
    )?;
    out.set(block.base)
}

/// Frees memory from any of the allocation calls, after the work that may use it is done.
fn free(address: CUdeviceptr) -> CUresult {
    driver()?;
    if address == 0 {
        current()?;
        return Ok(());
    }
    capture::forbid_unsafe()?;
    let block = free::freeable(address)?;
    if let Ok(owner) = context::by_handle(block.context as _) {
        owner.synchronize();
        driver()?.works_on(owner.device)?;
    }
    free::now(address)
}

/// Queues a memset, in stream order; with `sync`, waits for it.
fn fill(default: DefaultStream, stream: CUstream, sync: bool, what: Fill) -> CUresult {
    context::check_current_for(stream)?;
    if what.width == 0 || what.height == 0 {
        return Ok(());
    }
    if !what.to.is_multiple_of(what.element as u64) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let row = what
        .width
        .checked_mul(what.element)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if what.height > 1 && what.pitch < row {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = copy::span(row, what.pitch, what.height)?;
    heap::check(what.to, bytes)?;
    let stream = context::stream(default, stream)?;
    submit::submit(&stream, Node::of_fill(what))?;
    if sync {
        submit::synchronize(&stream)
    } else {
        Ok(())
    }
}

fn line(to: CUdeviceptr, value: u32, element: usize, width: usize) -> Fill {
    Fill {
        to,
        pitch: 0,
        value,
        element,
        width,
        height: 1,
    }
}

const NULL: CUstream = std::ptr::null_mut();

faces! {
    "cuMemAlloc" 3020 cuMemAlloc_v2 (out: Out<CUdeviceptr>, bytes: usize) { allocate(out, bytes, Kind::Device) }
    "cuMemAllocManaged" 6000 cuMemAllocManaged (out: Out<CUdeviceptr>, bytes: usize, flags: u32) {
        current()?;
        if !matches!(flags, 1 | 2) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        allocate(out, bytes, Kind::Managed)
    }
    "cuMemAllocPitch" 3020 cuMemAllocPitch_v2 (out: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        current()?;
        out.check()?;
        pitch.check()?;
        if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        allocate(out, bytes, Kind::Device)?;
        pitch.set(row)
    }
    "cuMemFree" 3020 cuMemFree_v2 (address: CUdeviceptr) { free(address) }
    "cuMemGetInfo" 3020 cuMemGetInfo_v2 (free: Out<usize>, total: Out<usize>) {
        let context = current()?;
        free.check()?;
        total.check()?;
        let driver = driver()?;
        if driver.member.is_checkpointed() {
            // As measured (580.159.04).
            return Err(CUDA_ERROR_OPERATING_SYSTEM);
        }
        let device = driver.device(context.device)?;
        // A death may not have been noticed yet; the memory of the dead is free.
        gpushare_sim::process::reap(driver.member.world());
        free.set(driver.member.free_memory(device.index) as usize)?;
        total.set(device.memory as usize)
    }
    "cuMemGetAddressRange" 3020 cuMemGetAddressRange_v2 (base: Out<CUdeviceptr>, bytes: Out<usize>, address: CUdeviceptr) {
        current()?;
        let block = heap::find(address).ok_or(CUDA_ERROR_NOT_FOUND)?;
        base.set_if_wanted(block.base);
        bytes.set_if_wanted(block.bytes as usize);
        Ok(())
    }
    "cuMemsetD8" 3020 cuMemsetD8_v2 (to: CUdeviceptr, value: u8, count: usize) / cuMemsetD8_v2_ptds 7000 |default| {
        fill(default, NULL, true, line(to, value.into(), 1, count))
    }
    "cuMemsetD16" 3020 cuMemsetD16_v2 (to: CUdeviceptr, value: u16, count: usize) / cuMemsetD16_v2_ptds 7000 |default| {
        fill(default, NULL, true, line(to, value.into(), 2, count))
    }
    "cuMemsetD32" 3020 cuMemsetD32_v2 (to: CUdeviceptr, value: u32, count: usize) / cuMemsetD32_v2_ptds 7000 |default| {
        fill(default, NULL, true, line(to, value, 4, count))
    }
    "cuMemsetD2D8" 3020 cuMemsetD2D8_v2 (to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) / cuMemsetD2D8_v2_ptds 7000 |default| {
        fill(default, NULL, true, Fill { to, pitch, value: value.into(), element: 1, width, height })
    }
    "cuMemsetD2D16" 3020 cuMemsetD2D16_v2 (to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) / cuMemsetD2D16_v2_ptds 7000 |default| {
        fill(default, NULL, true, Fill { to, pitch, value: value.into(), element: 2, width, height })
    }
    "cuMemsetD2D32" 3020 cuMemsetD2D32_v2 (to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) / cuMemsetD2D32_v2_ptds 7000 |default| {
        fill(default, NULL, true, Fill { to, pitch, value, element: 4, width, height })
    }
    "cuMemsetD8Async" 3020 cuMemsetD8Async (to: CUdeviceptr, value: u8, count: usize, stream: CUstream) / cuMemsetD8Async_ptsz 7000 |default| {
        fill(default, stream, false, line(to, value.into(), 1, count))
    }
    "cuMemsetD16Async" 3020 cuMemsetD16Async (to: CUdeviceptr, value: u16, count: usize, stream: CUstream) / cuMemsetD16Async_ptsz 7000 |default| {
        fill(default, stream, false, line(to, value.into(), 2, count))
    }
    "cuMemsetD32Async" 3020 cuMemsetD32Async (to: CUdeviceptr, value: u32, count: usize, stream: CUstream) / cuMemsetD32Async_ptsz 7000 |default| {
        fill(default, stream, false, line(to, value, 4, count))
    }
    "cuMemsetD2D8Async" 3020 cuMemsetD2D8Async (to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream) / cuMemsetD2D8Async_ptsz 7000 |default| {
        fill(default, stream, false, Fill { to, pitch, value: value.into(), element: 1, width, height })
    }
    "cuMemsetD2D16Async" 3020 cuMemsetD2D16Async (to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream) / cuMemsetD2D16Async_ptsz 7000 |default| {
        fill(default, stream, false, Fill { to, pitch, value: value.into(), element: 2, width, height })
    }
    "cuMemsetD2D32Async" 3020 cuMemsetD2D32Async (to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream) / cuMemsetD2D32Async_ptsz 7000 |default| {
        fill(default, stream, false, Fill { to, pitch, value, element: 4, width, height })
    }
}
