//! What pools keep for later: it must not outgrow the quota either.
//!
//! A pool with a release threshold keeps freed memory reserved. It is not charged, since nobody asked for it any more; but
//! the device lacks it. So when a process with a limit allocates elsewhere, its pools are trimmed down to what the limit
//! leaves: memory held and memory kept together stay within it. A process that sets no threshold never comes here, and
//! neither does an allocation from a pool, which uses up what is kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use gpushare_abi::In;
use gpushare_abi::errors::CUresult;
use gpushare_abi::types::{CUdevice, CUmemoryPool};

use crate::guest::{Device, Guest, guest};
use crate::real::Real;

use super::ask;

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: u32 = 4;

/// The pools with a release threshold, and their devices.
#[derive(Default)]
pub struct Book {
    any: AtomicBool,
    pools: Mutex<HashMap<usize, CUdevice>>,
}

impl Book {
    /// Whether a pool keeps anything at all.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// The pool is no more, or keeps nothing from now on.
    pub fn forget(&self, pool: CUmemoryPool) {
        self.with(|pools| _ = pools.remove(&(pool as usize)));
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<usize, CUdevice>) -> T) -> T {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut pools);
        self.any.store(!pools.is_empty(), Relaxed);
        result
    }
}

/// `cuMemPoolSetAttribute`: which pools keep memory.
pub fn set_attribute(
    real: Real<'_, impl FnOnce() -> CUresult>,
    pool: CUmemoryPool,
    attribute: u32,
    value: In<u64>,
) -> CUresult {
    real.call()?;
    let Some(guest) = guest().filter(|_| attribute == RELEASE_THRESHOLD) else {
        return Ok(());
    };
    let hoard = &guest.memory.hoard;
    match (value.get(), guest.memory.pools.device_of(pool)) {
        (Some(1..), Some(device)) => hoard.with(|pools| _ = pools.insert(pool as usize, device)),
        _ => hoard.forget(pool),
    }
    Ok(())
}

/// Trims the device's pools to what the limits leave beside what is held.
#[cold]
#[inline(never)]
pub fn keep_within_limits(guest: &Guest, device: &Device) {
    // A capturing thread must not touch its pools, and without a limit there is nothing to keep within.
    let Some(room) = device
        .ledger
        .room()
        .filter(|_| !crate::stream::any_capturing())
    else {
        return;
    };
    let device = CUdevice::from(device.ordinal);
    let pools: Vec<_> = guest.memory.hoard.with(|pools| {
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
