//! Host memory for the first eviction is made ahead, because it would take most of the time of that eviction: where memory of another
//! process of the device is on the host already, an idle process that has never left as a whole makes its own in small pieces.

use std::sync::atomic::Ordering::Relaxed;

use shm_layout::{Phase, clock};

use crate::{
    eviction::{ask, eligible, swap, upkeep, work},
    managed_process::{Device, ManagedProcess},
};

/// Divisor: memory that is made ahead leaves this part of the budget free, so that it is not given up at once when the host's free
/// memory changes a little.
const SLACK: u64 = 8;
/// Time without a request after which host memory is made ahead, in nanoseconds.
const IDLE: u64 = 100_000_000;
/// Time after a look that found no host memory for it, in nanoseconds: it reads several files of the kernel.
const AGAIN: u64 = 1_000_000_000;
/// Longest time at a heartbeat for it, in nanoseconds, and for the piece that is begun in it.
const AT_A_TIME: u64 = 30_000_000;

/// Makes host memory for the first eviction while the process is idle.
pub fn make(process: &ManagedProcess) {
    let now = clock::now();
    let Some(bytes) = bytes_to_be_made(process, now) else {
        return;
    };
    let mut has_more = true;
    while has_more && clock::now() < now.saturating_add(AT_A_TIME) {
        has_more = false;
        let _ = ask(process, || {
            work::undisturbed(process, || has_more = swap::prepare(process, bytes));
        });
    }
    let kept = process.memory.swap_buffer.bytes();
    process.registration.publish_host_bytes(kept);
}

/// Returns for how many bytes host memory is to be made ahead; `None` if it is there, or not wanted.
fn bytes_to_be_made(process: &ManagedProcess, now: u64) -> Option<u64> {
    let (eviction, swap_buffer) = (&process.eviction, &process.memory.swap_buffer);
    let may_leave = process.environment.swappable
        && eviction.phase() == Phase::Resident
        && !eviction.has_left_whole.load(Relaxed)
        && now >= eviction.usage.idle_at(IDLE)
        && !process.registration.share().pinned;
    if !may_leave {
        return None;
    }
    let kept = swap_buffer.bytes();
    let bytes = swap::bytes(process).filter(|bytes| *bytes > kept)?;
    let is_outgrown = |device: &Device| device.ledger.is_outgrown();
    let not_before = &eviction.ahead_not_before_ns;
    if now < not_before.load(Relaxed) || !process.devices.iter().any(is_outgrown) {
        return None;
    }
    let of_others = process.registration.host_bytes_kept();
    let fits = |budget| upkeep::fits(bytes, of_others, budget - budget / SLACK);
    if eligible::check(process).is_ok()
        && upkeep::budget(process, kept, of_others).is_some_and(fits)
    {
        return Some(bytes);
    }
    not_before.store(now.saturating_add(AGAIN), Relaxed);
    None
}
