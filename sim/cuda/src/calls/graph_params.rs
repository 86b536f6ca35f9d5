//! A node's parameters: reading and replacing them, and the one struct that can hold those of any node.

use std::sync::Arc;

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror, CUresult},
    types::{
        CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D,
        CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphNode,
        CUgraphNodeParams, CUstreamBatchMemOpParams,
    },
};

use crate::{
    c::{In, Out, Plain},
    faces::faces,
    graph::{
        by_handle, conditional, home,
        node::{Node, kernel_params},
    },
    memory::graph_memory::Allocation,
    work::{Host, Word},
};

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WordsParams {
    context: CUcontext,
    count: u32,
    operations: *mut CUstreamBatchMemOpParams,
    flags: u32,
}

/// Offset of the ownership in the parameters of a child graph, and its value for a move.
const OWNERSHIP_AT: usize = 8;
const OWNERSHIP_MOVE: u32 = 1;
/// Offset of the parameters in a `CUgraphNodeParams`.
const PARAMS_AT: usize = 16;
/// Offset of a copy's description in its own parameters there.
const COPY_AT: usize = 16;

/// A `CUgraphNodeParams` of the application.
pub struct AnyParams {
    kind: u32,
    at: *mut u8,
}

impl AnyParams {
    /// Reads the kind; NULL is an invalid value.
    pub fn of(params: Out<CUgraphNodeParams>) -> Result<Self, CUerror> {
        let kind = In::<u32>(params.0.cast_const().cast()).get()?;
        let at = params.0.cast::<u8>().wrapping_add(PARAMS_AT);
        Ok(Self { kind, at })
    }

    fn read<T>(&self) -> In<T> {
        In(self.at.cast_const().cast())
    }

    /// Returns the parameters of a conditional node, if they are for one.
    pub fn conditional(&self) -> Option<Out<conditional::Params>> {
        const CONDITIONAL: u32 = 13;
        (self.kind == CONDITIONAL).then(|| Out(self.at.cast()))
    }

