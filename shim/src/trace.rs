//! Writing down what the process calls, while a trace is asked for.
//!
//! ```text
//!   operator ── edit ──▶ keeper: tracer ── opens the buffer, publishes it, turns the open gates to "traced"
//!                                                  ▼
//!   application ── call ──▶ hook ── begin … end ──▶ buffer      quiescence: it stays mapped while a thread writes
//! ```
//!
//! Off, it costs the launch path nothing: `fast` and [`submit`](crate::hooks::launch::submit) look at their gate and at nothing
//! else. While a trace is on an open gate says `TRACED` instead of `OPEN`, which neither of them takes for open; the
//! slow path takes it, and times the call. All other hooks ask one flag.
//!
//! A call's time is the application's: from the hook to the answer. Waiting for the lock is part of it, told apart by
//! its own record and sum. What a hook does for itself before it asks the driver is in there too.
//!
//! A forked child starts without: the buffer hangs on the page that it finds empty ([`managed_process`](crate::managed_process)).
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

/// A trace is asked for. Only a hint: the page has the trace.
static ON: AtomicBool = AtomicBool::new(false);

/// Whether a trace is on.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// A trace was published, or the last one taken down.
pub fn switch(on: bool) {
    ON.store(on, Relaxed);
}

/// A call begins: the time, or 0 while no trace is on.
#[inline(always)]
pub fn begin() -> u64 {
    if is_on() { begin_timed() } else { 0 }
}

#[cold]
#[inline(never)]
fn begin_timed() -> u64 {
    clock::now()
}

/// A call that began at `began` has its answer.
#[cold]
#[inline(never)]
pub fn end(symbol: Symbol, began: u64, bytes: u64) {
    let thread = thread::attached();
    write_call(thread, symbol, began, bytes, device_of(thread));
}

/// A submission that took the slow path has its answer; `device` is the one it was let in to.
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
        // Not set to zero when a call begins: the driver's own calls begin within the application's. What is left from
        // a call that a trace began in the middle of cannot be longer than this one.
        waited_ns: thread.tracing.waited_ns.take().min(duration_ns),
        bytes,
        tid: thread.tid(),
        device,
    };
    writing(thread, |trace| trace.each(|buffer| buffer.call(&call)));
}

/// The device a thread is on, as far as that is known without asking the driver.
fn device_of(thread: &Thread) -> Option<u8> {
    let bound = thread.bound().map(|(_, ordinal)| ordinal);
    bound.or_else(|| {
        managed_process::current()
            .filter(|process| process.devices.len() == 1)
            .map(|_| 0)
    })
}

/// Runs `write` on the trace, if there is one. It stays where it is meanwhile.
fn writing(thread: &Thread, write: impl FnOnce(&Trace)) {
    let Some(_writing) = quiescence::enter(&thread.tracing.mark) else {
        // A signal handler within a write of this very thread.
        return;
    };
    // ORDER: pairs with the Release in `publish`; the trace is whole.
    let trace = page().map_or(std::ptr::null_mut(), |page| page.trace.load(Acquire));
    // SAFETY: NULL or a published trace; who takes it down waits until our mark is gone.
    if let Some(trace) = unsafe { trace.as_ref() } {
        write(trace);
    }
}

/// A wait for a device's lock that may be about to begin.
pub struct LockWait {
    began: u64,
    before: u64,
}

/// The thread is about to ask for the lock.
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
    /// It has the lock, or goes on without. What it waited, if it did, becomes a record.
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

/// The calling thread is about to wait for the lock: the time, or 0 while no trace is on.
#[inline]
pub fn begin_wait() -> u64 {
    if is_on() { clock::now() } else { 0 }
}

/// The calling thread waited for the lock until now; `since` is what [`begin_wait`] said.
pub fn waited_since(since: u64) {
    if since != 0 {
        waited(clock::now().saturating_sub(since));
    }
}

/// The calling thread waited so long for the lock.
pub fn waited(ns: u64) {
    if let Some(thread) = thread::current().filter(|_| is_on()) {
        let sum = thread.tracing.waited_ns.get().saturating_add(ns);
        thread.tracing.waited_ns.set(sum);
    }
}

/// A hold of a device's lock has ended.
pub fn held(device: u8, since: u64, reason: Reason) {
    if is_on() {
        let duration = clock::now().saturating_sub(since);
        writing(thread::attached(), |trace| {
            trace.each(|buffer| buffer.hold(since, duration, device, Some(reason)));
        });
    }
}

/// An allocation was denied.
pub fn denied(symbol: Symbol, device: u8, bytes: u64) {
    if is_on() {
        let thread = thread::attached();
        let (now, tid) = (clock::now(), thread.tid());
        writing(thread, |trace| {
            trace.each(|buffer| buffer.denial(symbol as u16, now, bytes, tid, device));
        });
    }
}

/// In a forked child: the parent's trace is not ours.
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
