//! Putting up another trace for all threads, and taking the one before down.

use std::{
    ptr::null_mut,
    sync::{Arc, atomic::Ordering::*},
    time::{Duration, Instant},
};

use shm_layout::{clock, trace::Buffer};

use super::{ON, Trace, quiet};
use crate::{barrier, futex, gate, guest::Guest, thread};

/// How long a thread may take to finish a write; a buffer that is written for longer stays mapped for ever.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes all threads write to these buffers. What they wrote to before is theirs no more when it returns.
pub fn publish(guest: &Guest, shared: Option<Arc<Buffer>>, private: Option<Arc<Buffer>>) {
    let Some(page) = gate::page() else { return };
    let on = shared.is_some() || private.is_some();
    let next = if on {
        Box::into_raw(Box::new(Trace { shared, private }))
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
    if nobody_has_the_old_one() && !before.is_null() {
        // SAFETY: it was published by us, is the only one of its kind, and no thread has it any more.
        drop(unsafe { Box::from_raw(before) });
    }
}

/// Waits until every thread was seen outside a write since the pointer was changed.
fn nobody_has_the_old_one() -> bool {
    quiet::changed();
    let until = Instant::now() + PATIENCE;
    for thread in thread::all() {
        let mark = &thread.tracing.mark;
        let seen = quiet::look(mark);
        while !quiet::has_left(mark, seen) {
            if Instant::now() > until {
                return false;
            }
            futex::nap(Duration::from_micros(20));
        }
    }
    true
}

/// The holds that go on are the last records.
pub fn close(guest: &Guest, buffer: &Buffer) {
    let now = clock::now();
    for device in &guest.devices {
        if let Some(since) = device.turn.held_since() {
            buffer.hold(since, now.saturating_sub(since), device.ordinal, None);
        }
    }
    buffer.stopped(now);
}
