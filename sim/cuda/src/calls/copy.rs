//! The calls that copy.

use std::ffi::c_void;

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult},
    types::{
        CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUarray,
        CUcontext, CUdeviceptr, CUstream,
    },
};
use gpushare_sim::scenario::Swap;

use crate::{
    c::{In, Out},
    capture,
    context::{self, current},
    copy::{End, LONG, Plan, plan_2d, plan_3d, plan_ends, plan_op},
    driver::{driver, mishap},
    faces::{DefaultStream, faces},
    graph::node::Node,
    memory::{heap, pool},
    submit,
    work::Side,
};

const DEVICE: Option<bool> = Some(true);
const HOST: Option<bool> = Some(false);

/// Returns true for pageable host memory, as far as the simulator can tell.
fn is_pageable(address: u64) -> bool {
    heap::find(address).is_none()
}

/// Returns the plan of a copy within device memory. Memory of a pool on the host is no device memory, unless the pool
/// has given the device access (driver 580.159.04).
fn within_device(
    ordinal: i32,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
) -> Result<Plan, CUerror> {
    let plan = Plan::linear((to, DEVICE), (from, DEVICE), bytes)?;
    if bytes > 0
        && [to, from]
            .iter()
            .all(|side| pool::is_kept_on_host(*side, ordinal))
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(plan)
}

impl Plan {
    /// Returns the plan for a call that names both contexts.
    fn between_peers(self) -> Self {
        Self {
            between_peers: true,
            ..self
        }
    }

