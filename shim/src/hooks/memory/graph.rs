//! Hooks for memory that graphs allocate: nodes added by hand, and allocations captured into a graph.
//!
//! A node or an executable graph is not charged. The driver allocates memory when an executable graph is uploaded or
//! launched and needs more than its device keeps for graphs. So the charge, and a denial, happens in that call; a
//! denial returns out of memory, as the driver would. The memory stays charged until the driver releases it, at
//! `cuDeviceGraphMemTrim`. A driver refuses to copy graphs with memory nodes and to remove such nodes, and allows one
//! executable of such a graph at a time. A child graph that is moved brings its nodes along.

mod claim;

use std::sync::Arc;

use super::{
    account::{self, Account},
    code,
};
use gpushare_abi::{
    Out,
    errors::CUresult,
    types::{
        CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUgraph,
        CUgraphExec, CUgraphNodeParams, CUmemLocation, CUstream,
    },
};

use crate::{hooks::Real, managed_process, thread::stream_key, tracking::graph::plan::Piece};

pub use claim::{Claims, claim};

/// Values of `CUgraphNodeParams::type_`: a child graph, an allocation, a free.
const NODE_TYPE_GRAPH: u32 = 4;
const NODE_TYPE_MEM_ALLOC: u32 = 10;
const NODE_TYPE_MEM_FREE: u32 = 11;
/// Value of `CUDA_CHILD_GRAPH_NODE_PARAMS::ownership`: the child is not copied.
const OWNERSHIP_MOVE: u32 = 1;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: u64 = 2;
/// `CUDA_GRAPH_INSTANTIATE_ERROR`.
const INSTANTIATE_ERROR: u32 = 1;

fn allocates(graph: CUgraph, location: CUmemLocation, bytes: u64, address: u64) {
    // An allocation of 0 bytes has address 0 and no memory.
    if address == 0 {
        return;
    }
    let ordinal = location
        .device()
        .and_then(|ordinal| u8::try_from(ordinal).ok());
    if let (Some(process), Some(ordinal)) = (managed_process::current(), ordinal) {
        let piece = Piece {
            address,
            bytes,
            ordinal,
        };
        let book = &process.memory.graphs;
        book.plan(graph, |plan| plan.pieces.push(piece));
    }
}

fn frees(graph: CUgraph, address: u64) {
    if address == 0 {
        return;
    }
    if let Some(process) = managed_process::current() {
        let book = &process.memory.graphs;
        book.plan(graph, |plan| plan.frees.push(address));
    }
}

/// Forwards `cuMemAllocAsync` into a capturing stream. The allocation belongs to the graph.
pub fn captured(
    real: Real<'_, impl FnOnce() -> CUresult>,
    account: Account,
    graph: CUgraph,
    bytes: usize,
    dptr: Out<CUdeviceptr>,
) -> CUresult {
    real.call()?;
    let here = CUmemLocation::on(CUdevice::from(account.ordinal()));
    allocates(graph, here, bytes as u64, dptr.get().unwrap_or(0));
    Ok(())
}

/// Forwards `cuMemFreeAsync` into a capturing stream: each launch frees. The driver accepts only memory that a graph
/// has allocated.
pub fn captured_free(
    real: Real<'_, impl FnOnce() -> CUresult>,
    graph: CUgraph,
    dptr: CUdeviceptr,
) -> CUresult {
    add_free(real, graph, dptr)
}

