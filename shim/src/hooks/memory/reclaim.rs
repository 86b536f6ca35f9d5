//! Memory that is kept and not in use: given back to the driver before a limit is exceeded or an allocation is denied.
//!
//! A pool with a release threshold keeps freed memory reserved. It is not charged, since the application has freed it; but
//! the device lacks it. So when a process with a limit allocates elsewhere, its pools are trimmed down to what the limit
//! leaves: memory held and memory kept together stay within it. A process that sets no threshold never comes here, and
//! neither does an allocation from a pool, which uses up what is kept.

use gpushare_abi::types::{CUdevice, CUmemoryPool};

use crate::ask::{memory as ask, stream::any_capturing};
use crate::guest::{Device, Guest};

/// Trims the device's pools to what the limits leave beside what is held.
#[cold]
#[inline(never)]
pub fn keep_within_limits(guest: &Guest, device: &Device) {
    // A capturing thread must not touch its pools, and without a limit there is nothing to keep within.
    let Some(room) = device.ledger.room().filter(|_| !any_capturing()) else {
        return;
    };
    let device = CUdevice::from(device.ordinal);
    let pools: Vec<_> = guest.memory.caching.with(|pools| {
        pools
            .iter()
            .filter(|(_, on)| **on == device)
            .map(|(pool, _)| *pool)
            .collect()
    });
    let mut room = room;
    for pool in pools {
        room -= trim(pool as CUmemoryPool, room).min(room);
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
pub fn give_up_idle(guest: &Guest, device: &Device) -> bool {
    let graphs = &guest.memory.graphs;
    let ordinal = device.ordinal;
    if !graphs.any() || !graphs.is_idle(ordinal) || !ask::trim_graphs(ordinal.into()) {
        return false;
    }
    let gone = graphs.lock().pool(ordinal).trim();
    guest.registration.ledger(device.entry).release(gone);
    gone > 0
}
