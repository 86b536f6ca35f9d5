//! Hooks for stream-ordered memory and its pools.
//!
//! An allocation is charged when it is requested and uncharged when its free is requested, in program order. Memory
//! that a pool keeps beyond that shows as *unaccounted*. It is kept within limits (see `reclaim`), also while the free waits
//! in a busy stream. The driver enforces a pool's `maxSize`. The end of a created context keeps its allocations. A reset of the primary context,
//! or its last release, frees the allocations of that context (driver 580.159.04).
//!
//! | the pool | its allocations are |
//! |---|---|
//! | memory of a device | charged to that device, even if another one is current |
//! | none named | charged to the device of the stream, whose current pool is used |
//! | pinned memory of the host | counted as pinned |
//! | managed memory that prefers a device | charged to that device |
//! | other managed memory | charged to the device of the stream: any of it may move there, as with `cuMemAllocManaged` |
//! | another process's | counted as imported; the other process is charged |

use super::{
    account::{self, Account},
    allocate::allocate,
    graph, reclaim, returns,
};
use gpushare_abi::{
    In, Out,
    errors::CUresult,
    types::{
        CU_MEM_ALLOCATION_TYPE_MANAGED, CUdevice, CUdeviceptr, CUmemLocation, CUmemPoolProps,
        CUmemoryPool, CUstream,
    },
};

use crate::{
    driver_query::{context::any_capturing, memory as ask},
    hooks::Real,
    managed_process::{self, ManagedProcess},
    sys::caller_state::Uncancelled,
    thread::{Thread, stream_key},
    tracking::{
        pending_frees::{Claim, FreeUnderWay},
        pool::{Home, Source},
        record::{self, Counted, Kind, Record},
    },
};

/// Forwards `cuMemAllocAsync`.
pub fn alloc(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    dptr: Out<CUdeviceptr>,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    let account = account::of_stream(stream);
    charge(real, account, dptr, bytes, stream, None)
}

/// Forwards `cuMemAllocFromPoolAsync`.
pub fn alloc_from(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    dptr: Out<CUdeviceptr>,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let home = managed_process::current().and_then(|process| {
        process
            .memory
            .pools
            .with(|homes| homes.get(&(pool as usize)).copied())
    });
    match home {
        None => charge(
            real,
            account::of_stream(stream),
            dptr,
            bytes,
            stream,
            Some(pool),
        ),
        Some(Home::Device(device)) => {
            let account = account::of_pool(device, stream);
            charge(real, account, dptr, bytes, stream, Some(pool))
        }
        Some(Home::Host) => {
            let account = account::of_stream(stream);
            account::count_in(
                real,
                account,
                Kind::PooledHost,
                || bytes as u64,
                || dptr.get(),
            )
        }
    }
}

fn charge(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    account: Option<Account>,
    dptr: Out<CUdeviceptr>,
    bytes: usize,
    stream: CUstream,
    pool: Option<CUmemoryPool>,
) -> CUresult {
    if let Some(account) = account.filter(|_| any_capturing())
        && let _uncancelled = Uncancelled::enter()
        && let Some(graph) = ask::capturing_graph(stream, real.per_thread())
    {
        return graph::captured(real, account, graph, bytes, dptr);
    }
    let bytes = bytes as u64;
    let key = stream_key(stream as usize, real.per_thread());
    let account = account.map(|account| account.out_of_pool(pool, key));
    if let Some(account) = account {
        account.wait_for_returns(returns::A_POOLS_PIECE);
    }
    allocate(real, account, Some(bytes), Kind::Pooled, || dptr.get())?;
    if let Some(account) = account
        && let Some(source) = account.source()
    {
        // The allocation may have left unused memory in the pools.
        let pool = source.pool as CUmemoryPool;
        reclaim::keep_within_limits(account.process(), account.device(), Some(pool));
    }
    Ok(())
}

impl Account {
    /// Calls the driver for an allocation that may use memory of a pending free. A pool that has not grown has used it.
    #[cold]
    pub(super) fn allocate_claimed(
        self,
        claim: Claim<'_>,
        attempt: impl FnOnce() -> CUresult,
    ) -> CUresult {
        let pool = claim.pool();
        let before = self.reserved_by(pool);
        attempt()?;
        let now = self.reserved_by(pool);
        if before.zip(now).is_some_and(|(before, now)| now <= before) {
            claim.used();
        } else {
            claim.missed();
        }
        Ok(())
    }

    /// Returns the bytes that a pool has reserved, or `None` if the pool is destroyed.
    fn reserved_by(self, pool: CUmemoryPool) -> Option<u64> {
        let _uncancelled = Uncancelled::enter();
        let caching = &self.process().memory.caching;
        caching.with_pool(pool, || ask::pool_size(pool).0)
    }
}

