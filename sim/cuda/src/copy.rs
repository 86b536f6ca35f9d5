//! Copies: between host and device, device and device, and arrays, in one to three dimensions.

use std::ffi::c_void;

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult};
use gpushare_abi::types::{
    CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED,
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUdeviceptr,
    CUmemorytype, CUstream,
};

use crate::c::{In, Out};
use crate::context::{self, current};
use crate::faces::faces;
use crate::stream::{self, DefaultStream};
use crate::task::{Copy, Side, Task};
use crate::{array, capture, heap};

/// Bytes from the first to the last of a pitched block.
pub fn span(row: usize, pitch: usize, rows: usize) -> Result<u64, CUerror> {
    let before = pitch
        .checked_mul(rows.saturating_sub(1))
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(before.checked_add(row).ok_or(CUDA_ERROR_INVALID_VALUE)? as u64)
}

/// A copy with what has to be known to do it right.
#[derive(Debug)]
pub struct Plan {
    copy: Copy,
    from_host: bool,
    to_host: bool,
}

/// Pageable memory of the host, as far as we know.
fn is_pageable(address: u64) -> bool {
    heap::find(address).is_none()
}

impl Plan {
    /// A copy of bytes; each side says whether it must be device memory (`Some(true)`), is host memory
    /// (`Some(false)`), or tells by itself.
    fn linear(
        to: (u64, Option<bool>),
        from: (u64, Option<bool>),
        bytes: usize,
    ) -> Result<Self, CUerror> {
        let is_host = |(address, device): (u64, Option<bool>)| -> Result<bool, CUerror> {
            if bytes == 0 {
                return Ok(device == Some(false));
            }
            if address == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let host = match device {
                Some(device) => !device,
                None => heap::find(address).is_none(),
            };
            if !host {
                heap::check(address, bytes as u64)?;
            }
            Ok(host)
        };
        let (to_host, from_host) = (is_host(to)?, is_host(from)?);
        Ok(Self {
            copy: Copy::linear(to.0, from.0, bytes),
            from_host,
            to_host,
        })
    }

    /// Does it now, after what it has to wait for.
    fn run(self, default: DefaultStream) -> CUresult {
        current()?;
        capture::forbid_unsafe()?;
        let stream = stream::by_handle(default, std::ptr::null_mut())?;
        stream::synchronize(&stream)?;
        if self.copy.width > 0 {
            let context = current()?;
            Task::Copy(self.copy).run(crate::driver::driver()?, context.device, 0);
        }
        Ok(())
    }

    /// Queues it. Memory of the host that is not pinned is read before the call returns, or written.
    fn queue(mut self, default: DefaultStream, stream: CUstream) -> CUresult {
        current()?;
        let stream = stream::by_handle(default, stream)?;
        if self.copy.width == 0 {
            return Ok(());
        }
        let capturing = capture::is_capturing(&stream);
        if self.from_host && !capturing && is_pageable(self.copy.from.address) {
            self.copy.stage();
        }
        let wait = self.to_host && !capturing && is_pageable(self.copy.to.address);
        stream.issue(Task::Copy(self.copy))?;
        if wait {
            stream::synchronize(&stream)
        } else {
            Ok(())
        }
    }

    /// The copy, for a graph.
    pub fn into_copy(self) -> Copy {
        self.copy
    }
}