/// Forwards `cuGraphAddMemAllocNode`.
pub fn add_alloc(
    real: Real<'_, impl FnOnce() -> CUresult>,
    graph: CUgraph,
    params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> CUresult {
    real.call()?;
    if let Some(params) = params.get() {
        let location = params.poolProps.location;
        allocates(graph, location, params.bytesize as u64, params.dptr);
    }
    Ok(())
}

/// Forwards `cuGraphAddMemFreeNode`.
pub fn add_free(
    real: Real<'_, impl FnOnce() -> CUresult>,
    graph: CUgraph,
    dptr: CUdeviceptr,
) -> CUresult {
    real.call()?;
    frees(graph, dptr);
    Ok(())
}

/// Forwards `cuGraphAddNode`.
pub fn add_node(
    real: Real<'_, impl FnOnce() -> CUresult>,
    graph: CUgraph,
    params: Out<CUgraphNodeParams>,
) -> CUresult {
    real.call()?;
    let Some(CUgraphNodeParams { type_, params, .. }) = params.get() else {
        return Ok(());
    };
    match type_ {
        // CUDA_MEM_ALLOC_NODE_PARAMS_v2 begins with the pool's properties: two enumerations, then the location. Its
        // bytesize is the fourteenth word, and the driver writes the address to the word after it.
        NODE_TYPE_MEM_ALLOC => {
            let location = CUmemLocation {
                type_: params[1] as u32,
                id: (params[1] >> 32) as i32,
            };
            allocates(graph, location, params[13], params[14]);
        }
        NODE_TYPE_MEM_FREE => frees(graph, params[0]),
        // CUDA_CHILD_GRAPH_NODE_PARAMS contains the graph and its ownership.
        NODE_TYPE_GRAPH if params[1] as u32 == OWNERSHIP_MOVE => moved(graph, params[0] as usize),
        _ => {}
    }
    Ok(())
}

fn moved(into: CUgraph, child: usize) {
    let Some(process) = managed_process::current().filter(|process| process.memory.graphs.any())
    else {
        return;
    };
    let mut book = process.memory.graphs.lock();
    if let Some(plan) = book.graphs.remove(&child) {
        book.graphs.entry(into as usize).or_default().absorb(plan);
    }
}

/// Forwards `cuGraphDestroy`.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, graph: CUgraph) -> CUresult {
    let Some(process) = managed_process::current().filter(|process| process.memory.graphs.any())
    else {
        return real.call();
    };
    // Removed before the driver may reuse the handle.
    let book = &process.memory.graphs;
    let plan = book.lock().graphs.remove(&(graph as usize));
    real.call().inspect_err(|_| {
        if let Some(plan) = plan {
            book.lock().graphs.insert(graph as usize, plan);
        }
    })
}

/// Forwards `cuGraphInstantiateWithParams`, which may also upload.
pub fn instantiate_with(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> CUresult {
    let process = managed_process::current().filter(|process| process.memory.graphs.any());
    let given = params.get().filter(|params| params.flags & UPLOAD != 0);
    let (Some(process), Some(mut given)) = (process, given) else {
        return instantiate(real, exec, graph);
    };
    let plan = process
        .memory
        .graphs
        .lock()
        .graphs
        .get(&(graph as usize))
        .cloned();
    let key = stream_key(given.hUploadStream as usize, real.per_thread());
    let symbol = real.symbol();
    let claims = plan
        .map(|plan| Claims::make(process, Arc::new(plan.need()), symbol, key, false))
        .transpose()
        .inspect_err(|_| {
            given.hErrNode_out = std::ptr::null_mut();
            given.result_out = INSTANTIATE_ERROR;
            params.set(given);
        })?;
    let answer = instantiate(real, exec, graph);
    if let Some(claims) = claims {
        claims.complete(answer);
    }
    answer
}

/// Forwards the other forms of `cuGraphInstantiate`.
pub fn instantiate(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
) -> CUresult {
    code::forward(&real)?;
    let process = managed_process::current().filter(|process| process.memory.graphs.any());
    if let (Some(process), Some(exec)) = (process, exec.get()) {
        let mut book = process.memory.graphs.lock();
        if let Some(plan) = book.graphs.get(&(graph as usize)) {
            let need = Arc::new(plan.need());
            book.execs.insert(exec as usize, need);
        }
    }
    Ok(())
}

/// Forwards `cuGraphExecDestroy`. The memory stays with the device until a trim.
pub fn destroy_exec(real: Real<'_, impl FnOnce() -> CUresult>, exec: CUgraphExec) -> CUresult {
    let Some(process) = managed_process::current().filter(|process| process.memory.graphs.any())
    else {
        return real.call();
    };
    // Removed before the driver may reuse the handle.
    let book = &process.memory.graphs;
    let need = book.lock().execs.remove(&(exec as usize));
    real.call().inspect_err(|_| {
        if let Some(need) = need {
            book.lock().execs.insert(exec as usize, need);
        }
    })
}

/// Forwards `cuGraphUpload`.
pub fn upload(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    let key = stream_key(stream as usize, real.per_thread());
    let claims = claim(real.symbol(), exec, key, false)?;
    let answer = code::forward(&real);
    if let Some(claims) = claims {
        claims.complete(answer);
    }
    answer
}

/// Forwards `cuDeviceGraphMemTrim`.
pub fn trim(real: Real<'_, impl FnOnce() -> CUresult>, device: CUdevice) -> CUresult {
    real.call()?;
    let process = managed_process::current().filter(|process| process.memory.graphs.any());
    if let (Some(process), Some(account)) = (process, account::of_device(device)) {
        let gone = process.memory.graphs.trimmed(account.ordinal());
        account.ledger().release(gone);
    }
    Ok(())
}
