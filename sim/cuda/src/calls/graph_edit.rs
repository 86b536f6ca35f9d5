//! Looking at a graph's shape and changing it: nodes, edges, clones.

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUresult};
use gpushare_abi::types::{CUgraph, CUgraphEdgeData, CUgraphNode};

use crate::c::{In, Out, Text};
use crate::driver::driver;
use crate::faces::faces;
use crate::graph::node::Node;
use crate::graph::{Graph, by_handle, home, names};
use crate::handles::{NodeId, lock};

/// An edge without ports; every edge of the simulator is one.
const PLAIN_EDGE: CUgraphEdgeData = CUgraphEdgeData {
    from_port: 0,
    to_port: 0,
    type_: 0,
    reserved: [0; 5],
};

/// Lists nodes the driver's way: without room, how many there are; with room, as many as fit, then NULL.
fn list(found: &[NodeId], out: Out<CUgraphNode>, count: Out<usize>) -> CUresult {
    let room = count.input().get()?;
    if out.is_null() {
        return count.set(found.len());
    }
    for index in 0..room {
        let node = found
            .get(index)
            .map_or(std::ptr::null_mut(), |id| *id as CUgraphNode);
        out.set_at(index, node)?;
    }
    count.set(found.len().min(room))
}

/// Lists edges the same way, one array for each end.
fn list_edges(
    found: &[(NodeId, NodeId)],
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> CUresult {
    if from.is_null() != to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let room = count.input().get()?;
    if !from.is_null() && !data.is_null() {
        for index in 0..found.len().min(room) {
            data.set_at(index, PLAIN_EDGE)?;
        }
    }
    let (starts, ends): (Vec<_>, Vec<_>) = found.iter().copied().unzip();
    list(&starts, from, count)?;
    if from.is_null() {
        return Ok(());
    }
    count.set(room)?;
    list(&ends, to, count)
}

/// Pairs of nodes that are all in one graph.
fn pairs(
    graph: &Graph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Result<Vec<(NodeId, NodeId)>, gpushare_abi::errors::CUerror> {
    let (from, to) = (names(from, count)?, names(to, count)?);
    let dag = lock(&graph.dag);
    if from.iter().chain(&to).any(|id| dag.get(*id).is_none()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(from.into_iter().zip(to).collect())
}

fn connect(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) -> CUresult {
    let graph = by_handle(graph)?;
    let edges = pairs(&graph, from, to, count)?;
    let connected = lock(&graph.dag).connect(&edges);
    connected.map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

fn disconnect(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> CUresult {
    let graph = by_handle(graph)?;
    let edges = pairs(&graph, from, to, count)?;
    let disconnected = lock(&graph.dag).disconnect(&edges);
    disconnected.map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

fn edges(graph: CUgraph) -> Result<Vec<(NodeId, NodeId)>, gpushare_abi::errors::CUerror> {
    Ok(lock(&by_handle(graph)?.dag).edges())
}

fn neighbours(
    node: CUgraphNode,
    later: bool,
) -> Result<Vec<NodeId>, gpushare_abi::errors::CUerror> {
    let (graph, id) = home(node)?;
    let dag = lock(&graph.dag);
    let found = if later {
        dag.after(id)
    } else {
        dag.before(id).map(<[_]>::to_vec)
    };
    found.ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn list_with_data(
    found: &[NodeId],
    out: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> CUresult {
    let room = count.input().get()?;
    if !out.is_null() && !data.is_null() {
        for index in 0..found.len().min(room) {
            data.set_at(index, PLAIN_EDGE)?;
        }
    }
    list(found, out, count)
}

faces! {
    "cuGraphCreate" 10000 cuGraphCreate (out: Out<CUgraph>, flags: u32) {
        driver()?;
        out.check()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(Graph::create().handle as CUgraph)
    }
    "cuGraphDestroy" 10000 cuGraphDestroy (graph: CUgraph) {
        let graph = by_handle(graph)?;
        if graph.is_child() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        graph.forget();
        Ok(())
    }
    "cuGraphDestroyNode" 10000 cuGraphDestroyNode (node: CUgraphNode) {
        let (graph, id) = home(node)?;
        let memory = graph.with(id, |node| Ok(matches!(node, Node::Alloc(_) | Node::Free(_))))?;
        if memory {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        graph.remove(id)
    }
    "cuGraphClone" 10000 cuGraphClone (out: Out<CUgraph>, original: CUgraph) {
        let original = by_handle(original)?;
        out.check()?;
        if !original.may_be_copied() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        out.set(original.copy(false).handle as CUgraph)
    }
    "cuGraphNodeFindInClone" 10000 cuGraphNodeFindInClone (out: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph) {
        let clone = by_handle(clone)?;
        out.check()?;
        let node = clone.originals.get(&(original as u64)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.set(*node as CUgraphNode)
    }
    "cuGraphNodeGetType" 10000 cuGraphNodeGetType (node: CUgraphNode, out: Out<u32>) {
        let (graph, id) = home(node)?;
        out.set(graph.with(id, |node| Ok(node.kind()))?)
    }
    "cuGraphGetNodes" 10000 cuGraphGetNodes (graph: CUgraph, out: Out<CUgraphNode>, count: Out<usize>) {
        let nodes = lock(&by_handle(graph)?.dag).nodes().to_vec();
        list(&nodes, out, count)
    }
    "cuGraphGetRootNodes" 10000 cuGraphGetRootNodes (graph: CUgraph, out: Out<CUgraphNode>, count: Out<usize>) {
        let roots = lock(&by_handle(graph)?.dag).roots();
        list(&roots, out, count)
    }
    "cuGraphGetEdges" 10000 cuGraphGetEdges (graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>) {
        list_edges(&edges(graph)?, from, to, Out(std::ptr::null_mut()), count)
    }
    "cuGraphGetEdges" 12030 cuGraphGetEdges_v2 (graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, data: Out<CUgraphEdgeData>, count: Out<usize>) {
        list_edges(&edges(graph)?, from, to, data, count)
    }
    "cuGraphNodeGetDependencies" 10000 cuGraphNodeGetDependencies (node: CUgraphNode, out: Out<CUgraphNode>, count: Out<usize>) {
        list(&neighbours(node, false)?, out, count)
    }
    "cuGraphNodeGetDependencies" 12030 cuGraphNodeGetDependencies_v2 (node: CUgraphNode, out: Out<CUgraphNode>, data: Out<CUgraphEdgeData>, count: Out<usize>) {
        list_with_data(&neighbours(node, false)?, out, data, count)
    }
    "cuGraphNodeGetDependentNodes" 10000 cuGraphNodeGetDependentNodes (node: CUgraphNode, out: Out<CUgraphNode>, count: Out<usize>) {
        list(&neighbours(node, true)?, out, count)
    }
    "cuGraphNodeGetDependentNodes" 12030 cuGraphNodeGetDependentNodes_v2 (node: CUgraphNode, out: Out<CUgraphNode>, data: Out<CUgraphEdgeData>, count: Out<usize>) {
        list_with_data(&neighbours(node, true)?, out, data, count)
    }
    "cuGraphAddDependencies" 10000 cuGraphAddDependencies (graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) {
        connect(graph, from, to, count)
    }
    "cuGraphAddDependencies" 12030 cuGraphAddDependencies_v2 (graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, data: In<CUgraphEdgeData>, count: usize) {
        let _ = data;
        connect(graph, from, to, count)
    }
    "cuGraphRemoveDependencies" 10000 cuGraphRemoveDependencies (graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) {
        disconnect(graph, from, to, count)
    }
    "cuGraphRemoveDependencies" 12030 cuGraphRemoveDependencies_v2 (graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, data: In<CUgraphEdgeData>, count: usize) {
        let _ = data;
        disconnect(graph, from, to, count)
    }
    "cuGraphDebugDotPrint" 11030 cuGraphDebugDotPrint (graph: CUgraph, path: Text, flags: u32) {
        let _ = flags;
        let graph = by_handle(graph)?;
        let dag = lock(&graph.dag);
        let mut dot = String::from("digraph dot {\n");
        for id in dag.nodes() {
            let kind = dag.get(*id).map_or(0, Node::kind);
            dot += &format!("  node{id:x} [label=\"kind {kind}\"];\n");
        }
        for (from, to) in dag.edges() {
            dot += &format!("  node{from:x} -> node{to:x};\n");
        }
        std::fs::write(path.get()?, dot + "}\n")
            .map_err(|_| gpushare_abi::errors::CUDA_ERROR_OPERATING_SYSTEM)
    }
}
