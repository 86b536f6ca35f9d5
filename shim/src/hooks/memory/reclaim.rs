//! Reclaim: unused memory that is kept is returned to the driver before a limit is exceeded or an allocation is
//! denied.
//!
//! A pool keeps freed memory until a synchronisation, or for good if it has a release threshold. This memory is not
//! charged, because the application has freed it, but the device lacks it. So when a process with a limit allocates,
//! its pools are trimmed to the rest of the limit: allocated and kept memory together stay within it. An allocation
//! from a pool first uses memory that this pool keeps, so this pool is trimmed last.
//!
//! Memory whose free waits in a busy stream cannot be trimmed. An allocation that would exceed the limit together with
//! such memory waits until the streams have reached the frees, and is denied after ten seconds. An allocation that can use the
//! memory itself, because it is in the same stream and from the same pool, does not wait. Neither does one in a capture,
//! which is denied at once, nor a launch of a graph, which may exceed the limit for that time.

use std::time::Duration;

use gpushare_abi::types::{CUdevice, CUmemoryPool};
use shm_layout::{Denial, Limit, clock};

use crate::{
    driver_query::{context, memory as ask},
    eviction,
    managed_process::{Device, ManagedProcess},
    sys::{caller_state::Uncancelled, futex},
    thread::{self, Thread},
    tracking::{pending_frees::Claim, pool::Source},
};

/// Longest wait for pending frees, in nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Polling period of the wait.
const NAP: Duration = Duration::from_micros(200);

/// Waits until the pending frees and `bytes`, which were reserved for an allocation from `source`, are within the limits.
/// Calls `before_wait` before a wait. Returns the memory of a pending free that the allocation may use itself, or the denial if the
/// wait takes too long.
#[cold]
#[inline(never)]
pub fn wait_for_frees(
    process: &'static ManagedProcess,
    device: &Device,
    thread: &Thread,
    bytes: u64,
    source: Option<Source>,
    before_wait: impl FnOnce(),
) -> Result<Option<Claim<'static>>, Denial> {
    let frees = &process.memory.pending_frees;
    let mut claim = None;
    let are_within = |claim: &mut Option<_>| {
        if claim.is_none() {
            *claim = source.and_then(|source| frees.claim(&source, bytes));
        }
        let room = device.ledger.room();
        room.is_none_or(|room| frees.bytes_on(device.ordinal) <= room)
    };
    if are_within(&mut claim) {
        return Ok(claim);
    }
    let _uncancelled = Uncancelled::enter();
    // The driver does not answer in a callback, and refuses the allocation itself.
    if thread.see_who_started_it() {
        return Ok(claim);
    }
    before_wait();
    let pool = source.map(|source| source.pool as CUmemoryPool);
    let until = clock::now().saturating_add(PATIENCE_NS);
    let may_wait = !process.memory.captures.is_any_of(thread.number());
    loop {
        frees.poll(device.ordinal);
        if are_within(&mut claim) {
            return Ok(claim);
        }
        let is_trimmed = keep_within_limits(process, device, pool);
        if is_trimmed && !frees.any_without_pool(device.ordinal) {
            return Ok(claim);
        }
        let gives_up = !may_wait || process.is_leaving() || clock::now() >= until;
        if gives_up || !nap(thread) {
            let outlook = device.ledger.outlook();
            return Err(Denial {
                limit: Limit::Process,
                used: device.ledger.used(),
                quota: outlook.map_or(u64::MAX, |outlook| outlook.whole),
                asked: bytes,
            });
        }
    }
}

/// Sleeps while the thread counts as outside. Returns false if the driver must not be called any more.
fn nap(thread: &Thread) -> bool {
    thread.outside(|| futex::nap(NAP));
    !thread::is_suspended() || eviction::wait_until_resumed(thread).is_ok()
}

/// Trims the device's pools to the rest of the limits. `first` keeps its memory before the others. Returns true if what they
/// keep is within the limits.
#[cold]
#[inline(never)]
pub fn keep_within_limits(
    process: &ManagedProcess,
    device: &Device,
    first: Option<CUmemoryPool>,
) -> bool {
    // Without a limit nothing has to be trimmed.
    let Some(mut room) = device.ledger.room() else {
        return true;
    };
    let _uncancelled = Uncancelled::enter();
    let caching = &process.memory.caching;
    // Another thread may destroy one of the pools.
    let _in_use = caching.in_use();
    let pools = caching.on(CUdevice::from(device.ordinal), first);
    let mut is_within = true;
    let trim_all = || {
        for pool in pools {
            let kept = trim(pool, room);
            is_within &= kept <= room;
            room -= kept.min(room);
        }
    };
    // In another capture mode, a trim would break a capture of this thread.
    if process.memory.captures.is_any() {
        context::relaxed(trim_all);
    } else {
        trim_all();
    }
    is_within
}

/// Trims a pool to `room` bytes, or to nothing if its blocks are larger than that. Returns the bytes that it keeps.
fn trim(pool: CUmemoryPool, room: u64) -> u64 {
    let kept = || {
        let (reserved, used) = ask::pool_size(pool);
        (reserved.saturating_sub(used), used)
    };
    let (before, used) = kept();
    if before <= room {
        return before;
    }
    ask::trim(pool, used.saturating_add(room));
    if kept().0 > room {
        ask::trim(pool, 0);
    }
    kept().0
}

/// Asks the driver to release memory kept for destroyed graphs, before another allocation is denied. Returns true if
/// memory was released.
#[cold]
pub fn give_up_idle(process: &ManagedProcess, device: &Device) -> bool {
    let graphs = &process.memory.graphs;
    let ordinal = device.ordinal;
    if !graphs.any() || !graphs.is_idle(ordinal) || !ask::trim_graphs(ordinal.into()) {
        return false;
    }
    let gone = graphs.trimmed(ordinal);
    process.registration.ledger(device.entry).release(gone);
    gone > 0
}
