//! The contents of a graph's node: its work and its parameters.

use std::sync::Arc;

use super::{Graph, conditional::Conditional};
use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror},
    types::{
        CU_MEMORYTYPE_UNIFIED, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D,
        CUDA_MEMSET_NODE_PARAMS, CUevent, CUfunction,
    },
};

use crate::{
    c::{In, Plain},
    code::module,
    copy,
    event::{self, Event},
    launch::{self, Launch, Shape},
    memory::{free::Free, graph_memory::Allocation, heap},
    work::{All, Copy, Fill, Host, Nothing, Side, Word, Work},
};

/// A node.
#[derive(Clone, Debug)]
pub enum Node {
    /// A kernel.
    Kernel(Arc<Launch>),
    /// A copy, as it was described.
    Copy(Box<Plain<CUDA_MEMCPY3D>>, Copy),
    /// A memset, as it was described.
    Fill(Plain<CUDA_MEMSET_NODE_PARAMS>, Fill),
    /// A call of the application.
    Host(Host),
    /// A whole graph.
    Child(Arc<Graph>),
    /// A node without work.
    Empty,
    /// Waits for an event.
    Await(u64, Arc<Event>),
    /// Records an event.
    Record(u64, Arc<Event>),
    /// Makes memory.
    Alloc(Arc<Allocation>),
    /// Frees memory.
    Free(u64),
    /// Waits for and writes words.
    Words(Arc<[Word]>),
    /// Graphs that run or not.
    Conditional(Arc<Conditional>),
}

/// A `CUgraphNodeType`.
pub type Kind = u32;

