//! The keeper's regular work for evictions, at each of its heartbeats: it measures devices for other processes, gives up
//! host copies, and publishes figures.
//!
//! *Free memory* is measured on behalf of evicted processes: after a checkpoint neither the driver nor NVML returns to a process,
//! and its restore must find room. Every keeper measures while another process is about to return to a device of its own process,
//! or waits to. It does so as well while memory is reserved there, because what is in no account cannot be reserved.
//!
//! *Host copies* take host memory while the process's memory is on its devices. Such a copy only saves time at the next
//! eviction, so it is given up when the host has other uses for its memory: first by the process whose memory moved least
//! recently.

use std::sync::atomic::Ordering::Relaxed;

use shm_layout::{HostMemory, Phase, clock};

use crate::{
    driver_query::{context, memory, transfer},
    eviction::{ask, swap, work},
    managed_process::{Device, ManagedProcess},
    sys::{host_memory, large_pages},
};

/// Divisor: unless the operator sets a budget, the kept copies of all processes may have this part of the host memory that would be
/// free without them.
const PART: u64 = 2;
/// Time between two checks, in nanoseconds.
const EVERY: u64 = 1_000_000_000;

/// Does the work of one heartbeat.
pub fn beat(process: &ManagedProcess) {
    let now = clock::now();
    measure_free(process);
    give_up_copies(process, now);
    if process.eviction.figures.is_due(now) {
        publish_figures(process, now);
    }
}

/// Publishes the figures about evictions on every device.
pub fn publish_figures(process: &ManagedProcess, now: u64) {
    let devices = process.devices.iter();
    let counters = devices.map(|device| process.registration.count(device.entry));
    process.eviction.figures.publish(counters, now);
}

/// Measures the devices that an evicted process is to return to, or that have memory reserved.
fn measure_free(process: &ManagedProcess) {
    for device in &process.devices {
        let ledger = &device.ledger;
        let is_needed = ledger.is_return_under_way() || ledger.has_reserves();
        if is_needed && !process.memory.captures.is_any() {
            let _ = ask(process, || publish_free(process, device));
        }
    }
}

/// Publishes the free memory of a device. The driver must return to the calling thread.
pub fn publish_free(process: &ManagedProcess, device: &Device) {
    let contexts = swap::contexts(process);
    let here = contexts.into_iter().find(|context| {
        let ordinal = transfer::within(*context, || Ok(context::device_of_current()));
        ordinal == Ok(Some(device.ordinal.into()))
    });
    if let Some(context) = here {
        let free = || transfer::within(context, memory::free_bytes).ok();
        device.ledger.publish_free_surely(free);
    }
}

/// Gives the copies up if they are too large together with those of processes that moved later.
fn give_up_copies(process: &ManagedProcess, now: u64) {
    let (eviction, memory) = (&process.eviction, &process.memory);
    let looked = &eviction.looked_at_copies_ns;
    if !process.environment.swappable
        || now < looked.load(Relaxed).saturating_add(EVERY)
        || eviction.phase() != Phase::Resident
    {
        return;
    }
    looked.store(now, Relaxed);
    let kept = memory.swap_buffer.bytes();
    // A pinned process does not leave, so its copy saves nothing.
    if kept > 0 && (process.registration.share().pinned || is_too_much(process, kept)) {
        let _ = ask(process, || work::undisturbed(process, || give_up(process)));
        let kept = memory.swap_buffer.bytes();
        process.registration.publish_host_bytes(kept);
    }
}

fn is_too_much(process: &ManagedProcess, kept: u64) -> bool {
    let of_others = process.registration.host_bytes_kept();
    budget(process, kept, of_others).is_some_and(|budget| !fits(kept, of_others, budget))
}

/// Returns the bytes that all processes may keep together, where this one keeps `kept`; `None` if unknown.
pub fn budget(process: &ManagedProcess, kept: u64, of_others: (u64, u64)) -> Option<u64> {
    let devices = process.devices.iter();
    let set = devices.filter_map(|device| {
        let (policy, _) = process.registration.policy(device.entry);
        policy.host_memory_bytes.map(|HostMemory(bytes)| bytes)
    });
    let by_default = || Some(default_budget(kept, of_others, host_memory::available()?));
    set.min().or_else(by_default)
}

/// Returns the budget that nobody has set, where others keep `all`.
fn default_budget(kept: u64, (_, all): (u64, u64), available: u64) -> u64 {
    available.saturating_add(kept).saturating_add(all) / PART
}

/// Returns true if a process may keep this much, where others keep `newer` bytes for later moves.
pub fn fits(kept: u64, (newer, _): (u64, u64), budget: u64) -> bool {
    kept.saturating_add(newer) <= budget
}

fn give_up(process: &ManagedProcess) {
    let Some(context) = swap::contexts(process).first().copied() else {
        return;
    };
    let mut swap_buffer = process.memory.swap_buffer.lock();
    for piece in swap_buffer.take() {
        // Memory that stays pinned must stay mapped, or a later piece at its address would be copied to the old pages.
        match transfer::unpin(context, piece.start) {
            Ok(()) => large_pages::give_back(piece.start, piece.bytes),
            Err(_) => _ = swap_buffer.add(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_moved_gives_up_first_and_half_of_what_is_free_is_enough() {
        let fits = |others, available| fits(10, others, default_budget(10, others, available));
        assert!(fits((0, 0), 10));
        assert!(!fits((0, 0), 9));
        assert!(fits((0, 30), 40), "others moved before");
        assert!(!fits((31, 31), 40), "others moved later");
    }
}
