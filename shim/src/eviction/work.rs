//! Finds out that all submitted work is done while the application's calls go on.
//!
//! An event is recorded behind all work of each context and queried at the next looks, until the application submits more. The
//! keeper does this before calls are suspended, so that a process with a long kernel is not suspended for nothing.
//!
//! The driver breaks a capture if an event is recorded behind all work of its context, and an event must not outlive its context. So
//! the marks are used under a lock that the hooks take before a capture begins or a context ends ([`forget`]). Its caller is inside a
//! call, and nothing is recorded while a thread is.

use std::sync::PoisonError;

use shm_layout::clock;

use crate::{
    driver_query::context,
    eviction::{state::WorkMarks, swap},
    managed_process::ManagedProcess,
    thread,
    turn::drain::Event,
};

/// Time within which an idle device reaches an event, in nanoseconds. A card takes some microseconds.
const REACHED_NS: u64 = 20_000_000;

/// Returns true if all work is done that the application has submitted up to the last look, and none of its threads is in a
/// request. Returns `None` if that is unknown: the events were recorded so recently that an idle device may not have reached them.
/// The driver must return to the calling thread.
pub fn is_done(process: &ManagedProcess) -> Option<bool> {
    let requests = process.eviction.usage.requests();
    let marks = process.eviction.marks.lock();
    let mut marks = marks.unwrap_or_else(PoisonError::into_inner);
    if is_calling() || process.memory.captures.is_any() {
        return Some(false);
    }
    context::relaxed(|| {
        if marks.requests != requests {
            drop_all(&mut marks);
            record(process, &mut marks);
            (marks.requests, marks.recorded_ns) = (requests, clock::now());
        }
        marks.look();
    });
    let is_done = marks.pending.is_empty();
    let are_reached = clock::now().saturating_sub(marks.recorded_ns) >= REACHED_NS;
    (is_done || are_reached).then_some(is_done)
}

/// Runs `work` while no capture begins and no context ends, if none of the application's threads is in a request. The driver
/// must return to the calling thread.
pub fn undisturbed(process: &ManagedProcess, work: impl FnOnce()) {
    let marks = process.eviction.marks.lock();
    let _held = marks.unwrap_or_else(PoisonError::into_inner);
    if !is_calling() && !process.memory.captures.is_any() {
        context::relaxed(work);
    }
}

/// Returns true if a thread of the application is in a request.
fn is_calling() -> bool {
    let mut requests =
        thread::all().filter(|thread| super::is_a_call(thread) && !thread.is_asking());
    requests.any(|thread| !thread.is_the_drivers())
}

/// Drops the marks, before a context ends or a capture begins. The caller is inside a call.
pub fn forget(process: &ManagedProcess) {
    let marks = process.eviction.marks.lock();
    drop_all(&mut marks.unwrap_or_else(PoisonError::into_inner));
}

/// A context whose event the driver does not record is left to the evictor, which waits with calls suspended.
fn record(process: &ManagedProcess, marks: &mut WorkMarks) {
    for context in swap::contexts(process) {
        context::with_current(context, || {
            let event = Event::behind_all(context).ok();
            marks.pending.extend(event.map(|event| (context, event)));
        });
    }
}

fn drop_all(marks: &mut WorkMarks) {
    marks.requests = 0;
    for (context, event) in marks.pending.drain(..) {
        context::with_current(context, || drop(event));
    }
}

impl WorkMarks {
    /// Removes the marks whose work is done.
    fn look(&mut self) {
        for (context, event) in std::mem::take(&mut self.pending) {
            context::with_current(context, || {
                if event.is_pending() {
                    self.pending.push((context, event));
                }
            });
        }
    }
}
