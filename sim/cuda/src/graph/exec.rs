//! Graphs ready to launch: a copy of a graph in an order to run it in. `exec_calls` is the interface.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::{Graph, conditional, node::Node, user_object::Held};
use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror, CUresult},
    types::CUgraphExec,
};

use crate::{
    context,
    driver::driver,
    handles::{NodeId, Table, fresh, lock},
    memory::graph_memory::{self, Allocation, Running},
    stream::{Mark, Stream},
    work::{All, Work},
};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE: u64 = 1;
/// All flags there are: also upload, device launch, node priorities.
const FLAGS: u64 = 0xf;

/// A graph ready to launch.
#[derive(Debug)]
pub struct Exec {
    /// The flags of the instantiation.
    pub flags: u64,
    steps: Mutex<Vec<Step>>,
    /// The objects that the executable keeps alive.
    objects: Mutex<Arc<Held>>,
    /// The latest launch; two launches of an executable never run at the same time.
    latest: Mutex<Option<Mark>>,
}

/// A node in its place.
#[derive(Clone, Debug)]
pub struct Step {
    /// The node of the graph from which it was made.
    pub id: NodeId,
    /// The contents of the node.
    pub node: Node,
    /// False if the node was disabled.
    pub enabled: bool,
    /// For a node that holds graphs: the steps of each.
    inner: Vec<Vec<Step>>,
    /// The steps it waits for, by place.
    after: Vec<usize>,
}

static EXECS: Table<Exec> = Table::new();

