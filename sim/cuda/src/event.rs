//! Events: marks in streams, with the time at which the work before them ended. [`shared`] is the part that other
//! processes see.

pub mod shared;

use std::sync::{Arc, Mutex};

use gpushare_abi::errors::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_READY, CUerror, CUresult};
use gpushare_abi::types::{CU_EVENT_DISABLE_TIMING, CUevent};

use crate::capture;
use crate::capture::sequences::CaptureMark;
use crate::context;
use crate::driver::{Driver, driver};
use crate::handles::{Table, fresh, lock};
use crate::stream::Mark;
use crate::work::Work;
use shared::Shared;

/// An event.
#[derive(Debug)]
pub struct Event {
    /// The handle of the event's context.
    pub context: u64,
    flags: u32,
    state: Mutex<State>,
    /// For `CU_EVENT_INTERPROCESS`: its records are counted there, too.
    pub shared: Option<Shared>,
}

#[derive(Debug, Default)]
struct State {
    /// The latest record in a stream.
    mark: Option<Mark>,
    /// The latest record in a capture.
    captured: Option<CaptureMark>,
    /// The time at which the work before the latest finished record ended; 0 before any.
    time: u64,
}

static EVENTS: Table<Event> = Table::new();

/// Returns the event of a handle.
pub fn by_handle(handle: CUevent) -> Result<Arc<Event>, CUerror> {
    driver()?;
    let event = EVENTS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    context::check(event.context)?;
    Ok(event)
}

/// Forgets an event that the application destroys.
pub fn destroy(handle: CUevent) -> CUresult {
    driver()?;
    let event = EVENTS
        .remove(handle as u64)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    context::check(event.context)
}

/// Marks an event.
#[derive(Debug)]
pub struct Record(pub Arc<Event>);

impl Work for Record {
    fn run(&self, driver: &Driver, _: i32, ready: u64) -> u64 {
        let slow_event = driver.member.world().scenario().mishaps.slow_event.0;
        if !slow_event.is_zero() {
            gpushare_sim::clock::sleep(slow_event);
        }
        self.0.happened(ready);
        ready
    }
}

/// Marks an event that other processes see: its record of this number.
#[derive(Debug)]
struct Publish(Arc<Event>, u64);

impl Work for Publish {
    fn run(&self, _: &Driver, _: i32, ready: u64) -> u64 {
        if let Some(shared) = &self.0.shared {
            shared.happen(self.1);
        }
        ready
    }
}

/// Waits for such a record.
#[derive(Debug)]
struct AwaitShared(Arc<Event>, u64);

impl Work for AwaitShared {
    fn run(&self, _: &Driver, _: i32, ready: u64) -> u64 {
        let shared = self.0.shared.as_ref();
        shared.map_or(ready, |shared| shared.wait(self.1).max(ready))
    }
}

/// Waits for an event's latest mark.
#[derive(Debug)]
pub struct Await(pub Arc<Event>);

impl Work for Await {
    fn run(&self, _: &Driver, _: i32, ready: u64) -> u64 {
        self.0.wait().max(ready)
    }
}

impl Event {
    /// Creates an event of a context; returns its handle.
    pub fn create(context: u64, flags: u32, shared: Option<Shared>) -> u64 {
        let handle = fresh();
        let state = Mutex::default();
        EVENTS.insert(
            handle,
            Arc::new(Self {
                context,
                flags,
                state,
                shared,
            }),
        );
        handle
    }

    /// Records the time at which the work before the record ended.
    fn happened(&self, time: u64) {
        lock(&self.state).time = time;
        if let Some(shared) = &self.shared {
            shared.happen(shared.ask());
        }
    }

    /// Returns the work that records the event. Other processes see the record from now on.
    pub fn recording(self: &Arc<Self>) -> Arc<dyn Work> {
        match &self.shared {
            Some(shared) => Arc::new(Publish(Arc::clone(self), shared.ask())),
            None => Arc::new(Record(Arc::clone(self))),
        }
    }

    /// Returns the work that waits for the latest record of an event shared with other processes, unless it has
    /// happened.
    pub fn awaiting(self: &Arc<Self>) -> Option<Arc<dyn Work>> {
        let shared = self.shared.as_ref()?;
        let number = shared.asked();
        let work = || Arc::new(AwaitShared(Arc::clone(self), number)) as Arc<dyn Work>;
        (!shared.has_happened(number)).then(work)
    }

    /// Waits for its latest record; returns when that was.
    pub fn wait(&self) -> u64 {
        if let Some(shared) = &self.shared {
            return shared.wait(shared.asked());
        }
        let mark = lock(&self.state).mark.clone();
        mark.map_or(0, |mark| mark.wait())
    }

    /// Returns the latest record, in a stream or in a capture.
    pub fn latest(&self) -> (Option<Mark>, Option<CaptureMark>) {
        let state = lock(&self.state);
        (state.mark.clone(), state.captured.clone())
    }

    /// Returns an error if the context in which the event was last recorded is lost.
    pub fn works(&self) -> CUresult {
        lock(&self.state).mark.as_ref().map_or(Ok(()), Mark::works)
    }

    /// Stores a record in a capture.
    pub fn set_captured(&self, mark: CaptureMark) {
        let mut state = lock(&self.state);
        state.captured = Some(mark);
        state.mark = None;
    }

    /// Stores a record in a stream.
    pub fn set_recorded(&self, mark: Mark) {
        let mut state = lock(&self.state);
        state.captured = None;
        state.mark = Some(mark);
    }

    /// Returns true if the latest record is done; an error if it was in a capture.
    pub fn is_done(&self) -> Result<bool, CUerror> {
        let state = lock(&self.state);
        if let Some(mark) = &state.captured {
            capture::forbid_captured(mark)?;
        }
        if let Some(shared) = &self.shared {
            return Ok(shared.has_happened(shared.asked()));
        }
        Ok(state.mark.as_ref().is_none_or(Mark::is_done))
    }

    /// Returns the time at which the work before the latest record ended.
    pub fn time(&self) -> Result<u64, CUerror> {
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
