//! Adding nodes to a graph by hand.

use std::sync::Arc;

use gpushare_abi::{
    errors::{CUDA_ERROR_NOT_SUPPORTED, CUerror, CUresult},
    types::{
        CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D,
        CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphEdgeData,
        CUgraphNode, CUgraphNodeParams,
    },
};

use crate::{
    c::{In, Out},
    calls::graph_params::{AnyParams, WordsParams},
    context,
    faces::faces,
    graph::{by_handle, conditional::Conditional, names, node::Node},
    memory::graph_memory::Allocation,
};

fn add(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    node: impl FnOnce() -> Result<Node, CUerror>,
) -> CUresult {
    let graph = by_handle(graph)?;
    out.check()?;
    let after = names(after, count)?;
    out.set(graph.add(node()?, &after)? as CUgraphNode)
}

fn add_any(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> CUresult {
    let given = AnyParams::of(params)?;
    let Some(conditional) = given.conditional() else {
        return add(out, graph, after, count, || given.node());
    };
    let home = by_handle(graph)?;
    let mut made = None;
    let added = add(out, graph, after, count, || {
        let node = Conditional::make(&home, conditional)?;
        made = Some(Arc::clone(&node));
        Ok(Node::Conditional(node))
    });
    if let (Err(_), Some(made)) = (added, made) {
        made.forget();
    }
    added
}

faces! {
    "cuGraphAddKernelNode" 10000 cuGraphAddKernelNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<CUDA_KERNEL_NODE_PARAMS>) {
        add(out, graph, after, count, || Node::kernel_v1(params))
    }
    "cuGraphAddKernelNode" 12000 cuGraphAddKernelNode_v2
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<CUDA_KERNEL_NODE_PARAMS>) {
        add(out, graph, after, count, || Node::kernel(params))
    }
    "cuGraphAddMemcpyNode" 10000 cuGraphAddMemcpyNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<CUDA_MEMCPY3D>, context: CUcontext) {
        context::by_handle(context)?;
        add(out, graph, after, count, || Node::copy(params))
    }
    "cuGraphAddMemsetNode" 10000 cuGraphAddMemsetNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<CUDA_MEMSET_NODE_PARAMS>, context: CUcontext) {
        context::by_handle(context)?;
        add(out, graph, after, count, || Node::fill(params))
    }
    "cuGraphAddHostNode" 10000 cuGraphAddHostNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<CUDA_HOST_NODE_PARAMS>) {
        add(out, graph, after, count, || Node::host(params))
    }
    "cuGraphAddChildGraphNode" 10000 cuGraphAddChildGraphNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, child: CUgraph) {
        let child = by_handle(child)?;
        add(out, graph, after, count, || Node::child(&child))
    }
    "cuGraphAddEmptyNode" 10000 cuGraphAddEmptyNode (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize) {
        add(out, graph, after, count, || Ok(Node::Empty))
    }
    "cuGraphAddEventRecordNode" 11010 cuGraphAddEventRecordNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, event: CUevent) {
        add(out, graph, after, count, || Node::record(event))
    }
    "cuGraphAddEventWaitNode" 11010 cuGraphAddEventWaitNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, event: CUevent) {
        add(out, graph, after, count, || Node::wait(event))
    }
    "cuGraphAddBatchMemOpNode" 11070 cuGraphAddBatchMemOpNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<WordsParams>) {
        add(out, graph, after, count, || Node::words(params))
    }
    "cuGraphAddMemAllocNode" 11040 cuGraphAddMemAllocNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) {
        let mut given = params.input().get()?;
        let allocation = Allocation::new(&given)?;
        given.dptr = allocation.address();
        add(out, graph, after, count, || Ok(Node::Alloc(allocation)))?;
        params.set(given)
    }
    "cuGraphAddMemFreeNode" 11040 cuGraphAddMemFreeNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, address: CUdeviceptr) {
        add(out, graph, after, count, || Node::free(address))
    }
    "cuGraphAddNode" 12020 cuGraphAddNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: Out<CUgraphNodeParams>) {
        add_any(out, graph, after, count, params)
    }
    "cuGraphAddNode" 12030 cuGraphAddNode_v2
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize, params: Out<CUgraphNodeParams>) {
        let _ = edges;
        add_any(out, graph, after, count, params)
    }
    "cuGraphAddExternalSemaphoresSignalNode" 11020 cuGraphAddExternalSemaphoresSignalNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<u64>) {
        let _ = params;
        add(out, graph, after, count, || Err(CUDA_ERROR_NOT_SUPPORTED))
    }
    "cuGraphAddExternalSemaphoresWaitNode" 11020 cuGraphAddExternalSemaphoresWaitNode
        (out: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<u64>) {
        let _ = params;
        add(out, graph, after, count, || Err(CUDA_ERROR_NOT_SUPPORTED))
    }
}
