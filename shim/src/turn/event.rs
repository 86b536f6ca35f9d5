//! An event of our own behind what a stream was given: it is done when that is done.
//!
//! Making and asking leave a capture alone: a capturing stream is never recorded in. The caller has the event's context
//! current and is in relaxed capture mode (`stream::relaxed`).
#![allow(unsafe_code, reason = "makes, records and asks about events")]

use gpushare_abi::{
    Out,
    errors::{CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY, CUerror},
    types::{CU_EVENT_DISABLE_TIMING, CUcontext, CUevent, CUstream},
};

use crate::{ask::stream, driver::call};

/// An event we made. Who ends its context drops it before.
pub struct Event(CUevent);

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Records an event, this one or a new one, behind all that the stream known as `key` was given. `None` if that would
    /// break a capture, or the driver refuses.
    pub fn record(spare: Option<Event>, key: usize) -> Option<Event> {
        if stream::is_left_alone(key) {
            return None;
        }
        let event = spare.or_else(Event::make)?;
        // SAFETY: our event, and a stream of the current context that the application used and has not destroyed.
        let recorded = unsafe { call::cuEventRecord(event.0, key as CUstream) };
        recorded.is_ok().then_some(event)
    }

    /// An event behind all that a context was given, which is current.
    pub fn behind_all(context: usize) -> Result<Event, CUerror> {
        let event = Event::make().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        // SAFETY: our event, and a context that the caller has made current.
        unsafe { call::cuCtxRecordEvent(context as CUcontext, event.0) }?;
        Ok(event)
    }

    fn make() -> Option<Event> {
        let mut handle: CUevent = std::ptr::null_mut();
        // SAFETY: the place is ours.
        unsafe { call::cuEventCreate(Out::to(&mut handle), CU_EVENT_DISABLE_TIMING) }.ok()?;
        Some(Event(handle))
    }

    /// Whether what stands before it is still to be done.
    pub fn is_pending(&self) -> bool {
        // SAFETY: our event, recorded and not destroyed.
        unsafe { call::cuEventQuery(self.0) == Err(CUDA_ERROR_NOT_READY) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, and destroyed once.
        let _ = unsafe { call::cuEventDestroy_v2(self.0) };
    }
}