    /// Checks that a device, which does the copy, can access the memory.
    fn check_reach(&self, ordinal: i32) -> CUresult {
        if self.between_peers || self.copy.width == 0 || driver()?.devices.len() < 2 {
            return Ok(());
        }
        let reached = |side: &Side, host| host || pool::is_reached(side.address, ordinal);
        if reached(&self.copy.to, self.to_host) && reached(&self.copy.from, self.from_host) {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    /// Runs the copy after the work that it has to wait for.
    fn run(self, default: DefaultStream) -> CUresult {
        current()?;
        capture::forbid_unsafe()?;
        let stream = context::stream(default, std::ptr::null_mut())?;
        self.check_reach(stream.device)?;
        submit::synchronize(&stream)?;
        if self.copy.width > 0 {
            self.copy.now();
        }
        Ok(())
    }

    /// Queues it. Memory of the host that is not pinned is read before the call returns, or written.
    fn queue(mut self, default: DefaultStream, stream: CUstream) -> CUresult {
        let stream = context::stream(default, stream)?;
        if self.copy.width == 0 {
            return Ok(());
        }
        self.check_reach(stream.device)?;
        let capturing = capture::is_capturing(&stream);
        if self.from_host && !capturing && is_pageable(self.copy.from.address) {
            self.copy.stage();
        }
        let wait = self.to_host && !capturing && is_pageable(self.copy.to.address);
        submit::submit(&stream, Node::of_copy(self.copy))?;
        if wait {
            submit::synchronize(&stream)
        } else {
            Ok(())
        }
    }
}

faces! {
    "cuMemcpy" 4000 cuMemcpy (to: CUdeviceptr, from: CUdeviceptr, bytes: usize) / cuMemcpy_ptds 7000 |default| {
        current()?;
        Plan::linear((to, None), (from, None), bytes)?.run(default)
    }
    "cuMemcpyAsync" 4000 cuMemcpyAsync (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) / cuMemcpyAsync_ptsz 7000 |default| {
        context::check_current_for(stream)?;
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
        within_device(current()?.device, to, from, bytes)?.run(default)
    }
    "cuMemcpyHtoDAsync" 3020 cuMemcpyHtoDAsync_v2 (to: CUdeviceptr, from: u64, bytes: usize, stream: CUstream) / cuMemcpyHtoDAsync_v2_ptsz 7000 |default| {
        context::check_current_for(stream)?;
        if bytes as u64 >= LONG {
            mishap(Swap::Back)?;
        }
        Plan::linear((to, DEVICE), (from, HOST), bytes)?.queue(default, stream)
    }
    "cuMemcpyDtoHAsync" 3020 cuMemcpyDtoHAsync_v2 (to: u64, from: CUdeviceptr, bytes: usize, stream: CUstream) / cuMemcpyDtoHAsync_v2_ptsz 7000 |default| {
        context::check_current_for(stream)?;
        if bytes as u64 >= LONG {
            mishap(Swap::Out)?;
        }
        Plan::linear((to, HOST), (from, DEVICE), bytes)?.queue(default, stream)
    }
    "cuMemcpyDtoDAsync" 3020 cuMemcpyDtoDAsync_v2 (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) / cuMemcpyDtoDAsync_v2_ptsz 7000 |default| {
        within_device(context::stream(default, stream)?.device, to, from, bytes)?.queue(default, stream)
    }
    "cuMemcpyPeer" 4000 cuMemcpyPeer (to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize) / cuMemcpyPeer_ptds 7000 |default| {
        context::by_handle(to_context)?;
        context::by_handle(from_context)?;
        Plan::linear((to, DEVICE), (from, DEVICE), bytes)?.between_peers().run(default)
    }
    "cuMemcpyPeerAsync" 4000 cuMemcpyPeerAsync (to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream) / cuMemcpyPeerAsync_ptsz 7000 |default| {
        context::by_handle(to_context)?;
        context::by_handle(from_context)?;
        Plan::linear((to, DEVICE), (from, DEVICE), bytes)?.between_peers().queue(default, stream)
    }
    "cuMemcpyDtoA" 3020 cuMemcpyDtoA_v2 (to: CUarray, at: usize, from: CUdeviceptr, bytes: usize) / cuMemcpyDtoA_v2_ptds 7000 |default| {
        current()?;
        plan_ends(End::Array(to, at), End::Device(from), bytes)?.run(default)
    }
    "cuMemcpyAtoD" 3020 cuMemcpyAtoD_v2 (to: CUdeviceptr, from: CUarray, at: usize, bytes: usize) / cuMemcpyAtoD_v2_ptds 7000 |default| {
        current()?;
        plan_ends(End::Device(to), End::Array(from, at), bytes)?.run(default)
    }
    "cuMemcpyHtoA" 3020 cuMemcpyHtoA_v2 (to: CUarray, at: usize, from: *const c_void, bytes: usize) / cuMemcpyHtoA_v2_ptds 7000 |default| {
        current()?;
        plan_ends(End::Array(to, at), End::Host(from), bytes)?.run(default)
    }
    "cuMemcpyAtoH" 3020 cuMemcpyAtoH_v2 (to: *const c_void, from: CUarray, at: usize, bytes: usize) / cuMemcpyAtoH_v2_ptds 7000 |default| {
        current()?;
        plan_ends(End::Host(to), End::Array(from, at), bytes)?.run(default)
    }
    "cuMemcpyAtoA" 3020 cuMemcpyAtoA_v2 (to: CUarray, to_at: usize, from: CUarray, from_at: usize, bytes: usize) / cuMemcpyAtoA_v2_ptds 7000 |default| {
        current()?;
        plan_ends(End::Array(to, to_at), End::Array(from, from_at), bytes)?.run(default)
    }
    "cuMemcpyHtoAAsync" 3020 cuMemcpyHtoAAsync_v2 (to: CUarray, at: usize, from: *const c_void, bytes: usize, stream: CUstream) / cuMemcpyHtoAAsync_v2_ptsz 7000 |default| {
        context::check_current_for(stream)?;
        plan_ends(End::Array(to, at), End::Host(from), bytes)?.queue(default, stream)
    }
    "cuMemcpyAtoHAsync" 3020 cuMemcpyAtoHAsync_v2 (to: *const c_void, from: CUarray, at: usize, bytes: usize, stream: CUstream) / cuMemcpyAtoHAsync_v2_ptsz 7000 |default| {
        context::check_current_for(stream)?;
        plan_ends(End::Host(to), End::Array(from, at), bytes)?.queue(default, stream)
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
        context::check_current_for(stream)?;
        plan_2d(copy)?.queue(default, stream)
    }
    "cuMemcpy3D" 3020 cuMemcpy3D_v2 (copy: In<CUDA_MEMCPY3D>) / cuMemcpy3D_v2_ptds 7000 |default| {
        current()?;
        plan_3d(copy)?.run(default)
    }
    "cuMemcpy3DAsync" 3020 cuMemcpy3DAsync_v2 (copy: In<CUDA_MEMCPY3D>, stream: CUstream) / cuMemcpy3DAsync_v2_ptsz 7000 |default| {
        context::check_current_for(stream)?;
        plan_3d(copy)?.queue(default, stream)
    }
    "cuMemcpy3DPeer" 4000 cuMemcpy3DPeer (copy: In<CUDA_MEMCPY3D_PEER>) / cuMemcpy3DPeer_ptds 7000 |default| {
        current()?;
        plan_peer(copy)?.between_peers().run(default)
    }
    "cuMemcpy3DPeerAsync" 4000 cuMemcpy3DPeerAsync (copy: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) / cuMemcpy3DPeerAsync_ptsz 7000 |default| {
        context::check_current_for(stream)?;
        plan_peer(copy)?.between_peers().queue(default, stream)
    }
    "cuMemcpyBatchAsync" 12080 cuMemcpyBatchAsync (to: In<CUdeviceptr>, from: In<CUdeviceptr>, sizes: In<usize>, count: usize, attributes: u64, starts: u64, attribute_count: usize, failed: Out<usize>, stream: CUstream) / cuMemcpyBatchAsync_ptsz 12080 |default| {
        described(attributes, starts, attribute_count)?;
        batch(default, count, linear((to, from, sizes)), failed, stream)
    }
    "cuMemcpyBatchAsync" 13000 cuMemcpyBatchAsync_v2 (to: In<CUdeviceptr>, from: In<CUdeviceptr>, sizes: In<usize>, count: usize, attributes: u64, starts: u64, attribute_count: usize, stream: CUstream) / cuMemcpyBatchAsync_v2_ptsz 13000 |default| {
        described(attributes, starts, attribute_count)?;
        batch(default, count, linear((to, from, sizes)), Out(std::ptr::null_mut()), stream)
    }
    "cuMemcpy3DBatchAsync" 12080 cuMemcpy3DBatchAsync (count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, failed: Out<usize>, flags: u64, stream: CUstream) / cuMemcpy3DBatchAsync_ptsz 12080 |default| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        batch(default, count, regions(list), failed, stream)
    }
    "cuMemcpy3DBatchAsync" 13000 cuMemcpy3DBatchAsync_v2 (count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, stream: CUstream) / cuMemcpy3DBatchAsync_v2_ptsz 13000 |default| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        batch(default, count, regions(list), Out(std::ptr::null_mut()), stream)
    }
}

