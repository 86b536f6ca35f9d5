//! A drain: the wait until all submitted work is done. It never blocks in the driver.
//!
//! Every stream used since the last drain is queried (`cuStreamQuery`) until it is idle. So a kernel that never ends
//! delays its process by `grace` and never blocks the keeper. A capturing stream is not queried, because a query
//! would break the capture. Nor is the legacy stream while any capture is open or about to begin. Queries are made in
//! relaxed capture mode, because in any other mode they would break a global capture of another thread. The
//! per-thread default streams of other threads have no handle to query. An event in the legacy stream, which waits
//! for all of them, stands for them.
//!
//! An event of the shim's own, recorded in a stream, is done when all earlier work of the stream is done.
//!
//! Creating and querying events does not affect a capture: no event is recorded in a capturing stream. The caller has
//! made the event's context current and is in relaxed capture mode (`context::relaxed`).
#![allow(
    unsafe_code,
    reason = "asks the driver; makes, records and asks about events"
)]

use std::time::Duration;

use gpushare_abi::{
    Out,
    errors::{CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY, CUerror},
    types::{
        CU_EVENT_DISABLE_TIMING, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUcontext, CUevent,
        CUstream,
    },
};
use shm_layout::clock;

use crate::{
    driver::call,
    driver_query::context,
    sys::futex,
    thread::Used,
    turn::context_end::{ContextEnd, Ends},
};

/// The sleeps between two polls of something that will end, and an estimate of how late its end was noticed.
#[derive(Default)]
pub struct Naps {
    first_ns: Option<u64>,
    late_ns: u64,
}

impl Naps {
    /// Sleeps for `ns` nanoseconds and updates the estimate of how late the end may be noticed.
    pub fn nap(&mut self, ns: u64) {
        let began = clock::now();
        futex::nap(Duration::from_nanos(ns));
        let first = *self.first_ns.get_or_insert(began);
        self.late_ns = lateness(
            began.saturating_sub(first),
            clock::now().saturating_sub(began),
            ns,
        );
    }

    /// Estimates how long before the end of the last sleep the work had finished, in nanoseconds.
    pub fn late_ns(&self) -> u64 {
        self.late_ns
    }
}

/// Estimates how long before the end of a sleep the work had finished. The work was still running when the sleep of
/// `nap_ns` began, `elapsed_ns` after the first poll; the sleep took `took_ns`. The end is assumed at half of the
/// sleep, but the work is not assumed to have run on for longer than it had run before.
fn lateness(elapsed_ns: u64, took_ns: u64, nap_ns: u64) -> u64 {
    let went_on = (took_ns / 2).min(elapsed_ns).max(nap_ns);
    took_ns.saturating_sub(went_on)
}

/// The least number of streams that have ended at which those that are done are looked for, so that a program with a new stream for each
/// request pays a few queries for each.
const SEALED: usize = 16;

/// The work that may still be running, one entry per stream.
#[derive(Default)]
pub struct Outstanding(Vec<Item>);

struct Item {
    /// The stream, or 0 where only the event may be asked.
    used: Used,
    /// The event that stands for the stream's work, once recorded.
    event: Option<Event>,
}

impl Outstanding {
    /// Adds a stream that was submitted to.
    pub fn add(&mut self, used: Used) {
        match self.0.iter_mut().find(|item| item.used == used) {
            // The recorded event precedes the new submission, so it no longer covers all of the stream's work.
            Some(item) => item.event = None,
            None => self.0.push(Item { used, event: None }),
        }
    }

    /// Has events stand for the work in streams that are about to be captured or to end, with `end` or alone. Work without an event
    /// is forgotten, as is what of such work is done: a program may use a new stream for each of its requests.
    pub fn seal(&mut self, which: impl Fn(&Used) -> bool, end: Option<&ContextEnd>) {
        if !self.0.iter().any(|item| which(&item.used)) {
            return;
        }
        if end.is_none() {
            // Most streams are done before they end, and need no event.
            self.poll(|item| which(&item.used));
        }
        context::relaxed(|| {
            let ending = self.0.iter_mut().filter(|item| which(&item.used));
            ending.for_each(|item| item.seal(end));
        });
        let sealed = self.0.iter().filter(|item| item.used.stream == 0).count();
        if sealed >= SEALED && sealed.is_power_of_two() {
            self.poll(|item| item.used.stream == 0);
        }
    }

    /// Stops tracking streams without a call of the driver, which does not answer while the process is locked.
    pub fn abandon(&mut self, which: impl Fn(&Used) -> bool) {
        let gone = self.0.extract_if(.., |item| which(&item.used));
        gone.for_each(std::mem::forget);
    }

    /// Waits until all work is done or `is_enough` returns true. Returns false if the deadline passes first.
    pub fn finish(
        &mut self,
        deadline_ns: u64,
        naps: &mut Naps,
        is_enough: impl Fn() -> bool,
    ) -> bool {
        let mut round = 0_u32;
        while !is_enough() && !self.is_finished() {
            if clock::now() >= deadline_ns {
                return false;
            }
            round += 1;
            naps.nap(if round < 20 { 20_000 } else { 100_000 });
        }
        true
    }

    /// Queries each stream once and removes those that are done. Returns true if nothing is left.
    pub fn is_finished(&mut self) -> bool {
        self.poll(|_| true);
        self.0.is_empty()
    }

