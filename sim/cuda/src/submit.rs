//! Submitting work: a node of the graph that the stream captures into, or work in the stream's queue.

use std::sync::Arc;

use gpushare_abi::{
    errors::{CUDA_ERROR_NOT_READY, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUerror, CUresult},
    types::CUgraph,
};

use crate::{
    capture::{self, sequences::Target},
    graph::{self, node::Node},
    handles::NodeId,
    memory::pool,
    stream::Stream,
    work::Work,
};

/// Submits a node: to the graph if the stream captures, else behind the stream's work.
pub fn submit(stream: &Arc<Stream>, node: Node) -> CUresult {
    let work = node.work();
    if capture_node(stream, || Ok(node))?.is_some() {
        return Ok(());
    }
    match work {
        Some(work) => stream.queue_behind(work, Vec::new()).map(|_| ()),
        None => Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
    }
}

/// Queues work that no graph can have.
pub fn queue(stream: &Arc<Stream>, work: Arc<dyn Work>) -> CUresult {
    let refuse = || Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    capture_node(stream, refuse)?;
    stream.queue_behind(work, Vec::new()).map(|_| ())
}

/// Adds a node if the stream captures, and returns its name.
pub fn capture_node(
    stream: &Stream,
    node: impl FnOnce() -> Result<Node, CUerror>,
) -> Result<Option<NodeId>, CUerror> {
    capture::extend(stream, |active| {
        let graph = graph::by_handle(active.graph as CUgraph)?;
        graph.add(node()?, &active.tails)
    })
}

/// Discards the graph of a capture, unless the application had created it.
pub fn discard(target: Target) {
    if target.own
        && let Ok(graph) = graph::by_handle(target.graph as CUgraph)
    {
        graph.forget();
    }
}

/// Waits for a stream (`cuStreamSynchronize`).
pub fn synchronize(stream: &Arc<Stream>) -> CUresult {
    capture::forbid_on(stream)?;
    stream.settle()?;
    pool::after_synchronisation();
    stream.tail().works()
}

/// Queries a stream (`cuStreamQuery`).
pub fn query(stream: &Arc<Stream>) -> CUresult {
    capture::forbid_on(stream)?;
    capture::forbid_unsafe()?;
    if stream.is_idle() {
        stream.tail().works()
    } else {
        Err(CUDA_ERROR_NOT_READY)
    }
}
