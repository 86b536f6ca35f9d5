//! Tracing: the record of the process's calls while a trace is on.
//!
//! ```text
//!   operator ── edit ──▶ keeper: tracer ── opens the buffer, publishes it, turns the open gates to "traced"
//!                                                  ▼
//!   application ── call ──▶ hook ── begin … end ──▶ buffer      quiescence: it stays mapped while a thread writes
//! ```
//!
//! Without a trace it costs the launch path nothing: `fast` and [`submit`](crate::hooks::launch::submit) check only
//! their gate. While a trace is on, an open gate is `TRACED` instead of `OPEN`, which the fast path does not accept.
//! The slow path accepts it and measures the call. All other hooks check one flag.
//!
//! The duration of a call is what the application sees: from the hook to the result. It includes the wait for the
//! lock, which also has a record and a sum of its own, and the work of a hook before it calls the driver.
//!
//! A forked child starts without a trace: the buffer hangs on the page that is empty in it
//! ([`crate::managed_process`]).
#![allow(unsafe_code, reason = "reaches the published trace")]

pub mod control;
pub mod early;
pub mod quiescence;
pub mod state;

use std::sync::atomic::{AtomicBool, Ordering::*};

use shm_layout::{Reason, clock, trace::Call};
use state::Trace;

use crate::{
    driver::Symbol,
    managed_process::{self, page},
    thread::{self, Thread},
};

/// Set while a trace is requested. It is only a hint; the page has the trace.
static ON: AtomicBool = AtomicBool::new(false);

/// Returns true if a trace is on.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Records that a trace was published, or the last one removed.
pub fn switch(on: bool) {
    ON.store(on, Relaxed);
}

/// Returns the time at which a call begins, or 0 while no trace is on.
#[inline(always)]
pub fn begin() -> u64 {
    if is_on() { begin_timed() } else { 0 }
}

#[cold]
#[inline(never)]
fn begin_timed() -> u64 {
    clock::now()
}

/// Records a call that began at `began` and has ended.
#[cold]
#[inline(never)]
pub fn end(symbol: Symbol, began: u64, bytes: u64) {
    let thread = thread::attached();
    write_call(thread, symbol, began, bytes, device_of(thread));
}

/// Records a submission that took the slow path and has ended; `device` is the one whose gate admitted it.
#[cold]
#[inline(never)]
pub fn submitted(symbol: Symbol, began: u64, bytes: u64, device: Option<u8>) {
    let thread = thread::attached();
    let device = device.or_else(|| device_of(thread));
    write_call(thread, symbol, began, bytes, device);
}

fn write_call(thread: &Thread, symbol: Symbol, began: u64, bytes: u64, device: Option<u8>) {
    let duration_ns = clock::now().saturating_sub(began);
    let call = Call {
        code: symbol as u16,
        start_ns: began,
        duration_ns,
        // Not reset when a call begins, because the driver's own calls begin within the application's. A rest from a
        // call during which a trace began is limited to the duration of this call.
        waited_ns: thread.tracing.waited_ns.take().min(duration_ns),
        bytes,
        tid: thread.tid(),
        device,
    };
    writing(thread, |trace| trace.each(|buffer| buffer.call(&call)));
}

/// Returns the device to which a thread is bound, without a query of the driver.
fn device_of(thread: &Thread) -> Option<u8> {
    let bound = thread.bound().map(|(_, ordinal)| ordinal);
    bound.or_else(|| {
        managed_process::current()
            .filter(|process| process.devices.len() == 1)
            .map(|_| 0)
    })
}

/// Runs `write` on the trace, if there is one. The trace is not removed during that time.
fn writing(thread: &Thread, write: impl FnOnce(&Trace)) {
    let Some(_writing) = quiescence::enter(&thread.tracing.mark) else {
        // A signal handler has interrupted a write of this thread.
        return;
    };
    // ORDER: Acquire pairs with the Release in `publish`; the trace is complete.
    let trace = page().map_or(std::ptr::null_mut(), |page| page.trace.load(Acquire));
    // SAFETY: NULL or a published trace; the thread that removes it waits until this thread's mark is even.
    if let Some(trace) = unsafe { trace.as_ref() } {
        write(trace);
    }
}

/// A possible wait for a device's lock.
pub struct LockWait {
    began: u64,
    before: u64,
}

/// Starts to measure a wait for the lock.
#[inline]
pub fn waits() -> LockWait {
    let (mut began, mut before) = (0, 0);
    if is_on() {
        began = clock::now();
        before = thread::current().map_or(0, |thread| thread.tracing.waited_ns.get());
    }
    LockWait { began, before }
}

impl LockWait {
    /// Records the wait, if there was one, after the thread has the lock or continues without it.
    pub fn ended(self, device: u8) {
        if self.began == 0 {
            return;
        }
        let thread = thread::attached();
        let waited = thread.tracing.waited_ns.get().saturating_sub(self.before);
        if waited != 0 {
            let tid = thread.tid();
            writing(thread, |trace| {
                trace.each(|buffer| buffer.wait(self.began, waited, tid, device));
            });
        }
    }
}

/// Returns the time at which the calling thread begins to wait for the lock, or 0 while no trace is on.
#[inline]
pub fn begin_wait() -> u64 {
    if is_on() { clock::now() } else { 0 }
}

/// Adds a wait for the lock that ends now; `since` is the result of [`begin_wait`].
pub fn waited_since(since: u64) {
    if since != 0 {
        waited(clock::now().saturating_sub(since));
    }
}

/// Adds `ns` nanoseconds of waiting for the lock to the calling thread's sum.
pub fn waited(ns: u64) {
    if let Some(thread) = thread::current().filter(|_| is_on()) {
        let sum = thread.tracing.waited_ns.get().saturating_add(ns);
        thread.tracing.waited_ns.set(sum);
    }
}

/// Records a hold of a device's lock that has ended.
pub fn held(device: u8, since: u64, reason: Reason) {
    if is_on() {
        let duration = clock::now().saturating_sub(since);
        writing(thread::attached(), |trace| {
            trace.each(|buffer| buffer.hold(since, duration, device, Some(reason)));
        });
    }
}

/// Records an allocation that was denied.
pub fn denied(symbol: Symbol, device: u8, bytes: u64) {
    if is_on() {
        let thread = thread::attached();
        let (now, tid) = (clock::now(), thread.tid());
        writing(thread, |trace| {
            trace.each(|buffer| buffer.denial(symbol as u16, now, bytes, tid, device));
        });
    }
}

/// Switches tracing off in a forked child, because the trace belongs to the parent.
pub fn forget_after_fork() {
    ON.store(false, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed_process::make;

    #[test]
    fn an_open_gate_takes_the_fast_path_only_while_no_trace_is_on() {
        let gate = &make().expect("a page").gates[0];
        let mut paths = Vec::new();
        for on in [false, true, false] {
            switch(on);
            gate.open(is_on());
            paths.push((gate.is_passable(), gate.is_open()));
        }
        gate.close();
        assert_eq!(paths, [(true, true), (true, false), (true, true)]);
        assert!(!gate.is_passable());
    }
}