    /// Queries some streams once and removes those that are done.
    fn poll(&mut self, which: impl Fn(&Item) -> bool) {
        let mut asked: Vec<Item> = self.0.extract_if(.., |item| which(item)).collect();
        let pending = asked.extract_if(.., |item| item.known() == Some(true));
        self.0.extend(pending);
        asked.retain(|item| item.known().is_none());
        if asked.is_empty() {
            return;
        }
        context::relaxed(|| {
            while let Some(context) = asked.first().map(|item| item.used.context) {
                let here = asked.extract_if(.., |item| item.used.context == context);
                let mut here = Some(here.collect::<Vec<Item>>());
                context::with_current(context, || {
                    let here = here.take().into_iter().flatten();
                    self.0.extend(here.filter_map(Item::if_busy));
                });
                // A context that cannot be made current is destroyed, with its events, so no work of it can run.
                here.into_iter().for_each(std::mem::forget);
            }
        });
    }
}

impl Item {
    /// Returns whether the work is not done, if that is known without a query.
    fn known(&self) -> Option<bool> {
        self.event.as_ref()?.ends.is_pending()
    }

    /// Records an event behind the work, if there is none yet and the context still exists.
    fn seal(&mut self, end: Option<&ContextEnd>) {
        let Used {
            stream, context, ..
        } = self.used;
        if self.event.is_none() && stream != 0 && !end.is_some_and(ContextEnd::is_gone) {
            let stream = shared(stream);
            context::with_current(context, || self.event = Event::record(None, stream));
        }
        if let Some(event) = &mut self.event {
            end.into_iter().for_each(|end| event.ends.add(end));
        }
        self.used.stream = 0;
    }

    /// Returns the item unless it is done or must not be queried. Its context must be current.
    fn if_busy(mut self) -> Option<Self> {
        let stream = self.used.stream as CUstream;
        if stream == CU_STREAM_PER_THREAD && self.event.is_none() {
            self.event = Some(Event::record(None, shared(self.used.stream))?);
        }
        if let Some(event) = &self.event {
            return event.is_pending().then_some(self);
        }
        if self.used.stream == 0 || context::is_left_alone(self.used.stream) {
            return None;
        }
        // SAFETY: the application used the stream and has not destroyed it; its destruction waits for this drain.
        (unsafe { call::cuStreamQuery(stream) } == Err(CUDA_ERROR_NOT_READY)).then_some(self)
    }
}

/// Returns the stream in which an event follows the work of a stream that another thread may have used: the default streams of all
/// threads have the legacy one in common.
pub fn shared(stream: usize) -> usize {
    if stream == CU_STREAM_PER_THREAD as usize {
        CU_STREAM_LEGACY as usize
    } else {
        stream
    }
}

/// An event created by the shim. It must be dropped before its context is destroyed, unless it knows of that end.
pub struct Event {
    handle: CUevent,
    /// The ends of its context.
    pub ends: Ends,
}

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Records an event behind all work of the stream `key`, in `spare` or in a new event. Returns `None` if that
    /// would break a capture, or if the driver refuses.
    pub fn record(spare: Option<Event>, key: usize) -> Option<Event> {
        if context::is_left_alone(key) {
            return None;
        }
        let spare = spare.filter(|event| event.ends.is_pending().is_none());
        let event = spare.or_else(Event::make)?;
        // SAFETY: the event is the shim's, and the application has used the stream of the current context and not
        // destroyed it.
        let recorded = unsafe { call::cuEventRecord(event.handle, key as CUstream) };
        recorded.is_ok().then_some(event)
    }

    /// Records a new event behind all work of a context, which must be current.
    pub fn behind_all(context: usize) -> Result<Event, CUerror> {
        let event = Event::make().ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        // SAFETY: the event is the shim's, and the caller has made the context current.
        unsafe { call::cuCtxRecordEvent(context as CUcontext, event.handle) }?;
        Ok(event)
    }

    fn make() -> Option<Event> {
        let mut handle: CUevent = std::ptr::null_mut();
        // SAFETY: the driver writes the handle to a local variable.
        unsafe { call::cuEventCreate(Out::to(&mut handle), CU_EVENT_DISABLE_TIMING) }.ok()?;
        let ends = Ends::default();
        Some(Event { handle, ends })
    }

    /// Returns true while the work before the event is not done.
    pub fn is_pending(&self) -> bool {
        // SAFETY: the event is the shim's, was recorded and is not destroyed.
        let ask = || unsafe { call::cuEventQuery(self.handle) == Err(CUDA_ERROR_NOT_READY) };
        self.ends.is_pending().unwrap_or_else(ask)
    }

    /// Does the same, and makes the event's context current. One that cannot be made current is destroyed, so no work of it can run.
    pub fn is_pending_in(&self, context: usize) -> bool {
        self.ends.is_pending().unwrap_or_else(|| {
            let mut pending = false;
            context::with_current(context, || pending = self.is_pending());
            pending
        })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // The driver destroys it with its context.
        if self.ends.is_pending().is_none() {
            // SAFETY: the event is the shim's and is destroyed only here.
            let _ = unsafe { call::cuEventDestroy_v2(self.handle) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::lateness;

    const US: u64 = 1000;

    #[test]
    fn what_was_overslept_is_not_more_than_was_slept() {
        assert_eq!(lateness(0, 20 * US, 20 * US), 0);
        assert_eq!(lateness(0, 10 * US, 20 * US), 0);
    }

    #[test]
    fn a_short_wait_that_was_overslept_is_taken_for_short() {
        assert_eq!(lateness(0, 4000 * US, 20 * US), 3980 * US);
        assert_eq!(lateness(300 * US, 4000 * US, 20 * US), 3700 * US);
    }

    #[test]
    fn a_long_wait_ended_in_the_middle_of_the_last_nap() {
        assert_eq!(lateness(50_000 * US, 4000 * US, 100 * US), 2000 * US);
    }
}
