//! Reclaim: unused memory that is kept is returned to the driver before a limit is exceeded or an allocation is
//! denied.
//!
//! A pool keeps freed memory until a synchronisation, or for good if it has a release threshold. This memory is not
//! charged, because the application has freed it, but the device lacks it. So when a process with a limit allocates,
//! its pools are trimmed to the rest of the limit: allocated and kept memory together stay within it. An allocation
//! from a pool first uses memory that this pool keeps, so this pool is trimmed last.

use gpushare_abi::types::{CUdevice, CUmemoryPool};

use crate::{
    driver_query::{context, memory as ask},
    managed_process::{Device, ManagedProcess},
};

/// Trims the device's pools to the rest of the limits. `first` keeps its memory before the others.
#[cold]
#[inline(never)]
pub fn keep_within_limits(process: &ManagedProcess, device: &Device, first: Option<CUmemoryPool>) {
    // Without a limit nothing has to be trimmed.
    let Some(mut room) = device.ledger.room() else {
        return;
    };
    let pools = process
        .memory
        .caching
        .on(CUdevice::from(device.ordinal), first);
    let trim_all = || {
        for pool in pools {
            room -= trim(pool, room).min(room);
        }
    };
    // In another capture mode, a trim would break a capture of this thread.
    if process.memory.captures.is_any() {
        context::relaxed(trim_all);
    } else {
        trim_all();
    }
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
    let gone = graphs.lock().pool(ordinal).trim();
    process.registration.ledger(device.entry).release(gone);
    gone > 0
}
