//! Waiting until what we submitted is done, without ever blocking in the driver.
//!
//! Every stream used since the last drain is *asked* (`cuStreamQuery`) until it has nothing left, so a kernel
//! that never ends costs its process `grace` and not its keeper. A capturing stream is not asked: asking would
//! break the capture. Nor is the legacy stream while any capture is open or about to begin. Asking is done in relaxed capture mode, because in any other mode it would break a global
//! capture of another thread. The per-thread default streams of other threads have no handle we could ask by:
//! an event in the legacy stream, which waits for them all, stands for them.
//!
//! An event of our own behind what a stream was given: it is done when that is done.
//!
//! Making and asking leave a capture alone: a capturing stream is never recorded in. The caller has the event's context
//! current and is in relaxed capture mode (`stream::relaxed`).
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

use crate::{driver::call, driver_query::context, sys::futex, thread::Used};

/// Naps between two looks at something that will end.
#[derive(Default)]
pub struct Naps {
    first_ns: Option<u64>,
    late_ns: u64,
}

impl Naps {
    /// Sleeps, hardly longer than it was told where the machine is not too busy.
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

    /// How long before the last nap was over that ended, by our best guess, what was seen to have ended then.
    pub fn late_ns(&self) -> u64 {
        self.late_ns
    }
}

/// It was still going on when a nap of `nap_ns` began, `elapsed_ns` after the first look; the nap took `took_ns`. The end
/// is as likely early in that time as late, but hardly later than it had taken until then.
fn lateness(elapsed_ns: u64, took_ns: u64, nap_ns: u64) -> u64 {
    let went_on = (took_ns / 2).min(elapsed_ns).max(nap_ns);
    took_ns.saturating_sub(went_on)
}

/// What may still be running.
#[derive(Default)]
pub struct Outstanding(Vec<Item>);

struct Item {
    used: Used,
    /// The event that stands for it, once recorded.
    event: Option<Event>,
}

impl Outstanding {
    /// This stream was submitted to.
    pub fn add(&mut self, used: Used) {
        match self.0.iter_mut().find(|item| item.used == used) {
            // An event that stands for it stands before what was submitted since.
            Some(item) => item.event = None,
            None => self.0.push(Item { used, event: None }),
        }
    }

    /// These streams are not asked about any more.
    pub fn forget(&mut self, which: impl Fn(&Used) -> bool) {
        self.0.retain(|item| !which(&item.used));
    }

    /// Waits until all is done, or enough of it, at most until the deadline.
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

    /// Asks once; what is done leaves the list. Returns whether nothing is left.
    pub fn is_finished(&mut self) -> bool {
        if self.0.is_empty() {
            return true;
        }
        context::relaxed(|| {
            let mut asked = std::mem::take(&mut self.0);
            while let Some(context) = asked.first().map(|item| item.used.context) {
                let here: Vec<Item> = asked
                    .extract_if(.., |item| item.used.context == context)
                    .collect();
                // A context that cannot be made current any more has nothing left that could run.
                context::with_current(context, || {
                    self.0.extend(here.into_iter().filter_map(Item::if_busy))
                });
            }
        });
        self.0.is_empty()
    }
}

impl Item {
    /// Itself, unless it is done or may not be asked. Its context is current.
    fn if_busy(mut self) -> Option<Self> {
        let stream = self.used.stream as CUstream;
        if stream == CU_STREAM_PER_THREAD && self.event.is_none() {
            // It stands behind all that the blocking streams of the context have been given.
            self.event = Some(Event::record(None, CU_STREAM_LEGACY as usize)?);
        }
        if let Some(event) = &self.event {
            return event.is_pending().then_some(self);
        }
        if context::is_left_alone(self.used.stream) {
            return None;
        }
        // SAFETY: a stream the application used and has not destroyed: destroying waits for us.
        (unsafe { call::cuStreamQuery(stream) } == Err(CUDA_ERROR_NOT_READY)).then_some(self)
    }
}

/// An event we made. Who ends its context drops it before.
pub struct Event(CUevent);

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Records an event, this one or a new one, behind all that the stream known as `key` was given. `None` if that would
    /// break a capture, or the driver refuses.
    pub fn record(spare: Option<Event>, key: usize) -> Option<Event> {
        if context::is_left_alone(key) {
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
