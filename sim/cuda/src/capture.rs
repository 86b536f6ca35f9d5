//! Stream capture: what is issued in a capturing stream becomes a node of a graph instead of work.
//!
//! [`crate::graph::sequences`] has the rules; here they meet streams, events and threads. While nothing
//! captures, all of it costs one relaxed load. [`calls`] is the interface.

pub mod calls;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use gpushare_abi::errors::{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUerror, CUresult};
use gpushare_abi::types::{CU_STREAM_CAPTURE_MODE_GLOBAL, CUgraph};

use crate::context::Context;
use crate::event::Event;
use crate::graph::node::Node;
use crate::graph::sequences::{Sequences, StreamFacts, Target};
use crate::graph::{self, Graph};
use crate::handles::lock;
use crate::stream::Stream;
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
fn discard(graph: Target) {
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
    let target = Target {
        graph: graph.handle,
        own,
    };
    lock(&SEQUENCES).begin(facts(stream), this_thread(), mode, target, tails)?;
    RUNNING.fetch_add(1, Relaxed);
    Ok(())
}
