//! The keeper's side: follows the operator's orders, publishes buffers and takes them down, says how far they are.

use std::{
    ptr::null_mut,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::*},
    time::{Duration, Instant},
};

use shm_layout::{
    Event, EventKind, Uuid, clock,
    trace::{self, Buffer, Order, Progress, TraceError, TraceState},
};

use super::{FIRST_INIT, ON, Trace, log::Log, quiet};
use crate::{
    barrier, futex, gate,
    guest::Guest,
    symbols::{INFO, Symbol},
    thread,
};

// A buffer has a name and a row for every function of the table.
const _: () = assert!(crate::symbols::COUNT <= trace::CALLS);

/// How long a thread may take to finish a write; a buffer that is written for longer stays mapped for ever.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is traced, and on whose account.
#[derive(Default)]
pub struct Tracer(Mutex<Current>);

#[derive(Default)]
struct Current {
    /// The order that was obeyed last.
    order: Option<Order>,
    state: TraceState,
    shared: Option<Arc<Buffer>>,
    log: Option<Log>,
    /// The process is ending: nothing is begun any more.
    over: bool,
}

/// The exported names by call code.
pub(super) fn names() -> Vec<&'static str> {
    INFO.iter().map(|info| info.name).collect()
}

/// What every buffer of this process is told.
pub(super) fn with_guest<T>(guest: &Guest, make: impl FnOnce(trace::Guest<'_>) -> T) -> T {
    let devices: Vec<Uuid> = guest.devices.iter().map(|device| device.uuid).collect();
    make(trace::Guest {
        calls: &names(),
        devices: &devices,
    })
}

impl Tracer {
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At registration: `PFLOG` wants its files.
    pub fn start_log(&self, guest: &Guest) {
        let Some(dir) = &guest.environment.profile else {
            return;
        };
        let mut current = self.lock();
        current.log = with_guest(guest, |made| Log::start(dir, made));
        if let Some(log) = &current.log {
            let [began, took] = &FIRST_INIT;
            log.first(Symbol::cuInit, began.load(Relaxed), took.load(Relaxed));
            publish(guest, &current);
        }
        say(guest, &current);
    }

    /// Follows the operator's order. When it returns, every launch that begins is traced, or none is.
    pub fn follow(&self, guest: &Guest) {
        let order = guest.registration.trace_order();
        let mut current = self.lock();
        if order == current.order || current.over {
            return;
        }
        current.order = order;
        let opened = order.map(|_| {
            let registration = &guest.registration;
            let dir = registration.segments().dir();
            with_guest(guest, |made| Buffer::adopt(dir, registration.slot(), made))
        });
        let (state, next) = match opened {
            None => (TraceState::Off, None),
            Some(Ok(buffer)) => (TraceState::On, Some(Arc::new(buffer))),
            Some(Err(error)) => {
                refused(guest, &error);
                (TraceState::of_error(&error), None)
            }
        };
        let before = std::mem::replace(&mut current.shared, next);
        current.state = state;
        publish(guest, &current);
        if let Some(buffer) = before {
            close(guest, &buffer);
        }
        say(guest, &current);
    }

    /// The keeper's beat.
    pub fn tick(&self, guest: &Guest, now: u64) {
        let mut current = self.lock();
        if let Some(buffer) = &current.shared {
            buffer.seen(now);
        }
        if let Some(log) = &mut current.log {
            log.tick(now);
            let fresh = log
                .is_filling()
                .then(|| with_guest(guest, |made| log.next(made)));
            if let Some(Some(full)) = fresh {
                publish(guest, &current);
                if let Some(log) = &mut current.log {
                    log.finish(full);
                }
            }
        }
        if current.shared.is_some() || current.log.is_some() {
            say(guest, &current);
        }
    }

    /// The process ends, or is not ours to trace any more: what was written is complete.
    pub fn end(&self, guest: &Guest) {
        // Who holds it is about to do the same.
        let Ok(mut current) = self.0.try_lock() else {
            return;
        };
        current.over = true;
        let (shared, log) = (current.shared.take(), current.log.take());
        if shared.is_none() && log.is_none() {
            return;
        }
        publish(guest, &current);
        if let Some(buffer) = shared {
            close(guest, &buffer);
            current.shared = Some(buffer);
            say(guest, &current);
            current.shared = None;
        }
        if let Some(log) = log {
            log.end();
        }
    }
}

/// Makes all threads write where `current` says. What they wrote to before is theirs no more when it returns.
fn publish(guest: &Guest, current: &Current) {
    let Some(page) = gate::page() else { return };
    let next = Trace {
        shared: current.shared.clone(),
        private: current.log.as_ref().map(Log::buffer),
    };
    let on = next.shared.is_some() || next.private.is_some();
    let next = if on {
        Box::into_raw(Box::new(next))
    } else {
        null_mut()
    };
    // ORDER: Release publishes the trace to `writing`; Acquire for the one that comes back.
    let before = page.trace.swap(next, AcqRel);
    ON.store(on, Relaxed);
    for device in &guest.devices {
        device.turn.retrace(device);
    }
    // Every launching thread sees its gate as it is now.
    barrier::heavy();
    quiet::changed();
    let until = Instant::now() + PATIENCE;
    while thread::all().any(|thread| quiet::is_writing(&thread.tracing.mark)) {
        if Instant::now() > until {
            return;
        }
        futex::nap(Duration::from_micros(20));
    }
    if !before.is_null() {
        // SAFETY: it was published by us, is the only one of its kind, and no thread has it any more.
        drop(unsafe { Box::from_raw(before) });
    }
}

/// The holds that go on are the last records.
fn close(guest: &Guest, buffer: &Buffer) {
    let now = clock::now();
    for device in &guest.devices {
        if let Some(since) = device.turn.held_since() {
            buffer.hold(since, now.saturating_sub(since), device.ordinal, None);
        }
    }
    buffer.stopped(now);
}

/// Shows how far it is.
fn say(guest: &Guest, current: &Current) {
    let shared = current.shared.as_ref().map(|buffer| buffer.length());
    let length = shared.or(current.log.as_ref().map(Log::length));
    let length = length.unwrap_or_default();
    guest.registration.trace_progress(&Progress {
        state: if current.over {
            TraceState::Off
        } else {
            current.state
        },
        logs: current.log.is_some(),
        records: length.records,
        dropped: length.dropped,
    });
}

/// The operator learns it from the slot and from the events; the guest's terminal is not the place.
fn refused(guest: &Guest, error: &TraceError) {
    let slot = guest.registration.slot();
    guest.registration.segments().state().publish(Event {
        seq: 0,
        time_ns: clock::now(),
        slot: slot.index,
        epoch: slot.epoch,
        device: u8::MAX,
        kind: EventKind::Trouble,
        arg0: TraceState::of_error(error) as u64,
        arg1: 0,
        call: u16::MAX,
    });
}
