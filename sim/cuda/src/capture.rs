//! Stream capture: what is issued in a capturing stream becomes a node of a graph instead of work.
//!
//! [`crate::graph::sequences`] has the rules; here they meet streams, events and threads. While nothing
//! captures, all of it costs one relaxed load.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use gpushare_abi::errors::{
    CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUerror,
    CUresult,
};
use gpushare_abi::types::{
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_ACTIVE,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_NONE, CUgraph, CUgraphEdgeData,
    CUgraphNode, CUstream,
};

use crate::c::{In, Out};
use crate::context::Context;
use crate::driver::driver;
use crate::event::Event;
use crate::faces::faces;
use crate::graph::node::Node;
use crate::graph::sequences::{Active, Ended, Sequences, StreamFacts};
use crate::graph::{self, Graph};
use crate::handles::lock;
use crate::stream::{self, DefaultStream, Stream};
use crate::task::Task;

pub use crate::graph::sequences::CaptureMark;

static SEQUENCES: Mutex<Sequences> = Mutex::new(Sequences::new());

/// Sequences that run; a hint that spares the lock.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's interaction mode.
    static MODE: Cell<u32> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Relaxed)
    };
}

fn this_thread() -> u64 {
    THREAD.with(|number| *number)
}

fn facts(stream: &Stream) -> StreamFacts {
    StreamFacts {
        stream: stream.handle,
        context: stream.context,
        blocking: !stream.is_non_blocking(),
    }
}

/// Runs a check if anything captures.
fn checked(check: impl FnOnce(&mut Sequences) -> CUresult) -> CUresult {
    if RUNNING.load(Relaxed) == 0 {
        return Ok(());
    }
    check(&mut lock(&SEQUENCES))
}

/// Makes a node of a task if the stream captures; false if it is to be done as ever.
pub fn add(stream: &Arc<Stream>, task: &Task) -> Result<bool, CUerror> {
    if RUNNING.load(Relaxed) == 0 {
        return Ok(false);
    }
    Ok(add_node(stream, || Node::of_task(task))?.is_some())
}

/// Adds a node if the stream captures, and tells its name.
pub fn add_node(
    stream: &Arc<Stream>,
    node: impl FnOnce() -> Result<Node, CUerror>,
) -> Result<Option<u64>, CUerror> {
    if RUNNING.load(Relaxed) == 0 {
        return Ok(None);
    }
    let mut sequences = lock(&SEQUENCES);
    if stream.is_legacy {
        sequences.use_legacy(stream.context)?;
    }
    let Some(active) = sequences.active(stream.handle)? else {
        return Ok(None);
    };
    let graph = graph::by_handle(active.graph as CUgraph)?;
    let id = graph.add(node()?, &active.tails)?;
    sequences.advance(stream.handle, id);
    Ok(Some(id))
}

/// Whether the stream captures, validly or not.
pub fn is_capturing(stream: &Stream) -> bool {
    RUNNING.load(Relaxed) > 0 && !matches!(lock(&SEQUENCES).active(stream.handle), Ok(None))
}

/// Refuses to synchronise or query a capturing stream.
pub fn forbid_on(stream: &Stream) -> CUresult {
    checked(|all| {
        if stream.is_legacy {
            all.use_legacy(stream.context)?;
        }
        all.synchronise_stream(stream.handle)
    })
}

/// Refuses to synchronise a context with a capturing stream.
pub fn forbid_in_context(context: &Context) -> CUresult {
    checked(|all| all.synchronise_context(context.handle))
}

/// Refuses a call that is potentially unsafe during a capture.
pub fn forbid_unsafe() -> CUresult {
    checked(|all| all.unsafe_call(this_thread(), MODE.get()))
}

/// Refuses to synchronise or query an event that was last recorded in a capture.
pub fn forbid_captured(mark: &CaptureMark) -> CUresult {
    Err(lock(&SEQUENCES).synchronise_event(mark))
}

/// Records an event in a capturing stream; false if the stream does not capture.
pub fn record(stream: &Stream, event: &Event) -> Result<bool, CUerror> {
    if RUNNING.load(Relaxed) == 0 {
        return Ok(false);
    }
    let mut sequences = lock(&SEQUENCES);
    if stream.is_legacy {
        sequences.use_legacy(stream.context)?;
    }
    let mark = sequences.record(stream.handle)?;
    Ok(mark.map(|mark| event.set_captured(mark)).is_some())
}

