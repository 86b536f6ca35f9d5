//! Memory that is kept and not in use: given back to the driver before a limit is exceeded or an allocation is denied.
//!
//! A pool keeps freed memory reserved: until a synchronisation, or for good where it has a release threshold. That is not
//! charged, since the application has freed it; but the device lacks it. So when a process with a limit allocates, its pools
//! are trimmed to what the limit leaves: memory held and memory kept together stay within it. An allocation from a pool uses
//! up what that pool keeps first, and what is left of it is the last to go.

use gpushare_abi::types::{CUdevice, CUmemoryPool};

use crate::{
    driver_query::{context, memory as ask},
    managed_process::{Device, ManagedProcess},
};

/// Trims the device's pools to what the limits leave beside what is held; `first` keeps its memory before the others.
#[cold]
#[inline(never)]
pub fn keep_within_limits(process: &ManagedProcess, device: &Device, first: Option<CUmemoryPool>) {
    // Without a limit there is nothing to keep within.
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
    // A trim is not for a thread that captures in another mode.
    if process.memory.captures.is_any() {
        context::relaxed(trim_all);
    } else {
        trim_all();
    }
}

/// Trims a pool to what there is room for, or, where its pieces are larger than that, to nothing. What it keeps now.
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

/// What a device keeps for graphs that are all gone is of no use: the driver is asked to give it back before something
/// else is denied. True if it helped.
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
