//! Writing down what the guest calls, while somebody asked for it.
//!
//! ```text
//!   operator ── edit ──▶ keeper: tracer ── opens the buffer, publishes it, turns the open gates to "traced"
//!                                                  ▼
//!   application ── call ──▶ hook ── begin … end ──▶ buffer      quiet: it stays mapped while a thread writes
//! ```
//!
//! Off, it costs the launch path nothing: `fast` and [`submit`](crate::launch::submit) look at their gate and at nothing
//! else. While a trace is on an open gate says `TRACED` instead of `OPEN`, which neither of them takes for open; the
//! slow road takes it, and times the call. All other hooks ask one flag.
//!
//! A call's time is the application's: from the hook to the answer. Waiting for the lock is part of it, told apart by
//! its own record and sum. What a hook does for itself before it asks the driver is in there too.
//!
//! A forked child starts without: the buffer hangs on the page that it finds empty ([`gate`](crate::gate)).
#![allow(unsafe_code, reason = "reaches the published trace")]

pub mod early;
mod log;
mod publish;
mod quiet;
mod tracer;

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::*},
    },
};

use shm_layout::{
    Reason, clock,
    trace::{Buffer, Call},
};

pub use tracer::Tracer;

use crate::{
    admission::Admission,
    bypass::Bypass,
    gate,
    guest::guest,
    launch::Work,
    symbols::Symbol,
    thread::{self, Thread},
};

/// Where calls are written to. Published whole, and changed by publishing another.
pub struct Trace {
    /// The operator's, or the launch's: a file for the tools.
    shared: Option<Arc<Buffer>>,
    /// Our own, for the files of `PFLOG`.
    private: Option<Arc<Buffer>>,
}

impl Trace {
    fn each(&self, mut write: impl FnMut(&Buffer)) {
        for buffer in [&self.shared, &self.private].into_iter().flatten() {
            write(buffer);
        }
    }
}

/// What a thread keeps for a trace. Only that thread writes; whoever takes a trace down reads the mark.
#[derive(Default)]
pub struct OfThread {
    mark: quiet::Mark,
    /// Its number, asked for once.
    tid: Cell<u32>,
    /// What it waited for locks within the call it is in.
    waited_ns: Cell<u64>,
}

impl OfThread {
    /// Another thread takes the record over.
    pub fn begins(&self) {
        self.tid.set(0);
        self.waited_ns.set(0);
        quiet::leave(&self.mark);
    }

    fn tid(&self) -> u32 {
        if self.tid.get() == 0 {
            // SAFETY: takes nothing.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) };
            self.tid.set(u32::try_from(tid).unwrap_or(0));
        }
        self.tid.get()
    }
}

/// Somebody wants calls written down. Only a hint: the page has the trace.
static ON: AtomicBool = AtomicBool::new(false);

/// Whether a trace is on.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Relaxed)
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

/// A submission that took the slow road has its answer.
#[cold]
#[inline(never)]
pub fn submitted(symbol: Symbol, began: u64, work: Work, admission: Admission) {
    let thread = thread::attached();
    let device = match admission {
        // The driver's own business, within a call that is written down.
        Admission::Aside(Bypass::Reentrant) => return,
        Admission::Aside(_) => device_of(thread),
        Admission::Inside(pass) => Some(pass.ordinal()),
    };
    let bytes = match work {
        Work::Copy(bytes) | Work::Copies(_, bytes) => bytes as u64,
        Work::Kernel | Work::Graph | Work::Memset => 0,
    };
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
        tid: thread.tracing.tid(),
        device,
    };
    writing(thread, |trace| trace.each(|buffer| buffer.call(&call)));
}

/// The device a thread is on, as far as that is known without asking the driver.
fn device_of(thread: &Thread) -> Option<u8> {
    let settled = thread.settled().map(|(_, ordinal)| ordinal);
    settled.or_else(|| guest().filter(|guest| guest.devices.len() == 1).map(|_| 0))
}

/// Runs `write` on the trace, if there is one. It stays where it is meanwhile.
fn writing(thread: &Thread, write: impl FnOnce(&Trace)) {
    let Some(_writing) = quiet::enter(&thread.tracing.mark) else {
        // A signal handler within a write of this very thread.
        return;
    };
    // ORDER: pairs with the Release in `publish`; the trace is whole.
    let trace = gate::page().map_or(std::ptr::null_mut(), |page| page.trace.load(Acquire));
    // SAFETY: NULL or a published trace; who takes it down waits until our mark is gone.
    if let Some(trace) = unsafe { trace.as_ref() } {
        write(trace);
    }
}

/// A wait for a device's lock that may be about to begin.
pub struct Waits {
    began: u64,
    before: u64,
}

/// The thread is about to ask for the lock.
#[inline]
pub fn waits() -> Waits {
    let (mut began, mut before) = (0, 0);
    if is_on() {
        began = clock::now();
        before = thread::current().map_or(0, |thread| thread.tracing.waited_ns.get());
    }
    Waits { began, before }
}

impl Waits {
    /// It has the lock, or goes on without. What it waited, if it did, becomes a record.
    pub fn ended(self, device: u8) {
        if self.began == 0 {
            return;
        }
        let thread = thread::attached();
        let waited = thread.tracing.waited_ns.get().saturating_sub(self.before);
        if waited != 0 {
            let tid = thread.tracing.tid();
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
        let (now, tid) = (clock::now(), thread.tracing.tid());
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

    #[test]
    fn an_open_gate_takes_the_fast_road_only_while_no_trace_is_on() {
        let gate = &gate::make().expect("a page").gates[0];
        let mut roads = Vec::new();
        for on in [false, true, false] {
            ON.store(on, Relaxed);
            gate.open();
            roads.push((gate.is_passable(), gate.is_open()));
        }
        gate.close();
        assert_eq!(roads, [(true, true), (true, false), (true, true)]);
        assert!(!gate.is_passable());
    }
}
