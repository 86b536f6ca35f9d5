//! Detachment: the end of a managed process at exit, or when it has lost its slot.

use std::{
    sync::atomic::Ordering::*,
    time::{Duration, Instant},
};

use crate::{
    eviction,
    managed_process::{self, Device, ManagedProcess},
    notice::{self, Cause},
    sys::{
        caller_state::Uncancelled,
        futex::{self, Watch},
    },
    trace,
};

/// Continues unmanaged after another process has overwritten the segment. Threads that wait for the lock continue
/// without it. A process with a memory limit keeps it in that all further allocations are denied.
pub fn continue_unmanaged(process: &ManagedProcess) {
    let is_limited = |device: &Device| device.ledger.room().is_some();
    let limits = if process.devices.iter().any(is_limited) {
        // Recorded before the process is removed, so that every allocation finds one of the two.
        managed_process::lose_limit();
        ", and its allocations are refused, for its memory limit cannot be kept any more; start the program again"
    } else if process.environment.limits.asks() {
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
    process.leaving.store(true, Relaxed);
    process.tracer.end(process);
    if let Some(page) = managed_process::page() {
        page.unmanaged.open(trace::is_on());
        // ORDER: as in `decide`. Managed processes are never freed, so a thread that still has this one may continue
        // to use it.
        page.process.store(std::ptr::null_mut(), Release);
    }
}

/// Hands the lock over and releases the slot at exit, on any thread.
pub extern "C" fn at_exit() {
    let Some(process) = managed_process::current() else {
        return;
    };
    if process.pid != std::process::id() {
        return;
    }
    let _uncancelled = Uncancelled::enter();
    process.leaving.store(true, Relaxed);
    eviction::leave(process);
    process.ring();
    // The keeper releases the lock and ends. The wait is limited, because the process has to end.
    let until = Instant::now() + Duration::from_millis(500);
    // ORDER: Acquire pairs with the Release at the keeper's end, so that its releases are visible.
    while process.keeper_gone.load(Acquire) == 0 && Instant::now() < until {
        let watch = Watch {
            word: &process.keeper_gone,
            seen: 0,
            private: true,
        };
        futex::wait_any(&[watch], Duration::from_millis(10));
    }
    process.tracer.end(process);
    process.tracer.wait_for_files();
    // Code that still runs (static destructors that free, threads that launch) runs unmanaged.
    if let Some(page) = managed_process::page() {
        // An evicted process can run nothing on the device any more, so its calls stay suspended.
        if !eviction::is_evicted() {
            page.unmanaged.open(trace::is_on());
        }
        page.process.store(std::ptr::null_mut(), Relaxed);
    }
    process.registration.leave();
}
