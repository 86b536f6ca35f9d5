//! The end of a guest: at exit, or when its slot is no longer its own.

use std::{
    sync::atomic::Ordering::*,
    time::{Duration, Instant},
};

use crate::{
    eviction,
    managed_process::{self, Device, Guest, guest},
    notice::{self, Cause},
    sys::{
        caller_state::Uncancelled,
        futex::{self, Watch},
    },
    trace,
};

/// Our slot is no longer ours: another process wrote over the segment. From here on the process runs unmanaged, and threads
/// that wait for the lock go on without it. A limit of its memory is kept by refusing what it allocates from then on.
pub fn step_aside(guest: &Guest) {
    let is_limited = |device: &Device| device.ledger.room().is_some();
    let limits = if guest.devices.iter().any(is_limited) {
        // Before the guest is gone: no allocation finds neither.
        managed_process::lose_limit();
        ", and its allocations are refused, for its memory limit cannot be kept any more; start the program again"
    } else if guest.environment.limits.asks() {
        ", without the limit it was started with"
    } else {
        ""
    };
    notice::once(
        Cause::Overwritten,
        format_args!(
            "the shared segment was overwritten; this process continues unmanaged{limits}"
        ),
    );
    guest.leaving.store(true, Relaxed);
    guest.tracer.end(guest);
    if let Some(page) = managed_process::page() {
        page.unmanaged.open(trace::is_on());
        // ORDER: as in `decide`; guests are never freed, so a thread that still has this one may go on using it.
        page.guest.store(std::ptr::null_mut(), Release);
    }
}

/// At exit, on any thread: the lock is handed over, the slot is given back.
pub extern "C" fn leave() {
    let Some(guest) = guest() else { return };
    if guest.pid != std::process::id() {
        return;
    }
    let _uncancelled = Uncancelled::enter();
    guest.leaving.store(true, Relaxed);
    eviction::leave(guest);
    guest.ring();
    // The keeper gives the lock up and leaves. It is not waited for long: the process has to end.
    let until = Instant::now() + Duration::from_millis(500);
    // ORDER: pairs with the Release at the keeper's end; what it gave up is seen.
    while guest.keeper_gone.load(Acquire) == 0 && Instant::now() < until {
        let watch = Watch {
            word: &guest.keeper_gone,
            seen: 0,
            private: true,
        };
        futex::wait_any(&[watch], Duration::from_millis(10));
    }
    guest.tracer.end(guest);
    guest.tracer.wait_for_files();
    // What still runs runs as if we were not there: static destructors that free, threads that launch.
    if let Some(page) = managed_process::page() {
        // Nothing runs any more on a device that the process is not on: its door stays shut.
        if !eviction::is_away() {
            page.unmanaged.open(trace::is_on());
        }
        page.guest.store(std::ptr::null_mut(), Relaxed);
    }
    guest.registration.leave();
}
