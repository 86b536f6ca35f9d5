//! Graphs: work as nodes and edges, made by hand or by capturing streams, run again and again.
//!
//! * [`dag`]: nodes and edges as data.
//! * [`node`]: what a node does, and its parameters.
//! * [`sequences`]: the rules of stream capture; `crate::capture` applies them.
//! * `add`, `params`, `edit`: the calls that make and change graphs.
//! * [`exec`]: graphs ready to launch; `exec_params` changes them.
//! * [`memory`]: memory that a graph allocates and frees.
//! * `user_object`: the application's objects that graphs keep alive.
//!
//! A graph's handle and its nodes' handles name it until it is destroyed. A child graph belongs to its node.
//! A launch queues the nodes in one stream, one after the other: every order the driver may choose gives
//! the same result as this one.

pub mod dag;
pub mod exec;
pub mod node;
pub mod user_object;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult};
use gpushare_abi::types::{CUgraph, CUgraphNode};

use crate::c::In;
use crate::driver::driver;
use crate::handles::{NodeId, Table, fresh, lock};
use dag::Dag;
use node::Node;

/// A graph.
#[derive(Debug)]
pub struct Graph {
    /// Its handle.
    pub handle: u64,
    /// Its nodes and edges.
    pub dag: Mutex<Dag<Node>>,
    /// It belongs to a child graph node.
    is_child: AtomicBool,
    /// The latest executable made of it.
    pub ready: Mutex<Weak<exec::Exec>>,
    /// If it is a clone: the nodes of the original, and their copies here.
    pub originals: HashMap<NodeId, NodeId>,
    /// References to the application's objects, by handle.
    pub objects: Mutex<HashMap<u64, u32>>,
}

static GRAPHS: Table<Graph> = Table::new();

/// Which graph a node is in.
static HOMES: Table<Weak<Graph>> = Table::new();

/// The graph behind a handle.
pub fn by_handle(handle: CUgraph) -> Result<Arc<Graph>, CUerror> {
    driver()?;
    GRAPHS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The graph that a node is in, and the node's name there.
pub fn home(handle: CUgraphNode) -> Result<(Arc<Graph>, NodeId), CUerror> {
    driver()?;
    let home = HOMES.get(handle as u64).and_then(|graph| graph.upgrade());
    Ok((home.ok_or(CUDA_ERROR_INVALID_VALUE)?, handle as u64))
}

impl Graph {
    /// A new graph without nodes.
    pub fn create() -> Arc<Self> {
        Self::keep(Dag::default(), HashMap::new(), false)
    }

    fn keep(dag: Dag<Node>, originals: HashMap<NodeId, NodeId>, is_child: bool) -> Arc<Self> {
        let graph = Arc::new(Self {
            handle: fresh(),
            dag: Mutex::new(dag),
            is_child: AtomicBool::new(is_child),
            ready: Mutex::default(),
            originals,
            objects: Mutex::default(),
        });
        for id in lock(&graph.dag).nodes() {
            HOMES.insert(*id, Arc::new(Arc::downgrade(&graph)));
        }
        GRAPHS.insert(graph.handle, Arc::clone(&graph));
        graph
    }

    /// A copy with nodes of its own, and child graphs of its own.
    pub fn copy(&self, is_child: bool) -> Arc<Self> {
        let dag = lock(&self.dag);
        let names: HashMap<_, _> = dag.nodes().iter().map(|id| (*id, fresh())).collect();
        let copied = dag.renamed(|id| names[&id], Node::copied);
        drop(dag);
        Self::keep(copied, names, is_child)
    }

    /// Whether it belongs to a child graph node.
    pub fn is_child(&self) -> bool {
        self.is_child.load(Relaxed)
    }

    /// It becomes a child graph as it is: from now on it is its node's.
    pub fn give_away(&self) -> CUresult {
        if self.is_child.swap(true, Relaxed) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// Whether it allocates or frees memory.
    pub fn has_memory(&self) -> bool {
        let dag = lock(&self.dag);
        dag.nodes().iter().any(|id| match dag.get(*id) {
            Some(Node::Alloc(_) | Node::Free(_)) => true,
            Some(Node::Child(child)) => child.has_memory(),
            _ => false,
        })
    }

    /// Adds a node that waits for others.
    pub fn add(self: &Arc<Self>, node: Node, after: &[NodeId]) -> Result<NodeId, CUerror> {
        let id = fresh();
        let added = lock(&self.dag).add(id, node, after);
        added.map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        HOMES.insert(id, Arc::new(Arc::downgrade(self)));
        Ok(id)
    }

    /// Takes a node out.
    pub fn remove(&self, id: NodeId) -> CUresult {
        let node = lock(&self.dag).remove(id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        HOMES.remove(id);
        if let Node::Child(child) = node {
            child.forget();
        }
        Ok(())
    }

    /// Forgets the graph, its nodes and its child graphs, and releases what it kept alive.
    pub fn forget(&self) {
        GRAPHS.remove(self.handle);
        let children: Vec<_> = {
            let dag = lock(&self.dag);
            let child = |id: &NodeId| match dag.get(*id) {
                Some(Node::Child(child)) => Some(Arc::clone(child)),
                _ => None,
            };
            dag.nodes().iter().for_each(|id| drop(HOMES.remove(*id)));
            dag.nodes().iter().filter_map(child).collect()
        };
        children.iter().for_each(|child| child.forget());
        // The destructors are the application's: no lock is held.
        let held = std::mem::take(&mut *lock(&self.objects));
        user_object::release_all(held);
    }

    /// Looks at a node.
    pub fn with<T>(
        &self,
        id: NodeId,
        look: impl FnOnce(&Node) -> Result<T, CUerror>,
    ) -> Result<T, CUerror> {
        look(lock(&self.dag).get(id).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Replaces a node by another of the same kind.
    pub fn replace(&self, id: NodeId, new: Node) -> CUresult {
        let mut dag = lock(&self.dag);
        let node = dag.get_mut(id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if node.kind() != new.kind() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        *node = new;
        Ok(())
    }
}

/// The names in an array of node handles.
pub fn names(nodes: In<CUgraphNode>, count: usize) -> Result<Vec<NodeId>, CUerror> {
    let nodes = nodes.all(count)?;
    Ok(nodes.into_iter().map(|node| node as u64).collect())
}

/// Whether a node is in the graph of this handle.
pub fn is_in(node: NodeId, graph: u64) -> bool {
    home(node as CUgraphNode).is_ok_and(|(home, _)| home.handle == graph)
}

/// The address of a node that allocates.
pub fn allocated_by(node: NodeId) -> Result<u64, CUerror> {
    let (graph, id) = home(node as CUgraphNode)?;
    graph.with(id, |node| match node {
        Node::Alloc(allocation) => Ok(allocation.address()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    })
}