    /// Creates the described node, of any kind except a conditional one, which needs its graph. Results of the driver
    /// (an address, a child's handle) are written to the parameters.
    pub fn node(&self) -> Result<Node, CUerror> {
        match self.kind {
            0 => Node::kernel(self.read()),
            1 => Node::copy(In(self.at.wrapping_add(COPY_AT).cast_const().cast())),
            2 => Node::fill(self.read()),
            3 => Node::host(self.read()),
            4 => {
                let graph = by_handle(self.read::<CUgraph>().get()?)?;
                let ownership = In::<u32>(self.at.wrapping_add(OWNERSHIP_AT).cast_const().cast());
                if ownership.get()? != OWNERSHIP_MOVE {
                    return Node::child(&graph);
                }
                graph.give_away()?;
                Ok(Node::Child(graph))
            }
            5 => Ok(Node::Empty),
            6 => Node::wait(self.read::<CUevent>().get()?),
            7 => Node::record(self.read::<CUevent>().get()?),
            10 => {
                let mut given = self.read::<CUDA_MEM_ALLOC_NODE_PARAMS>().get()?;
                let allocation = Allocation::new(&given)?;
                given.dptr = allocation.address();
                Out(self.at.cast()).set(given)?;
                Ok(Node::Alloc(allocation))
            }
            11 => Node::free(self.read::<CUdeviceptr>().get()?),
            12 => Node::words(self.read()),
            8 | 9 | 13 => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

impl Node {
    /// Creates a kernel node from the first version of its parameters, which ends before `kern`.
    pub fn kernel_v1(params: In<CUDA_KERNEL_NODE_PARAMS>) -> Result<Self, CUerror> {
        const V1: usize = 56;
        let mut whole = std::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
        if params.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        crate::c::copy_bytes(whole.as_mut_ptr() as u64, params.0 as u64, V1);
        Self::kernel(In(whole.as_ptr()))
    }

    /// Creates a node of waits and writes.
    pub fn words(params: In<WordsParams>) -> Result<Self, CUerror> {
        let p = params.get()?;
        let words = Word::list(p.count, In(p.operations.cast_const()))?;
        Ok(Self::Words(words.into()))
    }
}

/// Reads a node of one kind; another kind is an invalid value.
fn look<T>(node: CUgraphNode, look: impl FnOnce(&Node) -> Option<T>) -> Result<T, CUerror> {
    let (graph, id) = home(node)?;
    graph.with(id, |node| look(node).ok_or(CUDA_ERROR_INVALID_VALUE))
}

fn replace(node: CUgraphNode, new: impl FnOnce() -> Result<Node, CUerror>) -> CUresult {
    let (graph, id) = home(node)?;
    graph.replace(id, new()?)
}

fn kernel(node: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS, CUerror> {
    look(node, |node| match node {
        Node::Kernel(launch) => Some(kernel_params(launch)),
        _ => None,
    })
}

fn host_params(host: &Host) -> CUDA_HOST_NODE_PARAMS {
    CUDA_HOST_NODE_PARAMS {
        func: Some(host.function),
        userData: host.data as *mut _,
    }
}

faces! {
    "cuGraphKernelNodeGetParams" 10000 cuGraphKernelNodeGetParams (node: CUgraphNode, out: Out<[u64; 7]>) {
        let params = kernel(node)?;
        out.check()?;
        crate::c::copy_bytes(out.0 as u64, &raw const params as u64, 56);
        Ok(())
    }
    "cuGraphKernelNodeGetParams" 12000 cuGraphKernelNodeGetParams_v2 (node: CUgraphNode, out: Out<CUDA_KERNEL_NODE_PARAMS>) {
        out.set(kernel(node)?)
    }
    "cuGraphKernelNodeSetParams" 10000 cuGraphKernelNodeSetParams (node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>) {
        replace(node, || Node::kernel_v1(params))
    }
    "cuGraphKernelNodeSetParams" 12000 cuGraphKernelNodeSetParams_v2 (node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>) {
        replace(node, || Node::kernel(params))
    }
    "cuGraphKernelNodeCopyAttributes" 11000 cuGraphKernelNodeCopyAttributes (to: CUgraphNode, from: CUgraphNode) {
        kernel(to)?;
        kernel(from).map(|_| ())
    }
    "cuGraphKernelNodeGetAttribute" 11000 cuGraphKernelNodeGetAttribute (node: CUgraphNode, attribute: u32, out: Out<[u64; 8]>) {
        let _ = attribute;
        kernel(node)?;
        out.set([0; 8])
    }
    "cuGraphKernelNodeSetAttribute" 11000 cuGraphKernelNodeSetAttribute (node: CUgraphNode, attribute: u32, value: In<[u64; 8]>) {
        let _ = attribute;
        kernel(node)?;
        value.get().map(|_| ())
    }
    "cuGraphMemcpyNodeGetParams" 10000 cuGraphMemcpyNodeGetParams (node: CUgraphNode, out: Out<CUDA_MEMCPY3D>) {
        let params = look(node, |node| match node {
            Node::Copy(params, _) => Some(**params),
            _ => None,
        })?;
        let Plain(params) = params;
        out.set(params)
    }
    "cuGraphMemcpyNodeSetParams" 10000 cuGraphMemcpyNodeSetParams (node: CUgraphNode, params: In<CUDA_MEMCPY3D>) {
        replace(node, || Node::copy(params))
    }
    "cuGraphMemsetNodeGetParams" 10000 cuGraphMemsetNodeGetParams (node: CUgraphNode, out: Out<CUDA_MEMSET_NODE_PARAMS>) {
        let params = look(node, |node| match node {
            Node::Fill(params, _) => Some(*params),
            _ => None,
        })?;
        let Plain(params) = params;
        out.set(params)
    }
    "cuGraphMemsetNodeSetParams" 10000 cuGraphMemsetNodeSetParams (node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>) {
        replace(node, || Node::fill(params))
    }
    "cuGraphHostNodeGetParams" 10000 cuGraphHostNodeGetParams (node: CUgraphNode, out: Out<CUDA_HOST_NODE_PARAMS>) {
        let host = look(node, |node| match node {
            Node::Host(host) => Some(*host),
            _ => None,
        })?;
        out.set(host_params(&host))
    }
    "cuGraphHostNodeSetParams" 10000 cuGraphHostNodeSetParams (node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>) {
        replace(node, || Node::host(params))
    }
    "cuGraphChildGraphNodeGetGraph" 10000 cuGraphChildGraphNodeGetGraph (node: CUgraphNode, out: Out<CUgraph>) {
        let child = look(node, |node| match node {
            Node::Child(child) => Some(Arc::clone(child)),
            _ => None,
        })?;
        out.set(child.handle as CUgraph)
    }
    "cuGraphEventRecordNodeGetEvent" 11010 cuGraphEventRecordNodeGetEvent (node: CUgraphNode, out: Out<CUevent>) {
        let event = look(node, |node| match node {
            Node::Record(event, _) => Some(*event),
            _ => None,
        })?;
        out.set(event as CUevent)
    }
    "cuGraphEventRecordNodeSetEvent" 11010 cuGraphEventRecordNodeSetEvent (node: CUgraphNode, event: CUevent) {
        replace(node, || Node::record(event))
    }
    "cuGraphEventWaitNodeGetEvent" 11010 cuGraphEventWaitNodeGetEvent (node: CUgraphNode, out: Out<CUevent>) {
        let event = look(node, |node| match node {
            Node::Await(event, _) => Some(*event),
            _ => None,
        })?;
        out.set(event as CUevent)
    }
    "cuGraphEventWaitNodeSetEvent" 11010 cuGraphEventWaitNodeSetEvent (node: CUgraphNode, event: CUevent) {
        replace(node, || Node::wait(event))
    }
    "cuGraphBatchMemOpNodeGetParams" 11070 cuGraphBatchMemOpNodeGetParams (node: CUgraphNode, out: Out<WordsParams>) {
        // The array of operations is the application's and may be freed, so only its length is returned.
        let words: Arc<[Word]> = look(node, |node| match node {
            Node::Words(words) => Some(Arc::clone(words)),
            _ => None,
        })?;
        let null = std::ptr::null_mut();
        out.set(WordsParams { context: null, count: words.len() as u32, operations: std::ptr::null_mut(), flags: 0 })
    }
    "cuGraphBatchMemOpNodeSetParams" 11070 cuGraphBatchMemOpNodeSetParams (node: CUgraphNode, params: In<WordsParams>) {
        replace(node, || Node::words(params))
    }
    "cuGraphMemAllocNodeGetParams" 11040 cuGraphMemAllocNodeGetParams (node: CUgraphNode, out: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) {
        let params = look(node, |node| match node {
            Node::Alloc(allocation) => Some(allocation.params()),
            _ => None,
        })?;
        out.set(params)
    }
    "cuGraphMemFreeNodeGetParams" 11040 cuGraphMemFreeNodeGetParams (node: CUgraphNode, out: Out<CUdeviceptr>) {
        let address = look(node, |node| match node {
            Node::Free(address) => Some(*address),
            _ => None,
        })?;
        out.set(address)
    }
    "cuGraphNodeSetParams" 12020 cuGraphNodeSetParams (node: CUgraphNode, params: Out<CUgraphNodeParams>) {
        let given = AnyParams::of(params)?;
        replace(node, || given.node())
    }
}
