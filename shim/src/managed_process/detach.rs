//! The end of a managed process: at exit, or when its slot is no longer its own.

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

/// Our slot is no longer ours: another process wrote over the segment. From here on the process runs unmanaged, and threads
/// that wait for the lock go on without it. A limit of its memory is kept by refusing what it allocates from then on.
pub fn continue_unmanaged(process: &ManagedProcess) {
    let is_limited = |device: &Device| device.ledger.room().is_some();
    let limits = if process.devices.iter().any(is_limited) {
        // Before the process is gone: no allocation finds neither.
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
        // ORDER: as in `decide`; managed processes are never freed, so a thread that still has this one may go on using it.
        page.process.store(std::ptr::null_mut(), Release);
    }
}

/// At exit, on any thread: the lock is handed over, the slot is given back.
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
    // The keeper gives the lock up and leaves. It is not waited for long: the process has to end.
    let until = Instant::now() + Duration::from_millis(500);
    // ORDER: pairs with the Release at the keeper's end; what it gave up is seen.
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
    // What still runs runs as if we were not there: static destructors that free, threads that launch.
    if let Some(page) = managed_process::page() {
        // Nothing runs any more on a device that the process is not on: its door stays shut.
        if !eviction::is_evicted() {
            page.unmanaged.open(trace::is_on());
        }
        page.process.store(std::ptr::null_mut(), Relaxed);
    }
    process.registration.leave();
}
