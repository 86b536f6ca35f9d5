//! Conditional nodes: bodies that a launch runs or not, by the value of a handle.
//!
//! A driver's kernels set the value while the graph runs. Simulated kernels compute nothing, so the value is that at
//! the start of each launch: the default of the handle, if it is to be assigned, else 0. An *if* runs its first body
//! for any value except 0, its second for 0. A *while* runs its body once for any value except 0, as if the body had
//! set it to 0. A *switch* runs the body with the index of the value, if there is one.
//!
//! A graph with such a node is not copied, neither by cloning nor into a child graph. A body may contain kernels,
//! copies, memsets, empty nodes, child graphs and conditional nodes; another node fails the instantiation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult};
use gpushare_abi::types::{CUcontext, CUgraph};

use super::{Graph, by_handle};
use crate::c::Out;
use crate::context;
use crate::faces::faces;
use crate::handles::{Table, fresh};

/// `CUDA_CONDITIONAL_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params {
    handle: u64,
    kind: u32,
    count: u32,
    bodies: *const u64,
    context: CUcontext,
}

#[derive(Debug)]
struct Condition {
    /// The graph of the handle, which a node in it or in a graph inside it may use.
    graph: u64,
    /// The value at the start of each launch.
    value: u32,
    /// A node has it.
    is_used: AtomicBool,
}

static CONDITIONS: Table<Condition> = Table::new();

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`.
const ASSIGN_DEFAULT: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    If,
    While,
    Switch,
}

/// The graphs that a conditional node runs.
#[derive(Debug)]
pub struct Conditional {
    condition: Arc<Condition>,
    kind: Kind,
    /// The bodies.
    pub bodies: Vec<Arc<Graph>>,
    /// The handles of the bodies, which the application may read as long as the node exists.
    handles: Box<[u64]>,
}

impl Conditional {
    /// Creates a node for a graph from its description, and writes the address of its bodies' handles.
    pub fn make(graph: &Graph, params: Out<Params>) -> Result<Arc<Self>, CUerror> {
        let mut given = params.input().get()?;
        context::by_handle_or_current(given.context)?;
        let (kind, most) = match given.kind {
            0 => (Kind::If, 2),
            1 => (Kind::While, 1),
            2 => (Kind::Switch, u32::MAX),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let condition = CONDITIONS.get(given.handle);
        let condition = condition.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if !by_handle(condition.graph as CUgraph)?.contains(graph.handle) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !(1..=most).contains(&given.count) || condition.is_used.swap(true, Relaxed) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let bodies: Vec<_> = (0..given.count).map(|_| Graph::create_inside()).collect();
        let handles: Box<[u64]> = bodies.iter().map(|body| body.handle).collect();
        given.bodies = handles.as_ptr();
        params.set(given)?;
        Ok(Arc::new(Self {
            condition,
            kind,
            bodies,
            handles,
        }))
    }

    /// Returns the index of the body that a launch runs.
    pub fn chosen(&self) -> Option<usize> {
        let value = self.condition.value;
        let body = match self.kind {
            Kind::If => usize::from(value == 0),
            Kind::While if value == 0 => return None,
            Kind::While => 0,
            Kind::Switch => value as usize,
        };
        (body < self.bodies.len()).then_some(body)
    }

    /// Destroys the bodies of a removed node. Another node may then use its handle.
    pub fn forget(&self) {
        debug_assert_eq!(self.handles.len(), self.bodies.len());
        self.bodies.iter().for_each(|body| body.forget());
        self.condition.is_used.store(false, Relaxed);
    }
}

/// Removes the handles of a destroyed graph.
pub fn forget_handles(graph: u64) {
    CONDITIONS.remove_where(|condition| condition.graph == graph);
}

/// Returns true if a graph has a handle that no node uses.
pub fn any_unused(graph: u64) -> bool {
    let unused =
        |condition: &Condition| condition.graph == graph && !condition.is_used.load(Relaxed);
    CONDITIONS.find(unused).is_some()
}

fn create(out: Out<u64>, graph: CUgraph, given: CUcontext, value: u32, flags: u32) -> CUresult {
    let graph = by_handle(graph)?;
    context::by_handle_or_current(given)?;
    out.check()?;
    if flags > ASSIGN_DEFAULT {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = fresh();
    let condition = Condition {
        graph: graph.handle,
        value: if flags == ASSIGN_DEFAULT { value } else { 0 },
        is_used: AtomicBool::new(false),
    };
    CONDITIONS.insert(handle, Arc::new(condition));
    out.set(handle)
}

faces! {
    "cuGraphConditionalHandleCreate" 12030 cuGraphConditionalHandleCreate
        (out: Out<u64>, graph: CUgraph, context: CUcontext, value: u32, flags: u32) {
        create(out, graph, context, value, flags)
    }
}
