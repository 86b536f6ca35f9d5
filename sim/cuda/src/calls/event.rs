//! The calls on events.

use std::sync::Arc;

use gpushare_abi::{
    errors::{
        CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY,
        CUDA_ERROR_OUT_OF_MEMORY, CUresult,
    },
    types::{CU_EVENT_DISABLE_TIMING, CU_EVENT_INTERPROCESS, CUevent, CUstream},
};

use crate::{
    c::Out,
    capture,
    context::{self, Context, current},
    event::{self, Event, by_handle, shared::Shared},
    faces::{DefaultStream, faces},
    graph::node::Node,
    memory::pool,
    stream::{Mark, Stream},
    submit,
    work::Nothing,
};

/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`: in a capture, the graph does it when it runs.
const EXTERNAL: u32 = 1;

fn record(default: DefaultStream, event: CUevent, stream: CUstream, flags: u32) -> CUresult {
    if flags > EXTERNAL {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = event;
    let event = by_handle(event)?;
    let stream = context::stream(default, stream)?;
    if stream.owner != event.context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if flags == EXTERNAL && submit::capture_node(&stream, || Node::record(handle))?.is_some() {
        return Ok(());
    }
    if let Some(mark) = capture::record(&stream)? {
        event.set_captured(mark);
        return Ok(());
    }
    record_behind(&stream, event, Vec::new())
}

/// Records an event in a stream's queue.
fn record_behind(stream: &Arc<Stream>, event: Arc<Event>, after: Vec<Mark>) -> CUresult {
    let mark = stream.queue_behind(event.recording(), after)?;
    event.set_recorded(mark);
    Ok(())
}

/// Records an event behind all work of a context.
pub fn record_all(context: &Context, event: &Arc<Event>) -> CUresult {
    capture::forbid_in_context(context.handle)?;
    let legacy = context.streams.legacy();
    record_behind(&legacy, Arc::clone(event), context.tails())
}

/// Makes all streams of a context wait for an event.
pub fn await_in_all(context: &Context, event: &Arc<Event>) -> CUresult {
    capture::forbid_in_context(context.handle)?;
    if event.shared.is_some() {
        let Some(work) = event.awaiting() else {
            return Ok(());
        };
        for stream in context.streams.live() {
            stream.queue_behind(Arc::clone(&work), Vec::new())?;
        }
        return Ok(());
    }
    let (mark, _) = event.latest();
    let Some(mark) = mark else { return Ok(()) };
    for stream in context.streams.live() {
        stream.queue_behind(Arc::new(Nothing), vec![mark.clone()])?;
    }
    Ok(())
}

fn wait(default: DefaultStream, stream: CUstream, event: CUevent, flags: u32) -> CUresult {
    if flags > EXTERNAL {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = event;
    let event = by_handle(event)?;
    let stream = context::stream(default, stream)?;
    if flags == EXTERNAL && submit::capture_node(&stream, || Node::wait(handle))?.is_some() {
        return Ok(());
    }
    let (mark, captured) = event.latest();
    if captured.is_none() && mark.is_none() && event.shared.is_none() {
        // Never recorded: there is nothing to wait for, in a capture neither.
        return Ok(());
    }
    if capture::wait(&stream, captured.as_ref())? {
        return Ok(());
    }
    if event.shared.is_some() {
        return match event.awaiting() {
            Some(work) => stream.queue_behind(work, Vec::new()).map(|_| ()),
            None => Ok(()),
        };
    }
    match mark {
        Some(mark) if !mark.is_done() => {
            let queued = stream.queue_behind(Arc::new(Nothing), vec![mark]);
            queued.map(|_| ())
        }
        _ => Ok(()),
    }
}

fn elapsed(out: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
    let (start, end) = (by_handle(start)?, by_handle(end)?);
    out.check()?;
    let (start, end) = (start.time()?, end.time()?);
    out.set((end as f64 - start as f64) as f32 / 1e6)
}

faces! {
    "cuEventCreate" 2000 cuEventCreate (out: Out<CUevent>, flags: u32) {
        let context = current()?;
        out.check()?;
        let alone = flags & CU_EVENT_INTERPROCESS != 0 && flags & CU_EVENT_DISABLE_TIMING == 0;
        if flags & !7 != 0 || alone {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let shared = if flags & CU_EVENT_INTERPROCESS == 0 {
            None
        } else {
            Some(Shared::new().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?)
        };
        out.set(Event::create(context.owner, flags, shared) as CUevent)
    }
    "cuEventDestroy" 2000 cuEventDestroy (event: CUevent) { event::destroy(event) }
    "cuEventDestroy" 4000 cuEventDestroy_v2 (event: CUevent) { event::destroy(event) }
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
        if done { event.works() } else { Err(CUDA_ERROR_NOT_READY) }
    }
    "cuEventSynchronize" 2000 cuEventSynchronize (event: CUevent) {
        let event = by_handle(event)?;
        event.is_done()?;
        capture::forbid_unsafe()?;
        event.wait();
        pool::after_synchronisation();
        event.works()
    }
    "cuEventElapsedTime" 2000 cuEventElapsedTime (out: Out<f32>, start: CUevent, end: CUevent) { elapsed(out, start, end) }
    "cuEventElapsedTime" 12080 cuEventElapsedTime_v2 (out: Out<f32>, start: CUevent, end: CUevent) { elapsed(out, start, end) }
    "cuStreamWaitEvent" 3020 cuStreamWaitEvent (stream: CUstream, event: CUevent, flags: u32) / cuStreamWaitEvent_ptsz 7000 |default| {
        wait(default, stream, event, flags)
    }
}