/// Lets a stream wait for an event, if that is a matter of captures; false if it is not.
pub fn wait(stream: &Stream, captured: Option<&CaptureMark>) -> Result<bool, CUerror> {
    if RUNNING.load(Relaxed) == 0 && captured.is_none() {
        return Ok(false);
    }
    lock(&SEQUENCES).wait(facts(stream), captured)
}

/// The stream is being destroyed.
pub fn stream_gone(stream: u64) {
    if RUNNING.load(Relaxed) == 0 {
        return;
    }
    let gone = lock(&SEQUENCES).stream_gone(stream);
    if let Some(sequence) = gone {
        RUNNING.fetch_sub(1, Relaxed);
        discard(sequence);
    }
}

/// The context is being destroyed.
pub fn context_gone(context: u64) {
    if RUNNING.load(Relaxed) == 0 {
        return;
    }
    let gone = lock(&SEQUENCES).context_gone(context);
    RUNNING.fetch_sub(gone.len(), Relaxed);
    gone.into_iter().for_each(discard);
}

/// Throws away what a capture made, unless the graph was there before.
fn discard(graph: graph::sequences::Target) {
    if graph.own
        && let Ok(graph) = graph::by_handle(graph.graph as CUgraph)
    {
        graph.forget();
    }
}

fn begin(stream: &Stream, mode: u32, graph: &Graph, own: bool, tails: Vec<u64>) -> CUresult {
    if stream.is_legacy {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let target = graph::sequences::Target {
        graph: graph.handle,
        own,
    };
    lock(&SEQUENCES).begin(facts(stream), this_thread(), mode, target, tails)?;
    RUNNING.fetch_add(1, Relaxed);
    Ok(())
}

fn begin_new(default: DefaultStream, stream: CUstream, mode: u32) -> CUresult {
    let stream = stream::by_handle(default, stream)?;
    let graph = Graph::create();
    begin(&stream, mode, &graph, true, Vec::new()).inspect_err(|_| graph.forget())
}

fn end(default: DefaultStream, stream: CUstream, out: Out<CUgraph>) -> CUresult {
    let stream = stream::by_handle(default, stream)?;
    out.check()?;
    let ended = lock(&SEQUENCES).end(stream.handle, this_thread());
    out.set(std::ptr::null_mut())?;
    match ended {
        Ok(target) => {
            RUNNING.fetch_sub(1, Relaxed);
            out.set(target.graph as CUgraph)
        }
        Err(Ended::Broken(target, error)) => {
            RUNNING.fetch_sub(1, Relaxed);
            discard(target);
            Err(error)
        }
        Err(Ended::Still(error)) => Err(error),
    }
}

/// A stream's capture status, and the rest if it is active.
fn status(default: DefaultStream, stream: CUstream) -> Result<(u32, Option<Active>), CUerror> {
    let stream = stream::by_handle(default, stream)?;
    let mut sequences = lock(&SEQUENCES);
    if stream.is_legacy && sequences.use_legacy(stream.context).is_err() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    match sequences.active(stream.handle) {
        Ok(None) => Ok((CU_STREAM_CAPTURE_STATUS_NONE, None)),
        Ok(Some(active)) => Ok((CU_STREAM_CAPTURE_STATUS_ACTIVE, Some(active))),
        Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) => {
            Ok((CU_STREAM_CAPTURE_STATUS_INVALIDATED, None))
        }
        Err(other) => Err(other),
    }
}

/// Where `cuStreamGetCaptureInfo` puts what it knows; all but the status may be NULL.
struct Info {
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    tails: Out<*const CUgraphNode>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
}

/// The tails that the last `cuStreamGetCaptureInfo` told a thread of; valid until its next call.
#[derive(Default)]
struct Told {
    tails: Vec<u64>,
    edges: Vec<[u64; 1]>,
}

thread_local! {
    static TOLD: std::cell::RefCell<Told> = std::cell::RefCell::default();
}

fn info(default: DefaultStream, stream: CUstream, info: Info) -> CUresult {
    info.status.check()?;
    let (status, active) = status(default, stream)?;
    info.status.set(status)?;
    let Some(active) = active else {
        return Ok(());
    };
    info.id.set_if_wanted(active.sequence);
    info.graph.set_if_wanted(active.graph as CUgraph);
    info.count.set_if_wanted(active.tails.len());
    TOLD.with_borrow_mut(|told| {
        told.edges = vec![[0]; active.tails.len()];
        told.tails = active.tails;
        info.tails.set_if_wanted(told.tails.as_ptr().cast());
        info.edges.set_if_wanted(told.edges.as_ptr().cast());
    });
    Ok(())
}

