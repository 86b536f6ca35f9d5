//! Stream capture: streams that build a graph instead of doing work, and the calls that this forbids.
//!
//! [`sequences`] has the rules; this file applies them to the process's streams and threads. While nothing captures,
//! it costs one relaxed load. The layer above, which submits work, decides what becomes a node of which graph.

pub mod sequences;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use gpushare_abi::errors::{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUerror, CUresult};
use gpushare_abi::types::CU_STREAM_CAPTURE_MODE_GLOBAL;

use crate::handles::{NodeId, lock};
use crate::stream::Stream;
use sequences::{Active, CaptureMark, Ended, Sequences, StreamFacts, Target};

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

/// Sets the thread's interaction mode and returns the previous one.
pub fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

fn facts(stream: &Stream) -> StreamFacts {
    StreamFacts {
        stream: stream.handle,
        context: stream.context,
        blocking: !stream.is_non_blocking(),
    }
}

/// Locks and returns all sequences, or returns `None` if none runs.
fn running() -> Option<MutexGuard<'static, Sequences>> {
    (RUNNING.load(Relaxed) > 0).then(|| lock(&SEQUENCES))
}

/// Runs a check if anything captures.
fn checked(check: impl FnOnce(&mut Sequences) -> CUresult) -> CUresult {
    running().map_or(Ok(()), |mut all| check(&mut all))
}

/// Records a use of a stream, which is an error for the legacy one while it is closed.
fn using(stream: &Stream, all: &mut Sequences) -> CUresult {
    if stream.is_legacy {
        all.use_legacy(stream.context)?;
    }
    Ok(())
}

/// Adds a node to the graph of a capturing stream, behind the stream's present nodes, and returns its name. Returns
/// `None` if the stream does not capture.
pub fn extend(
    stream: &Stream,
    add: impl FnOnce(&Active) -> Result<NodeId, CUerror>,
) -> Result<Option<NodeId>, CUerror> {
    let Some(mut sequences) = running() else {
        return Ok(None);
    };
    using(stream, &mut sequences)?;
    let Some(active) = sequences.active(stream.handle)? else {
        return Ok(None);
    };
    let id = add(&active)?;
    sequences.advance(stream.handle, id);
    Ok(Some(id))
}

/// Returns true if the stream captures, validly or not.
pub fn is_capturing(stream: &Stream) -> bool {
    running().is_some_and(|all| !matches!(all.active(stream.handle), Ok(None)))
}

/// Returns the capture of a stream; an error if the sequence is invalid, or if it closes the legacy stream.
pub fn active(stream: &Stream) -> Result<Option<Active>, CUerror> {
    let sequences = lock(&SEQUENCES);
    if stream.is_legacy && sequences.closes_legacy(stream.context) {
        return Err(gpushare_abi::errors::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    sequences.active(stream.handle)
}

/// Changes the nodes that the stream's next node waits for.
pub fn redirect(
    stream: &Stream,
    tails: impl FnOnce(Option<Active>) -> Result<Vec<NodeId>, CUerror>,
) -> CUresult {
    let mut sequences = lock(&SEQUENCES);
    let active = sequences.active(stream.handle)?;
    sequences.redirect(stream.handle, tails(active)?);
    Ok(())
}

/// Refuses to synchronise or query a capturing stream.
pub fn forbid_on(stream: &Stream) -> CUresult {
    checked(|all| {
        using(stream, all)?;
        all.synchronise_stream(stream.handle)
    })
}

/// Refuses to synchronise a context with a capturing stream.
pub fn forbid_in_context(context: u64) -> CUresult {
    checked(|all| all.synchronise_context(context))
}

/// Refuses a call that is potentially unsafe during a capture.
pub fn forbid_unsafe() -> CUresult {
    checked(|all| all.unsafe_call(this_thread(), MODE.get()))
}

/// Refuses to synchronise or query an event that was last recorded in a capture.
pub fn forbid_captured(mark: &CaptureMark) -> CUresult {
    Err(lock(&SEQUENCES).synchronise_event(mark))
}

/// Returns the mark of an event that is recorded in a capturing stream; `None` if the stream does not capture.
pub fn record(stream: &Stream) -> Result<Option<CaptureMark>, CUerror> {
    let Some(mut sequences) = running() else {
        return Ok(None);
    };
    using(stream, &mut sequences)?;
    sequences.record(stream.handle)
}

/// Makes a stream wait for an event if either is part of a capture; returns false otherwise.
pub fn wait(stream: &Stream, captured: Option<&CaptureMark>) -> Result<bool, CUerror> {
    if RUNNING.load(Relaxed) == 0 && captured.is_none() {
        return Ok(false);
    }
    lock(&SEQUENCES).wait(facts(stream), captured)
}

/// Removes a stream that is being destroyed; returns the graph of its capture, which must be discarded.
#[must_use]
pub fn stream_gone(stream: u64) -> Option<Target> {
    let gone = running()?.stream_gone(stream)?;
    RUNNING.fetch_sub(1, Relaxed);
    Some(gone)
}

/// Removes a context that is being destroyed; returns the graphs of its captures, which must be discarded.
#[must_use]
pub fn context_gone(context: u64) -> Vec<Target> {
    let gone = running().map_or_else(Vec::new, |mut all| all.context_gone(context));
    RUNNING.fetch_sub(gone.len(), Relaxed);
    gone
}

/// Begins a sequence on a stream, into a graph, behind nodes that it has.
pub fn begin(stream: &Stream, mode: u32, target: Target, tails: Vec<NodeId>) -> CUresult {
    if stream.is_legacy {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    lock(&SEQUENCES).begin(facts(stream), this_thread(), mode, target, tails)?;
    RUNNING.fetch_add(1, Relaxed);
    Ok(())
}

/// Ends the sequence that began on a stream.
pub fn end(stream: &Stream) -> Result<Target, Ended> {
    let ended = lock(&SEQUENCES).end(stream.handle, this_thread());
    if !matches!(ended, Err(Ended::Still(_))) {
        RUNNING.fetch_sub(1, Relaxed);
    }
    ended
}
