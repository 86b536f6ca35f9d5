//! The calls that allocate and free in the order of a stream.

use std::sync::Arc;

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror, CUresult},
    types::{CUdeviceptr, CUmemoryPool, CUstream},
};

use crate::{
    c::Out,
    capture, context,
    driver::driver,
    faces::{DefaultStream, faces},
    graph::{self, node::Node},
    memory::{
        free::{self, Free},
        graph_memory::Allocation,
        heap::{Kind, Medium},
        pool::{self, Pool},
    },
    stream::Stream,
    submit,
};

fn allocate(
    default: DefaultStream,
    out: Out<CUdeviceptr>,
    bytes: usize,
    pool: Option<CUmemoryPool>,
    stream: CUstream,
) -> CUresult {
    driver()?;
    out.check()?;
    let stream = context::stream(default, stream)?;
    let pool = match pool {
        Some(pool) => pool::by_handle(pool)?,
        None => pool::current(stream.device)?,
    };
    out.set(allocate_in(&pool, bytes as u64, &stream)?)
}

/// Allocates in the order of a stream; in a capturing one the graph does.
fn allocate_in(pool: &Arc<Pool>, bytes: u64, stream: &Arc<Stream>) -> Result<CUdeviceptr, CUerror> {
    pool.check()?;
    if bytes == 0 {
        // Nothing, which makes no node either.
        capture::active(stream)?;
        return pool.allocate(bytes, stream);
    }
    let allocation = || {
        // A graph allocates a device's own memory only.
        let on_device = pool.home.medium() == Medium::Device;
        let ordinal = pool.home.device().filter(|_| on_device);
        Allocation::captured(bytes as usize, ordinal.ok_or(CUDA_ERROR_NOT_SUPPORTED)?)
    };
    let captured = submit::capture_node(stream, || Ok(Node::Alloc(allocation()?)))?;
    match captured {
        Some(node) => graph::allocated_by(node),
        None => pool.allocate(bytes, stream),
    }
}

/// Frees memory from any allocation call in stream order; in a capturing stream only an allocation of a graph.
fn free_async(address: CUdeviceptr, stream: &Arc<Stream>) -> CUresult {
    let kind = free::freeable(address)?.kind;
    if kind == Kind::Graph {
        return submit::submit(stream, Node::Free(address));
    }
    if capture::is_capturing(stream) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if matches!(kind, Kind::Ordered(_)) {
        submit::queue(stream, Arc::new(pool::free_behind(address, stream.handle)?))
    } else {
        submit::queue(stream, Arc::new(Free(address)))
    }
}

faces! {
    "cuMemAllocAsync" 11020 cuMemAllocAsync (out: Out<CUdeviceptr>, bytes: usize, stream: CUstream) / cuMemAllocAsync_ptsz 11020 |default| {
        allocate(default, out, bytes, None, stream)
    }
    "cuMemAllocFromPoolAsync" 11020 cuMemAllocFromPoolAsync
        (out: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream) / cuMemAllocFromPoolAsync_ptsz 11020 |default| {
        allocate(default, out, bytes, Some(pool), stream)
    }
    "cuMemFreeAsync" 11020 cuMemFreeAsync (address: CUdeviceptr, stream: CUstream) / cuMemFreeAsync_ptsz 11020 |default| {
        let stream = context::stream(default, stream)?;
        if address == 0 {
            return Ok(());
        }
        free_async(address, &stream)
    }
}