/// Returns the executable of a handle.
pub fn exec(handle: CUgraphExec) -> Result<Arc<Exec>, CUerror> {
    driver()?;
    EXECS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Destroys an executable; its queued work is still done.
pub fn destroy(handle: CUgraphExec) -> CUresult {
    driver()?;
    let known = EXECS.remove(handle as u64);
    known.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Returns a graph's nodes in an order to run them in; a cycle is an invalid value, as is a handle that no node has.
fn steps(graph: &Graph, is_conditional: bool) -> Result<Vec<Step>, CUerror> {
    if conditional::any_unused(graph.handle) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let dag = lock(&graph.dag);
    let order = dag.sorted().map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let places: HashMap<_, _> = order
        .iter()
        .enumerate()
        .map(|(place, id)| (*id, place))
        .collect();
    let mut steps = Vec::with_capacity(order.len());
    for id in order {
        let node = dag.get(id).ok_or(CUDA_ERROR_INVALID_VALUE)?.clone();
        if is_conditional && !node.may_be_conditional() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let (Node::Kernel(launch), Ok(context)) = (&node, context::current()) {
            context.load_code(launch.function.handle)?;
        }
        let is_conditional = is_conditional || matches!(node, Node::Conditional(_));
        let inside = node.inside().iter();
        let inner = inside.map(|graph| self::steps(graph, is_conditional));
        let inner = inner.collect::<Result<_, _>>()?;
        let mut after: Vec<_> = dag
            .before(id)
            .unwrap_or_default()
            .iter()
            .map(|id| places[id])
            .collect();
        after.sort_unstable();
        steps.push(Step {
            id,
            node,
            enabled: true,
            inner,
            after,
        });
    }
    Ok(steps)
}

fn work(steps: &[Step], into: &mut Vec<Arc<dyn Work>>) {
    for step in steps.iter().filter(|step| step.enabled) {
        match (step.node.work(), &step.node) {
            (Some(one), _) => into.push(one),
            (None, Node::Conditional(conditional)) => {
                let chosen = conditional.chosen().and_then(|body| step.inner.get(body));
                chosen.into_iter().for_each(|body| work(body, into));
            }
            (None, _) => step.inner.iter().for_each(|child| work(child, into)),
        }
    }
}

/// Returns all steps, including those of the graphs inside.
fn flat(steps: &[Step]) -> Vec<&Step> {
    let mut all = Vec::new();
    for step in steps {
        all.push(step);
        step.inner.iter().for_each(|inner| all.extend(flat(inner)));
    }
    all
}

fn allocations(steps: &[Step]) -> Vec<&Arc<Allocation>> {
    flat(steps)
        .into_iter()
        .filter_map(|step| match &step.node {
            Node::Alloc(allocation) => Some(allocation),
            _ => None,
        })
        .collect()
}

impl Exec {
    /// Makes an executable of a graph; returns its handle. A graph that allocates has at most one executable at a
    /// time.
    pub fn instantiate(graph: &Graph, flags: u64) -> Result<u64, CUerror> {
        if flags & !FLAGS != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut ready = lock(&graph.ready);
        if graph.has_memory() && ready.upgrade().is_some() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let exec = Arc::new(Self {
            flags,
            steps: Mutex::new(steps(graph, false)?),
            objects: Mutex::new(Arc::new(graph.objects_inside())),
            latest: Mutex::default(),
        });
        *ready = Arc::downgrade(&exec);
        let handle = fresh();
        EXECS.insert(handle, exec);
        Ok(handle)
    }

    /// Changes the step that a node became, wherever it is.
    pub fn change(&self, id: NodeId, change: impl FnOnce(&mut Step) -> CUresult) -> CUresult {
        fn find(steps: &mut [Step], id: NodeId) -> Option<&mut Step> {
            let place = steps.iter().position(|step| step.id == id);
            match place {
                Some(place) => steps.get_mut(place),
                None => {
                    let mut inner = steps.iter_mut().flat_map(|step| &mut step.inner);
                    inner.find_map(|steps| find(steps, id))
                }
            }
        }
        let mut steps = lock(&self.steps);
        change(find(&mut steps, id).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Returns the child graph node that a launch in a capturing stream becomes.
    pub fn as_child(&self) -> Result<Node, CUerror> {
        Ok(Node::Child(chain(&lock(&self.steps))?))
    }

    /// Queues all steps in a stream that does not capture.
    pub fn launch(&self, stream: &Arc<Stream>) -> CUresult {
        let steps = lock(&self.steps);
        let running = self.allocate(&steps, stream.handle)?;
        let mut all = Vec::new();
        work(&steps, &mut all);
        all.push(Arc::<Held>::clone(&lock(&self.objects)));
        drop(steps);
        let mut latest = lock(&self.latest);
        let after = latest
            .take()
            .filter(|mark| !mark.is_done())
            .into_iter()
            .collect();
        let end = stream.queue_behind(Arc::new(All(all)), after)?;
        running.iter().for_each(|one| one.until(&end));
        *latest = Some(end);
        Ok(())
    }

    /// Allocates the memory for a launch in advance.
    pub fn upload(&self) -> CUresult {
        let steps = lock(&self.steps);
        graph_memory::upload(&allocations(&steps))
    }

    /// Allocates the memory of the graph's allocations, and marks them as in use.
    fn allocate(&self, steps: &[Step], stream: u64) -> Result<Vec<Arc<Running>>, CUerror> {
        let all = allocations(steps);
        if self.flags & AUTO_FREE == 0 && all.iter().any(|one| one.is_live()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let freed = |address| {
            let frees = |step: &&Step| matches!(step.node, Node::Free(freed) if freed == address);
            flat(steps).iter().any(frees)
        };
        graph_memory::launch(&all, freed, stream)
    }

    /// Replaces the parameters by those of another graph with the same shape. Otherwise returns the driver's reason,
    /// and the node that differs.
    pub fn update(&self, graph: &Graph) -> Result<(), Different> {
        let new = steps(graph, false).map_err(|_| (ERROR, 0))?;
        let mut old = lock(&self.steps);
        same_shape(&old, &new)?;
        adopt(&mut old, new);
        drop(old);
        let objects = Arc::new(graph.objects_inside());
        let before = std::mem::replace(&mut *lock(&self.objects), objects);
        drop(before);
        Ok(())
    }
}

/// The reason why an update was refused: a `CUgraphExecUpdateResult`, and the node, or 0.
pub type Different = (u32, NodeId);

const ERROR: u32 = 1;
const TOPOLOGY_CHANGED: u32 = 2;
const NODE_TYPE_CHANGED: u32 = 3;

fn same_shape(old: &[Step], new: &[Step]) -> Result<(), Different> {
    if old.len() != new.len() {
        return Err((TOPOLOGY_CHANGED, 0));
    }
    for (before, now) in old.iter().zip(new) {
        if before.node.kind() != now.node.kind() {
            return Err((NODE_TYPE_CHANGED, now.id));
        }
        if before.after != now.after {
            return Err((TOPOLOGY_CHANGED, now.id));
        }
        if before.inner.len() != now.inner.len() {
            return Err((TOPOLOGY_CHANGED, now.id));
        }
        for (before, now) in before.inner.iter().zip(&now.inner) {
            same_shape(before, now)?;
        }
    }
    Ok(())
}

/// Replaces the contents of nodes. Their names, and whether they are enabled, stay.
fn adopt(old: &mut [Step], new: Vec<Step>) {
    for (before, now) in old.iter_mut().zip(new) {
        before.node = now.node;
        let inner = before.inner.iter_mut().zip(now.inner);
        inner.for_each(|(before, now)| adopt(before, now));
    }
}

impl Step {
    /// Replaces the contents by a graph's, if it has the shape of this step's child graph.
    pub fn adopt_child(&mut self, graph: &Graph) -> CUresult {
        let new = steps(graph, false)?;
        let own = self.inner.first_mut().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        same_shape(own, &new).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        adopt(own, new);
        Ok(())
    }
}

/// Creates a graph that does these steps one after the other; it belongs to a child graph node.
fn chain(steps: &[Step]) -> Result<Arc<Graph>, CUerror> {
    let is_conditional = |step: &&Step| matches!(step.node, Node::Conditional(_));
    if flat(steps).iter().any(is_conditional) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let graph = Graph::create();
    let mut after = Vec::new();
    for step in steps {
        after = vec![graph.add(step.node.copied(), &after)?];
    }
    let child = graph.copy(true);
    graph.forget();
    Ok(child)
}