/// Checks that a batch has attributes. They change nothing in the simulator.
fn described(attributes: u64, starts: u64, count: usize) -> CUresult {
    if attributes == 0 || starts == 0 || count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

/// Copies one after the other; on an error, `failed` says which one was wrong and none is queued.
fn batch(
    default: DefaultStream,
    count: usize,
    plan: impl Fn(usize) -> Result<Plan, CUerror>,
    failed: Out<usize>,
    stream: CUstream,
) -> CUresult {
    context::check_current_for(stream)?;
    if count == 0 || matches!(stream as usize, 0..=2) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let plans = (0..count).map(|index| plan(index).inspect_err(|_| failed.set_if_wanted(index)));
    plans
        .collect::<Result<Vec<_>, CUerror>>()?
        .into_iter()
        .try_for_each(|plan| plan.queue(default, stream))
}

/// Returns the linear copies of a batch, by number.
fn linear(
    (to, from, sizes): (In<CUdeviceptr>, In<CUdeviceptr>, In<usize>),
) -> impl Fn(usize) -> Result<Plan, CUerror> {
    move |index| {
        let (to, from) = (to.at(index)?, from.at(index)?);
        Plan::linear((to, None), (from, None), sizes.at(index)?)
    }
}

/// Returns the copies of regions of a batch, by number.
fn regions(list: In<CUDA_MEMCPY3D_BATCH_OP>) -> impl Fn(usize) -> Result<Plan, CUerror> {
    move |index| plan_op(&list.at(index)?)
}

/// Plans a copy between contexts; the layout is that of a three-dimensional one.
fn plan_peer(description: In<CUDA_MEMCPY3D_PEER>) -> Result<Plan, CUerror> {
    plan_3d(In(description.0.cast()))
}
