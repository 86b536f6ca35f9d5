//! Putting up another trace for all threads, and taking the one before down.
#![allow(unsafe_code, reason = "frees the trace before")]

use std::{
    ptr::null_mut,
    sync::{Arc, atomic::Ordering::*},
    time::{Duration, Instant},
};

use shm_layout::{clock, trace::Buffer};

use super::state::Trace;
use crate::{
    guest::{self, Guest},
    protocol::quiescence,
    sys::{barrier, futex},
    thread, trace,
};

/// How long a thread may take to finish a write; a buffer that is written for longer stays mapped for ever.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes all threads write to these buffers. When it returns, no thread writes to the buffers before them, as far as can be waited for.
pub fn publish(guest: &Guest, shared: Option<Arc<Buffer>>, private: Option<Arc<Buffer>>) {
    let Some(page) = guest::page() else { return };
    let on = shared.is_some() || private.is_some();
    let next = if on {
        Box::into_raw(Box::new(Trace { shared, private }))
    } else {
        null_mut()
    };
    // ORDER: Release publishes the trace to `writing`; Acquire for the one that comes back.
    let before = page.trace.swap(next, AcqRel);
    trace::switch(on);
    for device in &guest.devices {
        device.turn.retrace(device);
    }
    // Every launching thread sees its gate as it is now.
    barrier::heavy();
    if old_one_is_unused() && !before.is_null() {
        // SAFETY: it was published by us, is the only one of its kind, and no thread has it any more.
        drop(unsafe { Box::from_raw(before) });
    }
}

/// Waits until every thread was seen outside a write since the pointer was changed.
fn old_one_is_unused() -> bool {
    quiescence::changed();
    let until = Instant::now() + PATIENCE;
    for thread in thread::all() {
        let mark = &thread.tracing.mark;
        let seen = quiescence::look(mark);
        while !quiescence::has_left(mark, seen) {
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
