//! Graphs ready to launch: a copy of a graph in an order to run it in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use gpushare_abi::errors::{
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUDA_ERROR_INVALID_VALUE, CUerror, CUresult,
};
use gpushare_abi::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode,
    CUstream,
};

use super::dag::NodeId;
use super::node::Node;
use super::{Graph, by_handle};
use crate::c::{Out, put_text};
use crate::capture;
use crate::driver::driver;
use crate::faces::faces;
use crate::handles::{Table, fresh, lock};
use crate::stream::{self, DefaultStream, Mark, Stream};
use crate::task::Task;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE: u64 = 1;
/// All flags there are: also upload, device launch, node priorities.
const FLAGS: u64 = 0xf;

/// A graph ready to launch.
#[derive(Debug)]
pub struct Exec {
    flags: u64,
    steps: Mutex<Vec<Step>>,
    uploaded: AtomicBool,
    /// Its latest launch; two launches never run at once.
    latest: Mutex<Option<Mark>>,
}

/// A node in its place.
#[derive(Clone, Debug)]
pub struct Step {
    /// The node of the graph this came from.
    pub id: NodeId,
    /// What it does.
    pub node: Node,
    /// Whether it does it.
    pub enabled: bool,
    /// For a child graph: its steps.
    pub inner: Vec<Step>,
    /// The steps it waits for, by place.
    after: Vec<usize>,
}

static EXECS: Table<Exec> = Table::new();

