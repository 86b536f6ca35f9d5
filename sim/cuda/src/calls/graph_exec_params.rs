//! Changing one node of a graph that is ready to launch.

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror, CUresult};
use gpushare_abi::types::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeParams,
};

use crate::c::{In, Out};
use crate::calls::graph_params::{AnyParams, WordsParams};
use crate::context;
use crate::faces::faces;
use crate::graph::exec::exec;
use crate::graph::node::Node;
use crate::graph::{by_handle, home};

fn replace(
    handle: CUgraphExec,
    node: CUgraphNode,
    new: impl FnOnce() -> Result<Node, CUerror>,
) -> CUresult {
    let exec = exec(handle)?;
    exec.change(node as u64, |step| {
        let new = new()?;
        if new.kind() != step.node.kind() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        step.node = new;
        Ok(())
    })
}

/// Kernels, copies and memsets can be switched off.
fn switchable(node: &Node) -> CUresult {
    let yes = matches!(node, Node::Kernel(_) | Node::Copy(..) | Node::Fill(..));
    if yes {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

faces! {
    "cuGraphExecKernelNodeSetParams" 10010 cuGraphExecKernelNodeSetParams (handle: CUgraphExec, node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>) {
        replace(handle, node, || Node::kernel_v1(params))
    }
    "cuGraphExecKernelNodeSetParams" 12000 cuGraphExecKernelNodeSetParams_v2 (handle: CUgraphExec, node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>) {
        replace(handle, node, || Node::kernel(params))
    }
    "cuGraphExecMemcpyNodeSetParams" 10020 cuGraphExecMemcpyNodeSetParams (handle: CUgraphExec, node: CUgraphNode, params: In<CUDA_MEMCPY3D>, context: CUcontext) {
        context::by_handle(context)?;
        replace(handle, node, || Node::copy(params))
    }
    "cuGraphExecMemsetNodeSetParams" 10020 cuGraphExecMemsetNodeSetParams (handle: CUgraphExec, node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>, context: CUcontext) {
        context::by_handle(context)?;
        replace(handle, node, || Node::fill(params))
    }
    "cuGraphExecHostNodeSetParams" 10020 cuGraphExecHostNodeSetParams (handle: CUgraphExec, node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>) {
        replace(handle, node, || Node::host(params))
    }
    "cuGraphExecChildGraphNodeSetParams" 11010 cuGraphExecChildGraphNodeSetParams (handle: CUgraphExec, node: CUgraphNode, child: CUgraph) {
        let exec = exec(handle)?;
        let child = by_handle(child)?;
        exec.change(node as u64, |step| step.adopt_child(&child))
    }
    "cuGraphExecEventRecordNodeSetEvent" 11010 cuGraphExecEventRecordNodeSetEvent (handle: CUgraphExec, node: CUgraphNode, event: CUevent) {
        replace(handle, node, || Node::record(event))
    }
    "cuGraphExecEventWaitNodeSetEvent" 11010 cuGraphExecEventWaitNodeSetEvent (handle: CUgraphExec, node: CUgraphNode, event: CUevent) {
        replace(handle, node, || Node::wait(event))
    }
    "cuGraphExecBatchMemOpNodeSetParams" 11070 cuGraphExecBatchMemOpNodeSetParams (handle: CUgraphExec, node: CUgraphNode, params: In<WordsParams>) {
        replace(handle, node, || Node::words(params))
    }
    "cuGraphExecNodeSetParams" 12020 cuGraphExecNodeSetParams (handle: CUgraphExec, node: CUgraphNode, params: Out<CUgraphNodeParams>) {
        exec(handle)?;
        let given = AnyParams::of(params)?;
        replace(handle, node, || given.node())
    }
    "cuGraphNodeSetEnabled" 11060 cuGraphNodeSetEnabled (handle: CUgraphExec, node: CUgraphNode, enabled: u32) {
        exec(handle)?.change(node as u64, |step| {
            switchable(&step.node)?;
            step.enabled = enabled != 0;
            Ok(())
        })
    }
    "cuGraphNodeGetEnabled" 11060 cuGraphNodeGetEnabled (handle: CUgraphExec, node: CUgraphNode, out: Out<u32>) {
        out.check()?;
        exec(handle)?.change(node as u64, |step| {
            switchable(&step.node)?;
            out.set(step.enabled.into())
        })
    }
    "cuGraphExecExternalSemaphoresSignalNodeSetParams" 11020 cuGraphExecExternalSemaphoresSignalNodeSetParams (handle: CUgraphExec, node: CUgraphNode, params: In<u64>) {
        let _ = (node, params);
        exec(handle)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
    "cuGraphExecExternalSemaphoresWaitNodeSetParams" 11020 cuGraphExecExternalSemaphoresWaitNodeSetParams (handle: CUgraphExec, node: CUgraphNode, params: In<u64>) {
        let _ = (node, params);
        exec(handle)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
    "cuGraphExternalSemaphoresSignalNodeGetParams" 11020 cuGraphExternalSemaphoresSignalNodeGetParams (node: CUgraphNode, out: Out<u64>) {
        let _ = out;
        home(node)?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }
    "cuGraphExternalSemaphoresSignalNodeSetParams" 11020 cuGraphExternalSemaphoresSignalNodeSetParams (node: CUgraphNode, params: In<u64>) {
        let _ = params;
        home(node)?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }
    "cuGraphExternalSemaphoresWaitNodeGetParams" 11020 cuGraphExternalSemaphoresWaitNodeGetParams (node: CUgraphNode, out: Out<u64>) {
        let _ = out;
        home(node)?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }
    "cuGraphExternalSemaphoresWaitNodeSetParams" 11020 cuGraphExternalSemaphoresWaitNodeSetParams (node: CUgraphNode, params: In<u64>) {
        let _ = params;
        home(node)?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}