/// One side of a described copy.
struct Described {
    kind: CUmemorytype,
    host: *const c_void,
    device: CUdeviceptr,
    array: CUarray,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

impl Described {
    /// Where it is, and whether that is host memory.
    fn resolve(&self, width: usize, height: usize, depth: usize) -> Result<(Side, bool), CUerror> {
        let bad = CUDA_ERROR_INVALID_VALUE;
        let end = self.x.checked_add(width).ok_or(bad)?;
        let (base, pitch, slice, host) = match self.kind {
            CU_MEMORYTYPE_ARRAY => {
                let side = array::side(self.array, end, self.y + height, self.z + depth)?;
                (side.address, side.pitch, side.slice, false)
            }
            CU_MEMORYTYPE_HOST | CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => {
                let pitch = if self.pitch == 0 { end } else { self.pitch };
                if pitch < end && height * depth > 1 {
                    return Err(bad);
                }
                let rows = if self.height == 0 {
                    self.y + height
                } else {
                    self.height
                };
                let slice = pitch.checked_mul(rows).ok_or(bad)?;
                let unified = self.kind == CU_MEMORYTYPE_UNIFIED;
                let host =
                    self.kind == CU_MEMORYTYPE_HOST || unified && heap::find(self.device).is_none();
                let base = if self.kind == CU_MEMORYTYPE_HOST {
                    self.host as u64
                } else {
                    self.device
                };
                if base == 0 {
                    return Err(bad);
                }
                (base, pitch, slice, host)
            }
            _ => return Err(bad),
        };
        let skip = self
            .z
            .checked_mul(slice)
            .zip(self.y.checked_mul(pitch))
            .ok_or(bad)?;
        let skip = skip
            .0
            .checked_add(skip.1)
            .and_then(|skip| skip.checked_add(self.x))
            .ok_or(bad)?;
        let side = Side {
            address: base.checked_add(skip as u64).ok_or(bad)?,
            pitch,
            slice,
        };
        if !host && self.kind != CU_MEMORYTYPE_ARRAY {
            let rest = slice.checked_mul(depth.saturating_sub(1)).ok_or(bad)? as u64;
            heap::check(side.address, rest + span(width, pitch, height)?)?;
        }
        Ok((side, host))
    }
}

/// Checks and resolves a described copy.
fn plan(
    from: &Described,
    to: &Described,
    width: usize,
    height: usize,
    depth: usize,
) -> Result<Plan, CUerror> {
    let nothing = width == 0 || height == 0 || depth == 0;
    let (width, height, depth) = if nothing {
        (0, 0, 0)
    } else {
        (width, height, depth)
    };
    if nothing {
        let copy = Copy::linear(0, 0, 0);
        return Ok(Plan {
            copy,
            from_host: false,
            to_host: false,
        });
    }
    let (from, from_host) = from.resolve(width, height, depth)?;
    let (to, to_host) = to.resolve(width, height, depth)?;
    Ok(Plan {
        copy: Copy {
            from,
            to,
            width,
            height,
            depth,
            staged: None,
        },
        from_host,
        to_host,
    })
}

/// A two-dimensional copy as the application describes it.
pub fn plan_2d(description: In<CUDA_MEMCPY2D>) -> Result<Plan, CUerror> {
    let d = description.get()?;
    let from = Described {
        kind: d.srcMemoryType,
        host: d.srcHost,
        device: d.srcDevice,
        array: d.srcArray,
        x: d.srcXInBytes,
        y: d.srcY,
        z: 0,
        pitch: d.srcPitch,
        height: 0,
    };
    let to = Described {
        kind: d.dstMemoryType,
        host: d.dstHost,
        device: d.dstDevice,
        array: d.dstArray,
        x: d.dstXInBytes,
        y: d.dstY,
        z: 0,
        pitch: d.dstPitch,
        height: 0,
    };
    plan(&from, &to, d.WidthInBytes, d.Height, 1)
}

/// A three-dimensional copy as the application describes it.
pub fn plan_3d(description: In<CUDA_MEMCPY3D>) -> Result<Plan, CUerror> {
    let d = description.get()?;
    if d.srcLOD != 0 || d.dstLOD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let from = Described {
        kind: d.srcMemoryType,
        host: d.srcHost,
        device: d.srcDevice,
        array: d.srcArray,
        x: d.srcXInBytes,
        y: d.srcY,
        z: d.srcZ,
        pitch: d.srcPitch,
        height: d.srcHeight,
    };
    let to = Described {
        kind: d.dstMemoryType,
        host: d.dstHost,
        device: d.dstDevice,
        array: d.dstArray,
        x: d.dstXInBytes,
        y: d.dstY,
        z: d.dstZ,
        pitch: d.dstPitch,
        height: d.dstHeight,
    };
    plan(&from, &to, d.WidthInBytes, d.Height, d.Depth)
}

/// A copy between contexts; the layout is that of a three-dimensional one.
fn plan_peer(description: In<CUDA_MEMCPY3D_PEER>) -> Result<Plan, CUerror> {
    plan_3d(In(description.0.cast()))
}

fn array_plan(to: End, from: End, bytes: usize) -> Result<Plan, CUerror> {
    plan(&from.described(bytes), &to.described(bytes), bytes, 1, 1)
}

/// One end of a copy from or to an array.
enum End {
    Array(CUarray, usize),
    Device(CUdeviceptr),
    Host(*const c_void),
}

impl End {
    fn described(self, bytes: usize) -> Described {
        let empty = Described {
            kind: CU_MEMORYTYPE_HOST,
            host: std::ptr::null(),
            device: 0,
            array: std::ptr::null_mut(),
            x: 0,
            y: 0,
            z: 0,
            pitch: bytes,
            height: 1,
        };
        match self {
            Self::Array(array, x) => Described {
                kind: CU_MEMORYTYPE_ARRAY,
                array,
                x,
                ..empty
            },
            Self::Device(device) => Described {
                kind: CU_MEMORYTYPE_DEVICE,
                device,
                ..empty
            },
            Self::Host(host) => Described { host, ..empty },
        }
    }
}

const DEVICE: Option<bool> = Some(true);
const HOST: Option<bool> = Some(false);

faces! {
    "cuMemcpy" 4000 cuMemcpy (to: CUdeviceptr, from: CUdeviceptr, bytes: usize) / cuMemcpy_ptds 7000 |default| {
        current()?;
        Plan::linear((to, None), (from, None), bytes)?.run(default)
    }
    "cuMemcpyAsync" 4000 cuMemcpyAsync (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) / cuMemcpyAsync_ptsz 7000 |default| {
        current()?;
        Plan::linear((to, None), (from, None), bytes)?.queue(default, stream)
    }
    "cuMemcpyHtoD" 3020 cuMemcpyHtoD_v2 (to: CUdeviceptr, from: u64, bytes: usize) / cuMemcpyHtoD_v2_ptds 7000 |default| {
        current()?;
        Plan::linear((to, DEVICE), (from, HOST), bytes)?.run(default)
    }
    "cuMemcpyDtoH" 3020 cuMemcpyDtoH_v2 (to: u64, from: CUdeviceptr, bytes: usize) / cuMemcpyDtoH_v2_ptds 7000 |default| {
        current()?;
        Plan::linear((to, HOST), (from, DEVICE), bytes)?.run(default)
    }
    "cuMemcpyDtoD" 3020 cuMemcpyDtoD_v2 (to: CUdeviceptr, from: CUdeviceptr, bytes: usize) / cuMemcpyDtoD_v2_ptds 7000 |default| {
        current()?;
        Plan::linear((to, DEVICE), (from, DEVICE), bytes)?.run(default)
    }
    "cuMemcpyHtoDAsync" 3020 cuMemcpyHtoDAsync_v2 (to: CUdeviceptr, from: u64, bytes: usize, stream: CUstream) / cuMemcpyHtoDAsync_v2_ptsz 7000 |default| {
        current()?;
        Plan::linear((to, DEVICE), (from, HOST), bytes)?.queue(default, stream)
    }
    "cuMemcpyDtoHAsync" 3020 cuMemcpyDtoHAsync_v2 (to: u64, from: CUdeviceptr, bytes: usize, stream: CUstream) / cuMemcpyDtoHAsync_v2_ptsz 7000 |default| {
        current()?;
        Plan::linear((to, HOST), (from, DEVICE), bytes)?.queue(default, stream)
    }
    "cuMemcpyDtoDAsync" 3020 cuMemcpyDtoDAsync_v2 (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) / cuMemcpyDtoDAsync_v2_ptsz 7000 |default| {
        current()?;
        Plan::linear((to, DEVICE), (from, DEVICE), bytes)?.queue(default, stream)
    }
    "cuMemcpyPeer" 4000 cuMemcpyPeer (to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize) / cuMemcpyPeer_ptds 7000 |default| {
        context::by_handle(to_context)?;
        context::by_handle(from_context)?;
        Plan::linear((to, DEVICE), (from, DEVICE), bytes)?.run(default)
    }
    "cuMemcpyPeerAsync" 4000 cuMemcpyPeerAsync (to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream) / cuMemcpyPeerAsync_ptsz 7000 |default| {
        context::by_handle(to_context)?;
        context::by_handle(from_context)?;
        Plan::linear((to, DEVICE), (from, DEVICE), bytes)?.queue(default, stream)
    }
    "cuMemcpyDtoA" 3020 cuMemcpyDtoA_v2 (to: CUarray, at: usize, from: CUdeviceptr, bytes: usize) / cuMemcpyDtoA_v2_ptds 7000 |default| {
        current()?;
        array_plan(End::Array(to, at), End::Device(from), bytes)?.run(default)
    }
    "cuMemcpyAtoD" 3020 cuMemcpyAtoD_v2 (to: CUdeviceptr, from: CUarray, at: usize, bytes: usize) / cuMemcpyAtoD_v2_ptds 7000 |default| {
        current()?;
        array_plan(End::Device(to), End::Array(from, at), bytes)?.run(default)
    }
    "cuMemcpyHtoA" 3020 cuMemcpyHtoA_v2 (to: CUarray, at: usize, from: *const c_void, bytes: usize) / cuMemcpyHtoA_v2_ptds 7000 |default| {
        current()?;
        array_plan(End::Array(to, at), End::Host(from), bytes)?.run(default)
    }
    "cuMemcpyAtoH" 3020 cuMemcpyAtoH_v2 (to: *const c_void, from: CUarray, at: usize, bytes: usize) / cuMemcpyAtoH_v2_ptds 7000 |default| {
        current()?;
        array_plan(End::Host(to), End::Array(from, at), bytes)?.run(default)
    }
    "cuMemcpyAtoA" 3020 cuMemcpyAtoA_v2 (to: CUarray, to_at: usize, from: CUarray, from_at: usize, bytes: usize) / cuMemcpyAtoA_v2_ptds 7000 |default| {
        current()?;
        array_plan(End::Array(to, to_at), End::Array(from, from_at), bytes)?.run(default)
    }
    "cuMemcpyHtoAAsync" 3020 cuMemcpyHtoAAsync_v2 (to: CUarray, at: usize, from: *const c_void, bytes: usize, stream: CUstream) / cuMemcpyHtoAAsync_v2_ptsz 7000 |default| {
        current()?;
        array_plan(End::Array(to, at), End::Host(from), bytes)?.queue(default, stream)
    }
    "cuMemcpyAtoHAsync" 3020 cuMemcpyAtoHAsync_v2 (to: *const c_void, from: CUarray, at: usize, bytes: usize, stream: CUstream) / cuMemcpyAtoHAsync_v2_ptsz 7000 |default| {
        current()?;
        array_plan(End::Host(to), End::Array(from, at), bytes)?.queue(default, stream)
    }
    "cuMemcpy2D" 3020 cuMemcpy2D_v2 (copy: In<CUDA_MEMCPY2D>) / cuMemcpy2D_v2_ptds 7000 |default| {
        current()?;
        plan_2d(copy)?.run(default)
    }
    "cuMemcpy2DUnaligned" 3020 cuMemcpy2DUnaligned_v2 (copy: In<CUDA_MEMCPY2D>) / cuMemcpy2DUnaligned_v2_ptds 7000 |default| {
        current()?;
        plan_2d(copy)?.run(default)
    }
    "cuMemcpy2DAsync" 3020 cuMemcpy2DAsync_v2 (copy: In<CUDA_MEMCPY2D>, stream: CUstream) / cuMemcpy2DAsync_v2_ptsz 7000 |default| {
        current()?;
        plan_2d(copy)?.queue(default, stream)
    }
    "cuMemcpy3D" 3020 cuMemcpy3D_v2 (copy: In<CUDA_MEMCPY3D>) / cuMemcpy3D_v2_ptds 7000 |default| {
        current()?;
        plan_3d(copy)?.run(default)
    }
    "cuMemcpy3DAsync" 3020 cuMemcpy3DAsync_v2 (copy: In<CUDA_MEMCPY3D>, stream: CUstream) / cuMemcpy3DAsync_v2_ptsz 7000 |default| {
        current()?;
        plan_3d(copy)?.queue(default, stream)
    }
    "cuMemcpy3DPeer" 4000 cuMemcpy3DPeer (copy: In<CUDA_MEMCPY3D_PEER>) / cuMemcpy3DPeer_ptds 7000 |default| {
        current()?;
        plan_peer(copy)?.run(default)
    }
    "cuMemcpy3DPeerAsync" 4000 cuMemcpy3DPeerAsync (copy: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) / cuMemcpy3DPeerAsync_ptsz 7000 |default| {
        current()?;
        plan_peer(copy)?.queue(default, stream)
    }
    "cuMemcpyBatchAsync" 12080 cuMemcpyBatchAsync (to: In<CUdeviceptr>, from: In<CUdeviceptr>, sizes: In<usize>, count: usize, attributes: u64, starts: u64, attribute_count: usize, failed: Out<usize>, stream: CUstream) / cuMemcpyBatchAsync_ptsz 12080 |default| {
        let _ = (attributes, starts, attribute_count);
        batch(default, (to, from, sizes), count, failed, stream)
    }
    "cuMemcpyBatchAsync" 13000 cuMemcpyBatchAsync_v2 (to: In<CUdeviceptr>, from: In<CUdeviceptr>, sizes: In<usize>, count: usize, attributes: u64, starts: u64, attribute_count: usize, stream: CUstream) / cuMemcpyBatchAsync_v2_ptsz 13000 |default| {
        let _ = (attributes, starts, attribute_count);
        batch(default, (to, from, sizes), count, Out(std::ptr::null_mut()), stream)
    }
}

/// Copies one after the other; on an error, `failed` says which one was wrong and none is queued.
fn batch(
    default: DefaultStream,
    (to, from, sizes): (In<CUdeviceptr>, In<CUdeviceptr>, In<usize>),
    count: usize,
    failed: Out<usize>,
    stream: CUstream,
) -> CUresult {
    current()?;
    if count == 0 || matches!(stream as usize, 0..=2) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut plans = Vec::new();
    for index in 0..count {
        let plan = (to
            .at(index)
            .and_then(|to| Ok((to, from.at(index)?, sizes.at(index)?))))
        .and_then(|(to, from, bytes)| Plan::linear((to, None), (from, None), bytes));
        plans.push(plan.inspect_err(|_| failed.set_if_wanted(index))?);
    }
    plans
        .into_iter()
        .try_for_each(|plan| plan.queue(default, stream))
}