fn redirect(
    default: DefaultStream,
    stream: CUstream,
    nodes: In<CUgraphNode>,
    count: usize,
    flags: u32,
) -> CUresult {
    const SET: u32 = 1;
    let stream = stream::by_handle(default, stream)?;
    let given = graph::names(nodes, count)?;
    let mut sequences = lock(&SEQUENCES);
    let active = sequences
        .active(stream.handle)?
        .ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    if flags > SET || given.iter().any(|id| !graph::is_in(*id, active.graph)) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut tails = if flags == SET {
        Vec::new()
    } else {
        active.tails
    };
    for node in given {
        if !tails.contains(&node) {
            tails.push(node);
        }
    }
    sequences.redirect(stream.handle, tails);
    Ok(())
}

const NOWHERE: Out<()> = Out(std::ptr::null_mut());

fn nowhere<T>() -> Out<T> {
    Out(NOWHERE.0.cast())
}

faces! {
    "cuStreamBeginCapture" 10000 cuStreamBeginCapture (stream: CUstream) / cuStreamBeginCapture_ptsz 10000 |default| {
        begin_new(default, stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
    }
    "cuStreamBeginCapture" 10010 cuStreamBeginCapture_v2 (stream: CUstream, mode: u32) / cuStreamBeginCapture_v2_ptsz 10010 |default| {
        begin_new(default, stream, mode)
    }
    "cuStreamBeginCaptureToGraph" 12030 cuStreamBeginCaptureToGraph
        (stream: CUstream, graph: CUgraph, nodes: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize, mode: u32) / cuStreamBeginCaptureToGraph_ptsz 12030 |default| {
        let _ = edges;
        let stream = stream::by_handle(default, stream)?;
        let graph = graph::by_handle(graph)?;
        let tails = graph::names(nodes, count)?;
        if tails.iter().any(|id| !graph::is_in(*id, graph.handle)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        begin(&stream, mode, &graph, false, tails)
    }
    "cuStreamEndCapture" 10000 cuStreamEndCapture (stream: CUstream, out: Out<CUgraph>) / cuStreamEndCapture_ptsz 10000 |default| {
        end(default, stream, out)
    }
    "cuStreamIsCapturing" 10000 cuStreamIsCapturing (stream: CUstream, out: Out<u32>) / cuStreamIsCapturing_ptsz 10000 |default| {
        out.check()?;
        out.set(status(default, stream)?.0)
    }
    "cuStreamGetCaptureInfo" 10010 cuStreamGetCaptureInfo (stream: CUstream, status: Out<u32>, id: Out<u64>) / cuStreamGetCaptureInfo_ptsz 10010 |default| {
        info(default, stream, Info { status, id, graph: nowhere(), tails: nowhere(), edges: nowhere(), count: nowhere() })
    }
    "cuStreamGetCaptureInfo" 11030 cuStreamGetCaptureInfo_v2
        (stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, tails: Out<*const CUgraphNode>, count: Out<usize>) / cuStreamGetCaptureInfo_v2_ptsz 11030 |default| {
        info(default, stream, Info { status, id, graph, tails, edges: nowhere(), count })
    }
    "cuStreamGetCaptureInfo" 12030 cuStreamGetCaptureInfo_v3
        (stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, tails: Out<*const CUgraphNode>, edges: Out<*const CUgraphEdgeData>, count: Out<usize>) / cuStreamGetCaptureInfo_v3_ptsz 12030 |default| {
        info(default, stream, Info { status, id, graph, tails, edges, count })
    }
    "cuStreamUpdateCaptureDependencies" 11030 cuStreamUpdateCaptureDependencies
        (stream: CUstream, nodes: In<CUgraphNode>, count: usize, flags: u32) / cuStreamUpdateCaptureDependencies_ptsz 11030 |default| {
        redirect(default, stream, nodes, count, flags)
    }
    "cuStreamUpdateCaptureDependencies" 12030 cuStreamUpdateCaptureDependencies_v2
        (stream: CUstream, nodes: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize, flags: u32) / cuStreamUpdateCaptureDependencies_v2_ptsz 12030 |default| {
        let _ = edges;
        redirect(default, stream, nodes, count, flags)
    }
    "cuThreadExchangeStreamCaptureMode" 10010 cuThreadExchangeStreamCaptureMode (mode: Out<u32>) {
        driver()?;
        let wanted = mode.input().get()?;
        if wanted > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        mode.set(MODE.replace(wanted))
    }
}
