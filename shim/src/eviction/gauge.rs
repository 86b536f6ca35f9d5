//! A thread that asks NVML for the free memory of the devices.
//!
//! In a process that is checkpointed, NVML does not return before the restore (580.159.04), because a lock inside it
//! is held. The evictor asks this thread, waits up to 0.3 s, and asks no more while a question is open. It then
//! relies on the accounts, and on the use outside of them as last measured by this or another process.
#![allow(unsafe_code, reason = "gives the thread its name")]

use std::{
    ffi::c_void,
    sync::atomic::Ordering::*,
    time::{Duration, Instant},
};

use crate::{
    driver_query::card::Card,
    managed_process::{Device, ManagedProcess},
    sys::{
        futex::{self, Watch},
        own_thread,
    },
    thread,
};

/// Longest wait for NVML's figures.
const PATIENCE: Duration = Duration::from_millis(300);

/// Returns the free bytes of a device, or `None` if NVML does not report them in time.
pub fn free_bytes(process: &'static ManagedProcess, device: &Device) -> Option<u64> {
    let gauge = &process.eviction.gauge;
    if !gauge.is_started.swap(true, Relaxed) && !own_thread::start_large(process, body) {
        gauge.is_started.store(false, Relaxed);
        return None;
    }
    if gauge.asked.load(Relaxed) != gauge.answered.load(Acquire) {
        return None;
    }
    let question = gauge.asked.fetch_add(1, Relaxed).wrapping_add(1);
    futex::wake_private(&gauge.asked);
    let until = Instant::now() + PATIENCE;
    loop {
        // ORDER: pairs with the Release in `body`, so that the figures are visible.
        let answered = gauge.answered.load(Acquire);
        if answered == question {
            let free = gauge.free.get(usize::from(device.ordinal))?;
            return free.load(Relaxed).checked_sub(1);
        }
        let left = until.checked_duration_since(Instant::now())?;
        let watch = Watch {
            word: &gauge.answered,
            seen: answered,
            private: true,
        };
        futex::wait_any(&[watch], left);
    }
}

extern "C" fn body(process: *mut c_void) -> *mut c_void {
    // SAFETY: `free_bytes` passes a managed process, which is never freed.
    let process: &'static ManagedProcess = unsafe { &*process.cast::<ManagedProcess>() };
    let _unwatched = own_thread::begin(c"gpushare-nvml");
    let _inside = thread::Inside::enter_as_ours();
    let gauge = &process.eviction.gauge;
    let mut seen = 0;
    while !process.is_leaving() {
        let question = gauge.asked.load(Relaxed);
        if question == seen {
            let watch = Watch {
                word: &gauge.asked,
                seen,
                private: true,
            };
            futex::wait_any(&[watch], PATIENCE);
            continue;
        }
        for (device, free) in process.devices.iter().zip(&gauge.free) {
            let bytes = Card::of(device.uuid).and_then(|card| card.free_bytes());
            free.store(bytes.map_or(0, |bytes| bytes.saturating_add(1)), Relaxed);
        }
        seen = question;
        // ORDER: Release publishes the figures.
        gauge.answered.store(question, Release);
        futex::wake_private(&gauge.answered);
    }
    gauge.is_started.store(false, Relaxed);
    std::ptr::null_mut()
}