/// The graph behind a handle.
pub fn exec(handle: CUgraphExec) -> Result<Arc<Exec>, CUerror> {
    driver()?;
    EXECS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// A graph's nodes in an order to run them in; a cycle is an invalid value.
pub fn steps(graph: &Graph) -> Result<Vec<Step>, CUerror> {
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
        let inner = if let Node::Child(child) = &node {
            self::steps(child)?
        } else {
            Vec::new()
        };
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

fn tasks(steps: &[Step], into: &mut Vec<Task>) {
    for step in steps.iter().filter(|step| step.enabled) {
        match step.node.task() {
            Some(Task::Nothing) => {}
            Some(task) => into.push(task),
            None => tasks(&step.inner, into),
        }
    }
}

impl Exec {
    /// Changes the step that a node became, wherever it is.
    pub fn change(&self, id: NodeId, change: impl FnOnce(&mut Step) -> CUresult) -> CUresult {
        fn find(steps: &mut [Step], id: NodeId) -> Option<&mut Step> {
            let place = steps.iter().position(|step| step.id == id);
            match place {
                Some(place) => steps.get_mut(place),
                None => steps.iter_mut().find_map(|step| find(&mut step.inner, id)),
            }
        }
        let mut steps = lock(&self.steps);
        change(find(&mut steps, id).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    fn launch(&self, stream: &Arc<Stream>) -> CUresult {
        let steps = lock(&self.steps);
        if capture::is_capturing(stream) {
            let child = || Ok(Node::Child(chain(&steps)?));
            return capture::add_node(stream, child).map(|_| ());
        }
        self.allocate(&steps)?;
        let mut all = Vec::new();
        tasks(&steps, &mut all);
        drop(steps);
        let mut latest = lock(&self.latest);
        let after = latest
            .take()
            .filter(|mark| !mark.is_done())
            .into_iter()
            .collect();
        *latest = Some(stream.submit(Task::All(all.into()), after)?);
        Ok(())
    }

    /// Takes the memory of the graph's allocations: all of it or none.
    fn allocate(&self, steps: &[Step]) -> CUresult {
        let allocations = steps.iter().filter_map(|step| match &step.node {
            Node::Alloc(allocation) => Some(allocation),
            _ => None,
        });
        for allocation in allocations.clone() {
            if allocation.is_live() && self.flags & AUTO_FREE == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            allocation.back()?;
        }
        for allocation in allocations {
            let frees = |step: &Step| matches!(step.node, Node::Free(address) if address == allocation.address());
            allocation.begin(steps.iter().any(frees));
        }
        Ok(())
    }

    /// Takes another graph's parameters over, if it has the same shape. Else: the driver's reason, and
    /// the node that differs.
    fn update(&self, graph: &Graph) -> Result<(), (u32, NodeId)> {
        const ERROR: u32 = 1;
        const TOPOLOGY_CHANGED: u32 = 2;
        const NODE_TYPE_CHANGED: u32 = 3;
        let new = steps(graph).map_err(|_| (ERROR, 0))?;
        let mut old = lock(&self.steps);
        if old.len() != new.len() {
            return Err((TOPOLOGY_CHANGED, 0));
        }
        for (before, now) in old.iter().zip(&new) {
            if before.node.kind() != now.node.kind() {
                return Err((NODE_TYPE_CHANGED, now.id));
            }
            if before.after != now.after || before.inner.len() != now.inner.len() {
                return Err((TOPOLOGY_CHANGED, now.id));
            }
        }
        for (before, now) in old.iter_mut().zip(new) {
            before.node = now.node;
            before.inner = now.inner;
        }
        Ok(())
    }
}

/// A graph that does these steps one after the other; it belongs to a child graph node.
fn chain(steps: &[Step]) -> Result<Arc<Graph>, CUerror> {
    let graph = Graph::create();
    let mut after = Vec::new();
    for step in steps {
        after = vec![graph.add(step.node.copied(), &after)?];
    }
    let child = graph.copy(true);
    graph.forget();
    Ok(child)
}

fn instantiate(out: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> CUresult {
    let graph = by_handle(graph)?;
    out.check()?;
    if flags & !FLAGS != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let steps = Mutex::new(steps(&graph)?);
    let handle = fresh();
    let (uploaded, latest) = (AtomicBool::new(false), Mutex::default());
    EXECS.insert(
        handle,
        Arc::new(Exec {
            flags,
            steps,
            uploaded,
            latest,
        }),
    );
    out.set(handle as CUgraphExec)
}

/// Instantiates with the first two versions' way to tell errors.
fn instantiate_with_log(
    out: Out<CUgraphExec>,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    log: Out<std::ffi::c_char>,
    room: usize,
) -> CUresult {
    node.set_if_wanted(std::ptr::null_mut());
    if !log.is_null() && room > 0 {
        put_text(log, room.min(1 << 20) as i32, "")?;
    }
    instantiate(out, graph, 0)
}

fn instantiate_with_params(
    default: DefaultStream,
    out: Out<CUgraphExec>,
    graph: CUgraph,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> CUresult {
    const SUCCESS: u32 = 0;
    const ERROR: u32 = 1;
    const UPLOAD: u64 = 2;
    let mut given = params.input().get()?;
    let answer = instantiate(out, graph, given.flags);
    if answer.is_ok() && given.flags & UPLOAD != 0 {
        stream::by_handle(default, given.hUploadStream)?;
    }
    given.hErrNode_out = std::ptr::null_mut();
    given.result_out = if answer.is_ok() { SUCCESS } else { ERROR };
    params.set(given)?;
    answer
}

fn update(handle: CUgraphExec, graph: CUgraph) -> Result<Result<(), (u32, NodeId)>, CUerror> {
    let (exec, graph) = (exec(handle)?, by_handle(graph)?);
    Ok(exec.update(&graph))
}

faces! {
    "cuGraphInstantiate" 10000 cuGraphInstantiate
        (out: Out<CUgraphExec>, graph: CUgraph, node: Out<CUgraphNode>, log: Out<std::ffi::c_char>, room: usize) {
        instantiate_with_log(out, graph, node, log, room)
    }
    "cuGraphInstantiate" 11000 cuGraphInstantiate_v2
        (out: Out<CUgraphExec>, graph: CUgraph, node: Out<CUgraphNode>, log: Out<std::ffi::c_char>, room: usize) {
        instantiate_with_log(out, graph, node, log, room)
    }
    "cuGraphInstantiateWithFlags" 11040 cuGraphInstantiateWithFlags (out: Out<CUgraphExec>, graph: CUgraph, flags: u64) {
        instantiate(out, graph, flags)
    }
    "cuGraphInstantiateWithParams" 12000 cuGraphInstantiateWithParams
        (out: Out<CUgraphExec>, graph: CUgraph, params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>) / cuGraphInstantiateWithParams_ptsz 12000 |default| {
        instantiate_with_params(default, out, graph, params)
    }
    "cuGraphExecGetFlags" 12000 cuGraphExecGetFlags (handle: CUgraphExec, out: Out<u64>) {
        out.set(exec(handle)?.flags)
    }
    "cuGraphUpload" 11010 cuGraphUpload (handle: CUgraphExec, stream: CUstream) / cuGraphUpload_ptsz 11010 |default| {
        let exec = exec(handle)?;
        stream::by_handle(default, stream)?;
        exec.uploaded.store(true, Relaxed);
        Ok(())
    }
    "cuGraphLaunch" 10000 cuGraphLaunch (handle: CUgraphExec, stream: CUstream) / cuGraphLaunch_ptsz 10000 |default| {
        let exec = exec(handle)?;
        exec.launch(&stream::by_handle(default, stream)?)
    }
    "cuGraphExecDestroy" 10000 cuGraphExecDestroy (handle: CUgraphExec) {
        driver()?;
        EXECS.remove(handle as u64).map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
    "cuGraphExecUpdate" 10020 cuGraphExecUpdate (handle: CUgraphExec, graph: CUgraph, node: Out<CUgraphNode>, reason: Out<u32>) {
        let result = update(handle, graph)?;
        let (code, id) = result.err().unwrap_or((0, 0));
        node.set_if_wanted(id as CUgraphNode);
        reason.set(code)?;
        result.map_err(|_| CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    }
    "cuGraphExecUpdate" 12000 cuGraphExecUpdate_v2 (handle: CUgraphExec, graph: CUgraph, info: Out<CUgraphExecUpdateResultInfo>) {
        let result = update(handle, graph)?;
        let (code, id) = result.err().unwrap_or((0, 0));
        let null = std::ptr::null_mut();
        info.set(CUgraphExecUpdateResultInfo { result: code, errorNode: id as CUgraphNode, errorFromNode: null })?;
        result.map_err(|_| CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    }
}