/// Forwards `cuMemFreeAsync`. A captured free belongs to the graph: each launch frees.
pub fn free(
    real: Real<'_, impl FnOnce() -> CUresult>,
    dptr: CUdeviceptr,
    stream: CUstream,
) -> CUresult {
    if any_capturing()
        && let _uncancelled = Uncancelled::enter()
        && let Some(graph) = ask::capturing_graph(stream, real.per_thread())
    {
        return graph::captured_free(real, graph, dptr);
    }
    let (thread, key) = (
        real.thread(),
        stream_key(stream as usize, real.per_thread()),
    );
    account::free_linear(real, dptr, |process, record| {
        let free = begin_free(process, thread, key, record);
        || {
            if let Some(free) = free {
                let _uncancelled = Uncancelled::enter();
                free.done();
            }
        }
    })
}

/// The part of the limit below which frees share one event, as a divisor.
const SMALL: u64 = 64;

/// Records charged memory that is about to be freed in the order of a stream, if a limit applies to it. Swappable memory is freed
/// at once, after a synchronisation.
fn begin_free(
    process: &'static ManagedProcess,
    thread: &Thread,
    key: usize,
    record: &Record,
) -> Option<FreeUnderWay<'static>> {
    if record::counted(record) != Counted::Ledger || record::is(record, Kind::Swappable) {
        return None;
    }
    let ordinal = record::ordinal(record);
    let limit = process.device(ordinal.into())?.ledger.outlook()?.whole;
    let _uncancelled = Uncancelled::enter();
    // Without a context the driver refuses.
    let used = process.use_by_thread(thread, key)?;
    // Allocations outlive their pool, and memory from elsewhere has none.
    let (caching, pool) = (&process.memory.caching, record::pool(record));
    let pool = caching
        .with_pool(pool as CUmemoryPool, || pool)
        .unwrap_or(0);
    let source = Source::new(pool as CUmemoryPool, key, thread.number());
    let (frees, bytes) = (&process.memory.pending_frees, record::bytes(record));
    Some(frees.begin(source, used, ordinal, bytes, limit / SMALL))
}

/// Forwards `cuMemPoolCreate`.
pub fn create(
    real: Real<'_, impl FnOnce() -> CUresult>,
    pool: Out<CUmemoryPool>,
    props: In<CUmemPoolProps>,
) -> CUresult {
    real.call()?;
    if let (Some(process), Some(pool)) = (managed_process::current(), pool.get()) {
        process.memory.caching.created(pool);
        let home = props.get();
        let home = home.and_then(|props| Home::at(props.location, props.allocType));
        // A second destroy of a pool that had this handle may have put that one's home back.
        process.memory.pools.with(|homes| match home {
            Some(home) => homes.insert(pool as usize, home),
            None => homes.remove(&(pool as usize)),
        });
    }
    Ok(())
}

/// Forwards `cuMemPoolDestroy`. The pool's allocations stay until they are freed.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, pool: CUmemoryPool) -> CUresult {
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    // Removed before the driver may reuse the handle.
    let dying = process.memory.caching.destroys(pool);
    process.memory.pending_frees.pool_gone(pool);
    let home = process
        .memory
        .pools
        .with(|homes| homes.remove(&(pool as usize)));
    real.call().inspect_err(|_| {
        dying.stays();
        remember(pool, home);
    })
}

/// Forwards `cuDeviceSetMemPool`.
pub fn set_of_device(
    real: Real<'_, impl FnOnce() -> CUresult>,
    device: CUdevice,
    _pool: CUmemoryPool,
) -> CUresult {
    real.call()?;
    if let Some(process) = managed_process::current() {
        // The driver is asked, because another thread may set one at the same time.
        process.memory.caching.current_changed(device);
    }
    Ok(())
}

/// Forwards `cuMemSetMemPool`. The pool of a device's memory is the one from which `cuMemAllocAsync` allocates.
pub fn set_of_location(
    real: Real<'_, impl FnOnce() -> CUresult>,
    location: In<CUmemLocation>,
    kind: u32,
    pool: CUmemoryPool,
) -> CUresult {
    let device = location.get().and_then(|location| location.device());
    match device.filter(|_| kind != CU_MEM_ALLOCATION_TYPE_MANAGED) {
        Some(device) => set_of_device(real, device, pool),
        None => real.call(),
    }
}

/// Forwards `cuDeviceGetDefaultMemPool` and `cuDeviceGetMemPool`.
pub fn of_device(
    real: Real<'_, impl FnOnce() -> CUresult>,
    pool: Out<CUmemoryPool>,
    device: CUdevice,
) -> CUresult {
    real.call()?;
    if let Some(pool) = pool.get() {
        remember(pool, Some(Home::Device(device)));
    }
    Ok(())
}

/// Forwards `cuMemGetDefaultMemPool` and `cuMemGetMemPool`.
pub fn of_location(
    real: Real<'_, impl FnOnce() -> CUresult>,
    pool: Out<CUmemoryPool>,
    location: In<CUmemLocation>,
    kind: u32,
) -> CUresult {
    real.call()?;
    if let (Some(pool), Some(location)) = (pool.get(), location.get()) {
        remember(pool, Home::at(location, kind));
    }
    Ok(())
}

fn remember(pool: CUmemoryPool, home: Option<Home>) {
    if let (Some(process), Some(home)) = (managed_process::current(), home) {
        process.memory.pools.with(|homes| {
            homes.entry(pool as usize).or_insert(home);
        });
    }
}
