//! The host memory that copies take while the process's memory is on its devices. Such a copy only saves time at the next
//! eviction, so it is given up when the host has other uses for its memory: first by the process whose memory moved least
//! recently.

use std::sync::atomic::Ordering::Relaxed;

use shm_layout::{HostMemory, Phase};

use crate::{
    driver_query::transfer,
    eviction::{ask, swap, work},
    managed_process::ManagedProcess,
    sys::{host_memory, large_pages},
};

/// Divisor: unless the operator sets a budget, the kept copies of all processes may have this part of the host memory that would be
/// free without them.
const PART: u64 = 2;
/// Time between two checks, in nanoseconds.
const EVERY: u64 = 1_000_000_000;

/// Gives the copies up if they are too large together with those of processes that moved later. The keeper calls this.
pub fn look(process: &ManagedProcess, now: u64) {
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
    let devices = process.devices.iter();
    let set = devices.filter_map(|device| {
        let (policy, _) = process.registration.policy(device.entry);
        policy.host_memory_bytes.map(|HostMemory(bytes)| bytes)
    });
    let by_default = || Some(default_budget(kept, of_others, host_memory::available()?));
    let budget = set.min().or_else(by_default);
    budget.is_some_and(|budget| !fits(kept, of_others, budget))
}

/// Returns the bytes that all processes may keep together, where others keep `all`.
fn default_budget(kept: u64, (_, all): (u64, u64), available: u64) -> u64 {
    available.saturating_add(kept).saturating_add(all) / PART
}

/// Returns true if a process may keep this much, where others keep `newer` bytes for later moves.
fn fits(kept: u64, (newer, _): (u64, u64), budget: u64) -> bool {
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
            Err(_) => swap_buffer.add(piece),
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