impl Node {
    /// Returns the driver's number for the kind of node.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(..) => 1,
            Self::Fill(..) => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::Await(..) => 6,
            Self::Record(..) => 7,
            Self::Alloc(_) => 10,
            Self::Free(_) => 11,
            Self::Words(_) => 12,
            Self::Conditional(_) => 13,
        }
    }

    /// Returns the contents for another graph; a child graph is copied too.
    pub fn copied(&self) -> Self {
        match self {
            Self::Child(child) => Self::Child(child.copy(true)),
            other => other.clone(),
        }
    }

    /// Returns the work of the node, or `None` for a node that contains graphs, which is many pieces of work.
    pub fn work(&self) -> Option<Arc<dyn Work>> {
        Some(match self {
            Self::Kernel(launch) => Arc::<Launch>::clone(launch),
            Self::Copy(_, copy) => Arc::new(copy.clone()),
            Self::Fill(_, fill) => Arc::new(*fill),
            Self::Host(host) => Arc::new(*host),
            Self::Child(_) | Self::Conditional(_) => return None,
            Self::Empty => Arc::new(Nothing),
            // The memory is allocated when the graph is launched, and must exist until the queued work is done.
            Self::Alloc(allocation) => Arc::<Allocation>::clone(allocation),
            Self::Await(_, event) => Arc::new(event::Await(Arc::clone(event))),
            Self::Record(_, event) => Arc::new(event::Record(Arc::clone(event))),
            Self::Free(address) => Arc::new(Free(*address)),
            Self::Words(words) => {
                let work = |word: &Word| -> Arc<dyn Work> { Arc::new(*word) };
                Arc::new(All(words.iter().map(work).collect()))
            }
        })
    }

    /// Creates the node of a submitted copy.
    pub fn of_copy(copy: Copy) -> Self {
        Self::Copy(Box::new(Plain(described(&copy))), copy)
    }

    /// Creates the node of a submitted memset.
    pub fn of_fill(fill: Fill) -> Self {
        Self::Fill(Plain(fill_params(&fill)), fill)
    }

    /// Creates a node that frees an allocation of a graph; the driver accepts no other.
    pub fn free(address: u64) -> Result<Self, CUerror> {
        let block = heap::find(address).filter(|block| block.base == address);
        match block.map(|block| block.kind) {
            Some(heap::Kind::Graph) => Ok(Self::Free(address)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Creates a kernel node.
    pub fn kernel(params: In<CUDA_KERNEL_NODE_PARAMS>) -> Result<Self, CUerror> {
        let p = params.get()?;
        let function = if p.func.is_null() {
            p.kern.cast()
        } else {
            p.func
        };
        let shape = Shape {
            grid: [p.gridDimX, p.gridDimY, p.gridDimZ],
            block: [p.blockDimX, p.blockDimY, p.blockDimZ],
            shared: p.sharedMemBytes,
        };
        let (params, extra) = (p.kernelParams.cast_const(), p.extra.cast_const());
        let function = module::function(function)?;
        let launch = launch::prepare(&function, shape, In(params.cast()), In(extra.cast()))?;
        Ok(Self::Kernel(launch))
    }

    /// Creates a copy node.
    pub fn copy(params: In<CUDA_MEMCPY3D>) -> Result<Self, CUerror> {
        Ok(Self::Copy(
            Box::new(Plain(params.get()?)),
            copy::plan_3d(params)?.into_copy(),
        ))
    }

    /// Creates a memset node.
    pub fn fill(params: In<CUDA_MEMSET_NODE_PARAMS>) -> Result<Self, CUerror> {
        let p = params.get()?;
        let fill = Fill {
            to: p.dst,
            pitch: p.pitch,
            value: p.value,
            element: p.elementSize as usize,
            width: p.width,
            height: p.height,
        };
        if !matches!(p.elementSize, 1 | 2 | 4) || p.width == 0 || p.height == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let row = p
            .width
            .checked_mul(fill.element)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if p.height > 1 && p.pitch < row {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        heap::check(p.dst, copy::span(row, p.pitch, p.height)?)?;
        Ok(Self::Fill(Plain(p), fill))
    }

    /// Creates a host node.
    pub fn host(params: In<CUDA_HOST_NODE_PARAMS>) -> Result<Self, CUerror> {
        let p = params.get()?;
        let function = p.func.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let data = p.userData as u64;
        Ok(Self::Host(Host { function, data }))
    }

    /// Creates a node that records an event.
    pub fn record(event: CUevent) -> Result<Self, CUerror> {
        Ok(Self::Record(event as u64, event::by_handle(event)?))
    }

    /// Creates a node that waits for an event.
    pub fn wait(event: CUevent) -> Result<Self, CUerror> {
        Ok(Self::Await(event as u64, event::by_handle(event)?))
    }

    /// Returns the graphs that belong to the node.
    pub fn inside(&self) -> &[Arc<Graph>] {
        match self {
            Self::Child(child) => std::slice::from_ref(child),
            Self::Conditional(conditional) => &conditional.bodies,
            _ => &[],
        }
    }

    /// Releases what belongs to a node that was removed from its graph.
    pub fn forget(&self) {
        match self {
            Self::Child(child) => child.forget(),
            Self::Conditional(conditional) => conditional.forget(),
            _ => {}
        }
    }

    /// Returns true if the node may be in the body of a conditional node.
    pub fn may_be_conditional(&self) -> bool {
        matches!(
            self,
            Self::Kernel(_)
                | Self::Copy(..)
                | Self::Fill(..)
                | Self::Empty
                | Self::Child(_)
                | Self::Conditional(_)
        )
    }

    /// Creates a child graph node.
    pub fn child(graph: &Graph) -> Result<Self, CUerror> {
        if !graph.may_be_copied() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        Ok(Self::Child(graph.copy(true)))
    }
}

/// Returns a kernel node's parameters. The arguments are the simulator's copies, which exist as long as the node.
pub fn kernel_params(launch: &Launch) -> CUDA_KERNEL_NODE_PARAMS {
    let Shape {
        grid,
        block,
        shared,
    } = launch.shape;
    CUDA_KERNEL_NODE_PARAMS {
        func: launch.function.handle as CUfunction,
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: shared,
        kernelParams: launch.pointers(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    }
}

/// Describes a captured copy: both sides by address.
fn described(copy: &Copy) -> CUDA_MEMCPY3D {
    let rows = |side: &Side| side.slice.checked_div(side.pitch).unwrap_or(0);
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CU_MEMORYTYPE_UNIFIED,
        srcHost: std::ptr::null(),
        srcDevice: copy.from.address,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: copy.from.pitch,
        srcHeight: rows(&copy.from),
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CU_MEMORYTYPE_UNIFIED,
        dstHost: std::ptr::null_mut(),
        dstDevice: copy.to.address,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: copy.to.pitch,
        dstHeight: rows(&copy.to),
        WidthInBytes: copy.width,
        Height: copy.height,
        Depth: copy.depth,
    }
}

fn fill_params(fill: &Fill) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.to,
        pitch: fill.pitch,
        value: fill.value,
        elementSize: fill.element as u32,
        width: fill.width,
        height: fill.height,
    }
}
