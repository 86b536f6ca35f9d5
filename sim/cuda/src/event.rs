//! Events: marks in streams, with the time the work before them ended.

use std::sync::{Arc, Mutex};

use gpushare_abi::errors::{
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY, CUerror, CUresult,
};
use gpushare_abi::types::{CU_EVENT_DISABLE_TIMING, CU_EVENT_INTERPROCESS, CUevent, CUstream};

use crate::c::Out;
use crate::capture::{self, CaptureMark};
use crate::context::{Context, current};
use crate::driver::driver;
use crate::faces::{DefaultStream, faces};
use crate::graph::node::Node;
use crate::handles::{Table, fresh, lock};
use crate::stream::{self, Mark};
use crate::task::Task;

/// An event.
#[derive(Debug)]
pub struct Event {
    context: u64,
    flags: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Its latest record, in a stream.
    mark: Option<Mark>,
    /// Its latest record, in a capture.
    captured: Option<CaptureMark>,
    /// When the work before its latest finished record ended; 0 before any.
    time: u64,
}

static EVENTS: Table<Event> = Table::new();

/// The event behind a handle.
pub fn by_handle(handle: CUevent) -> Result<Arc<Event>, CUerror> {
    driver()?;
    EVENTS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

impl Event {
    /// The work before its record is done; it ended then.
    pub fn happened(&self, time: u64) {
        lock(&self.state).time = time;
    }

    /// Waits for its latest record; returns when that was.
    pub fn wait(&self) -> u64 {
        let mark = lock(&self.state).mark.clone();
        mark.map_or(0, |mark| mark.wait())
    }

    /// It was last recorded in this capture.
    pub fn set_captured(&self, mark: CaptureMark) {
        let mut state = lock(&self.state);
        state.captured = Some(mark);
        state.mark = None;
    }

    fn is_done(&self) -> Result<bool, CUerror> {
        let state = lock(&self.state);
        if let Some(mark) = &state.captured {
            capture::forbid_captured(mark)?;
        }
        Ok(state.mark.as_ref().is_none_or(Mark::is_done))
    }

    fn time(&self) -> Result<u64, CUerror> {
        if self.flags & CU_EVENT_DISABLE_TIMING != 0 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        if !self.is_done()? {
            return Err(CUDA_ERROR_NOT_READY);
        }
        let state = lock(&self.state);
        state.mark.as_ref().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        Ok(state.time)
    }
}

/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`: in a capture, the graph does it when it runs.
const EXTERNAL: u32 = 1;

fn record(default: DefaultStream, event: CUevent, stream: CUstream, flags: u32) -> CUresult {
    if flags > EXTERNAL {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = event;
    let event = by_handle(event)?;
    let stream = stream::by_handle(default, stream)?;
    if stream.context != event.context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if flags == EXTERNAL && capture::add_node(&stream, || Node::record(handle))?.is_some() {
        return Ok(());
    }
    if capture::record(&stream, &event)? {
        return Ok(());
    }
    let mark = stream.submit(Task::Record(Arc::clone(&event)), Vec::new())?;
    let mut state = lock(&event.state);
    state.captured = None;
    state.mark = Some(mark);
    Ok(())
}

/// Records an event behind all work of a context.
pub fn record_all(context: &Context, event: &Arc<Event>) -> CUresult {
    capture::forbid_in_context(context)?;
    let legacy = Arc::clone(&lock(&context.streams).legacy);
    let mark = legacy.submit(Task::Record(Arc::clone(event)), context.tails())?;
    let mut state = lock(&event.state);
    state.captured = None;
    state.mark = Some(mark);
    Ok(())
}

/// Lets all streams of a context wait for an event.
pub fn await_in_all(context: &Context, event: &Event) -> CUresult {
    capture::forbid_in_context(context)?;
    let mark = lock(&event.state).mark.clone();
    let Some(mark) = mark else { return Ok(()) };
    for stream in context.live_streams() {
        stream.submit(Task::Nothing, vec![mark.clone()])?;
    }
    Ok(())
}

fn wait(default: DefaultStream, stream: CUstream, event: CUevent, flags: u32) -> CUresult {
    if flags > EXTERNAL {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = event;
    let event = by_handle(event)?;
    let stream = stream::by_handle(default, stream)?;
    if flags == EXTERNAL && capture::add_node(&stream, || Node::wait(handle))?.is_some() {
        return Ok(());
    }
    let (captured, mark) = {
        let state = lock(&event.state);
        (state.captured.clone(), state.mark.clone())
    };
    if captured.is_none() && mark.is_none() {
        // Never recorded: there is nothing to wait for, in a capture neither.
        return Ok(());
    }
    if capture::wait(&stream, captured.as_ref())? {
        return Ok(());
    }
    match mark {
        Some(mark) if !mark.is_done() => stream.submit(Task::Nothing, vec![mark]).map(|_| ()),
        _ => Ok(()),
    }
}

fn elapsed(out: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
    let (start, end) = (by_handle(start)?, by_handle(end)?);
    out.check()?;
    let (start, end) = (start.time()?, end.time()?);
    out.set((end as f64 - start as f64) as f32 / 1e6)
}

fn destroy(event: CUevent) -> CUresult {
    driver()?;
    EVENTS
        .remove(event as u64)
        .map(|_| ())
        .ok_or(CUDA_ERROR_INVALID_HANDLE)
}

faces! {
    "cuEventCreate" 2000 cuEventCreate (out: Out<CUevent>, flags: u32) {
        let context = current()?;
        out.check()?;
        let alone = flags & CU_EVENT_INTERPROCESS != 0 && flags & CU_EVENT_DISABLE_TIMING == 0;
        if flags & !7 != 0 || alone {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let handle = fresh();
        EVENTS.insert(handle, Arc::new(Event { context: context.handle, flags, state: Mutex::default() }));
        out.set(handle as CUevent)
    }
    "cuEventDestroy" 2000 cuEventDestroy (event: CUevent) { destroy(event) }
    "cuEventDestroy" 4000 cuEventDestroy_v2 (event: CUevent) { destroy(event) }
    "cuEventRecord" 2000 cuEventRecord (event: CUevent, stream: CUstream) / cuEventRecord_ptsz 7000 |default| {
        record(default, event, stream, 0)
    }
    "cuEventRecordWithFlags" 11010 cuEventRecordWithFlags (event: CUevent, stream: CUstream, flags: u32) / cuEventRecordWithFlags_ptsz 11010 |default| {
        record(default, event, stream, flags)
    }
    "cuEventQuery" 2000 cuEventQuery (event: CUevent) {
        let event = by_handle(event)?;
        let done = event.is_done()?;
        capture::forbid_unsafe()?;
        if done { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }
    "cuEventSynchronize" 2000 cuEventSynchronize (event: CUevent) {
        let event = by_handle(event)?;
        event.is_done()?;
        capture::forbid_unsafe()?;
        event.wait();
        crate::pool::after_synchronisation();
        Ok(())
    }
    "cuEventElapsedTime" 2000 cuEventElapsedTime (out: Out<f32>, start: CUevent, end: CUevent) { elapsed(out, start, end) }
    "cuEventElapsedTime" 12080 cuEventElapsedTime_v2 (out: Out<f32>, start: CUevent, end: CUevent) { elapsed(out, start, end) }
    "cuStreamWaitEvent" 3020 cuStreamWaitEvent (stream: CUstream, event: CUevent, flags: u32) / cuStreamWaitEvent_ptsz 7000 |default| {
        wait(default, stream, event, flags)
    }
}
