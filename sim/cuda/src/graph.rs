//! Graphs: work as nodes and edges, made by hand or by capturing streams, run again and again.
//!
//! * [`dag`]: nodes and edges as data.
//! * [`node`]: what a node does, and its parameters.
//! * `capture::sequences`: the rules of stream capture; `capture` applies them.
//! * `add`, `params`, `edit`: the calls that make and change graphs.
//! * [`conditional`]: nodes whose graphs run or not.
//! * [`exec`]: graphs ready to launch; `exec_params` changes them.
//! * `graph_memory`: memory that a graph allocates and frees.
//! * `user_object`: the application's objects that graphs keep alive.
//!
//! A graph's handle and its nodes' handles name it until it is destroyed. A child graph belongs to its node.
//! A launch queues the nodes in one stream, one after the other: every order the driver may choose gives
//! the same result as this one.

pub mod conditional;
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
use user_object::Held;

/// A graph.
#[derive(Debug)]
pub struct Graph {
    /// The graph's handle.
    pub handle: u64,
    /// The graph's nodes and edges.
    pub dag: Mutex<Dag<Node>>,
    /// True for a graph that belongs to a node.
    is_child: AtomicBool,
    /// The latest executable made of it.
    pub ready: Mutex<Weak<exec::Exec>>,
    /// In a clone, the nodes of the original and their copies here.
    pub originals: HashMap<NodeId, NodeId>,
    /// References to the application's objects.
    pub objects: Mutex<Held>,
}

static GRAPHS: Table<Graph> = Table::new();

/// The graph of each node.
static HOMES: Table<Weak<Graph>> = Table::new();

/// Returns the graph of a handle.
pub fn by_handle(handle: CUgraph) -> Result<Arc<Graph>, CUerror> {
    driver()?;
    GRAPHS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Returns the graph that contains a node, and the node's name there.
pub fn home(handle: CUgraphNode) -> Result<(Arc<Graph>, NodeId), CUerror> {
    driver()?;
    let home = HOMES.get(handle as u64).and_then(|graph| graph.upgrade());
    Ok((home.ok_or(CUDA_ERROR_INVALID_VALUE)?, handle as u64))
}

impl Graph {
    /// Creates a graph without nodes.
    pub fn create() -> Arc<Self> {
        Self::keep(Dag::default(), HashMap::new(), Held::default(), false)
    }

    /// Creates a graph that belongs to a node.
    pub fn create_inside() -> Arc<Self> {
        Self::keep(Dag::default(), HashMap::new(), Held::default(), true)
    }

    fn keep(
        dag: Dag<Node>,
        originals: HashMap<NodeId, NodeId>,
        objects: Held,
        is_child: bool,
    ) -> Arc<Self> {
        let graph = Arc::new(Self {
            handle: fresh(),
            dag: Mutex::new(dag),
            is_child: AtomicBool::new(is_child),
            ready: Mutex::default(),
            originals,
            objects: Mutex::new(objects),
        });
        for id in lock(&graph.dag).nodes() {
            HOMES.insert(*id, Arc::new(Arc::downgrade(&graph)));
        }
        GRAPHS.insert(graph.handle, Arc::clone(&graph));
        graph
    }

    /// Returns a copy with its own nodes, child graphs and references.
    pub fn copy(&self, is_child: bool) -> Arc<Self> {
        let dag = lock(&self.dag);
        let names: HashMap<_, _> = dag.nodes().iter().map(|id| (*id, fresh())).collect();
        let copied = dag.renamed(|id| names[&id], Node::copied);
        drop(dag);
        let objects = lock(&self.objects).copied();
        Self::keep(copied, names, objects, is_child)
    }

    /// Returns true if the graph belongs to a node.
    pub fn is_child(&self) -> bool {
        self.is_child.load(Relaxed)
    }

    /// Makes the graph a child graph without a copy: from now on it belongs to a node.
    pub fn give_away(&self) -> CUresult {
        if self.is_child.swap(true, Relaxed) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// Returns true if a node of the graph allocates or frees memory.
    pub fn has_memory(&self) -> bool {
        self.has(&|node| matches!(node, Node::Alloc(_) | Node::Free(_)))
    }

    /// Returns true if the graph may be cloned, and copied into a child graph.
    pub fn may_be_copied(&self) -> bool {
        let fixed =
            |node: &Node| matches!(node, Node::Alloc(_) | Node::Free(_) | Node::Conditional(_));
        !self.has(&fixed)
    }

    /// Returns true if the graph, or a graph in it, has a node that `which` accepts.
    fn has(&self, which: &dyn Fn(&Node) -> bool) -> bool {
        let dag = lock(&self.dag);
        let mut nodes = dag.nodes().iter().filter_map(|id| dag.get(*id));
        nodes.any(|node| which(node) || node.inside().iter().any(|graph| graph.has(which)))
    }

    /// Returns true if a graph is this one or belongs to a node in it.
    pub fn contains(&self, graph: u64) -> bool {
        let is_inside = |node: &Node| node.inside().iter().any(|inside| inside.handle == graph);
        self.handle == graph || self.has(&is_inside)
    }

    /// Returns references to all objects that the graph and the graphs in it keep alive.
    pub fn objects_inside(&self) -> Held {
        let mut held = lock(&self.objects).copied();
        let dag = lock(&self.dag);
        for node in dag.nodes().iter().filter_map(|id| dag.get(*id)) {
            let inside = node.inside().iter();
            inside.for_each(|graph| held.take_over(graph.objects_inside()));
        }
        held
    }

    /// Adds a node that waits for others.
    pub fn add(self: &Arc<Self>, node: Node, after: &[NodeId]) -> Result<NodeId, CUerror> {
        let id = fresh();
        let added = lock(&self.dag).add(id, node, after);
        added.map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        HOMES.insert(id, Arc::new(Arc::downgrade(self)));
        Ok(id)
    }

    /// Removes a node.
    pub fn remove(&self, id: NodeId) -> CUresult {
        let node = lock(&self.dag).remove(id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        HOMES.remove(id);
        node.forget();
        Ok(())
    }

    /// Destroys the graph, its nodes and its child graphs, and releases the objects that it kept alive.
    pub fn forget(&self) {
        GRAPHS.remove(self.handle);
        let nodes: Vec<_> = {
            let dag = lock(&self.dag);
            dag.nodes().iter().for_each(|id| drop(HOMES.remove(*id)));
            let nodes = dag.nodes().iter().filter_map(|id| dag.get(*id).cloned());
            nodes.collect()
        };
        nodes.iter().for_each(Node::forget);
        conditional::forget_handles(self.handle);
        // The destructors are the application's: no lock is held.
        let held = std::mem::take(&mut *lock(&self.objects));
        drop(held);
    }

    /// Calls a function with a node.
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

/// Returns the names in an array of node handles.
pub fn names(nodes: In<CUgraphNode>, count: usize) -> Result<Vec<NodeId>, CUerror> {
    let nodes = nodes.all(count)?;
    Ok(nodes.into_iter().map(|node| node as u64).collect())
}

/// Returns true if a node is in the graph of this handle.
pub fn is_in(node: NodeId, graph: u64) -> bool {
    home(node as CUgraphNode).is_ok_and(|(home, _)| home.handle == graph)
}

/// Returns the address of a node that allocates.
pub fn allocated_by(node: NodeId) -> Result<u64, CUerror> {
    let (graph, id) = home(node as CUgraphNode)?;
    graph.with(id, |node| match node {
        Node::Alloc(allocation) => Ok(allocation.address()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    })
}
