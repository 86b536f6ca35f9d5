//! Memory pools, for memory in stream order.
//!
//! An allocation can be used as soon as its call returns. A free takes effect for other streams when its own stream
//! has reached it. [`address_map`] tracks the addresses, this file takes and releases the device's memory, [`calls`]
//! is the interface. A pool keeps unused memory until a synchronisation finds more than its release threshold, until
//! a trim, or until the device has no memory left. [`home`] has the possible locations of pools.

pub mod address_map;
pub mod calls;
pub mod home;
pub mod share;

use std::{
    collections::BTreeMap,
    fs::File,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use address_map::{AddressMap, CHUNK, CHUNK_GRAIN, Rest};
use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult},
    types::{CU_MEM_LOCATION_TYPE_DEVICE, CUdeviceptr, CUmemLocation, CUmemoryPool},
};
use home::Home;

use crate::{
    driver::{Driver, driver},
    handles::{Table, fresh, lock},
    memory::{
        capacity,
        heap::{self, Kind, Medium},
    },
    stream::Stream,
    work::Work,
};

/// Read and write: `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

/// A pool.
#[derive(Debug)]
pub struct Pool {
    /// The pool's handle.
    pub handle: u64,
    /// The location of the pool's memory.
    pub home: Home,
    /// The place's own pool, which is never destroyed.
    is_default: bool,
    addresses: Mutex<AddressMap>,
    settings: Mutex<Settings>,
    /// The location of the pool if it belongs to another process.
    elsewhere: Option<Elsewhere>,
}

/// Another process's pool.
#[derive(Debug)]
struct Elsewhere {
    /// The file that holds its memory.
    file: File,
    /// The pool's number in that process.
    number: i64,
}

/// The attributes of a pool that can be set.
#[derive(Debug, Default)]
struct Settings {
    /// Unused bytes it keeps through a synchronisation.
    threshold: u64,
    /// Most bytes of the pool; 0 for no limit. A driver (580.159.04) let a pool of 16 MiB hold more, but not one of
    /// 32 MiB; its rule is unknown, and the simulator uses the requested limit.
    max_size: u64,
    /// Handle types it was made for.
    handle_types: u32,
    /// The three ways to reuse memory earlier, which are on unless switched off.
    no_reuse: [bool; 3],
    /// Access of other devices.
    access: BTreeMap<i32, u32>,
}

/// A place's pools.
#[derive(Clone, Debug)]
struct AtHome {
    /// The location's default pool.
    default: Arc<Pool>,
    /// The pool from which allocations come if none is named.
    current: Arc<Pool>,
}

static POOLS: Table<Pool> = Table::new();
/// The pool of each allocation in use, by address.
static OWNERS: Table<Pool> = Table::new();
static AT_HOME: Mutex<BTreeMap<Home, AtHome>> = Mutex::new(BTreeMap::new());
/// Something was freed since the last synchronisation.
static FREED: AtomicBool = AtomicBool::new(false);

/// Returns the pool of a handle.
pub fn by_handle(handle: CUmemoryPool) -> Result<Arc<Pool>, CUerror> {
    driver()?;
    POOLS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Returns the pools of a location, created at their first use.
fn at(home: Home) -> AtHome {
    let mut all = lock(&AT_HOME);
    let pools = all.entry(home).or_insert_with(|| {
        let default = Pool::keep(home, true, Settings::default(), None);
        let current = Arc::clone(&default);
        AtHome { default, current }
    });
    pools.clone()
}

/// Returns the pools of a device's memory.
fn of_device(ordinal: i32) -> Result<AtHome, CUerror> {
    driver()?.device(ordinal)?;
    Ok(at(Home::on_device(ordinal)))
}

/// Returns the pool from which a device's allocations come if none is named.
pub fn current(ordinal: i32) -> Result<Arc<Pool>, CUerror> {
    Ok(of_device(ordinal)?.current)
}

/// A free that its stream has not reached yet.
#[derive(Clone, Debug)]
pub struct Settle {
    pool: Arc<Pool>,
    rest: Rest,
}

/// Frees the block when the stream has reached the free.
impl Work for Settle {
    fn run(&self, _: &Driver, _: i32, ready: u64) -> u64 {
        lock(&self.pool.addresses).settle(self.rest);
        FREED.store(true, Relaxed);
        ready
    }
}

impl Pool {
    fn keep(
        home: Home,
        is_default: bool,
        settings: Settings,
        elsewhere: Option<Elsewhere>,
    ) -> Arc<Self> {
        let (addresses, settings) = (Mutex::default(), Mutex::new(settings));
        let pool = Arc::new(Self {
            handle: fresh(),
            home,
            is_default,
            addresses,
            settings,
            elsewhere,
        });
        POOLS.insert(pool.handle, Arc::clone(&pool));
        capacity::reclaim_by(trim_device);
        pool
    }

    /// Returns an error for a pool of another process, which cannot allocate.
    pub fn check(&self) -> CUresult {
        if self.elsewhere.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// Returns the access of a location: `CU_MEM_ACCESS_FLAGS_PROT_…`.
    pub fn access_from(&self, location: CUmemLocation) -> u32 {
        let given = location
            .device()
            .and_then(|ordinal| lock(&self.settings).access.get(&ordinal).copied());
        given.unwrap_or(if self.home.is_reached_from(location) {
            READ_WRITE
        } else {
            0
        })
    }

    /// Allocates in the order of a stream; no bytes are address 0.
    pub fn allocate(
        self: &Arc<Self>,
        bytes: u64,
        stream: &Arc<Stream>,
    ) -> Result<CUdeviceptr, CUerror> {
        self.check()?;
        if bytes == 0 {
            return Ok(0);
        }
        let driver = driver()?;
        if !driver.slow_alloc.is_zero() {
            gpushare_sim::clock::sleep(driver.slow_alloc);
        }
        let mut addresses = lock(&self.addresses);
        let address = match addresses.allocate(bytes, stream.handle) {
            Some(address) => address,
            None => {
                self.grow(&mut addresses, bytes)?;
                addresses
                    .allocate(bytes, stream.handle)
                    .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?
            }
        };
        let device = self.home.device().unwrap_or(stream.device);
        let kind = Kind::Ordered(self.home.medium());
        heap::note(address, bytes, device, stream.owner, kind)?;
        OWNERS.insert(address, Arc::clone(self));
        Ok(address)
    }

    /// Takes another chunk: a large one if there is room, else as much as is needed.
    fn grow(&self, addresses: &mut AddressMap, bytes: u64) -> CUresult {
        let needed = bytes
            .checked_next_multiple_of(CHUNK_GRAIN)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let limit = lock(&self.settings).max_size;
        let exact = address_map::rounded(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        for size in [needed.max(CHUNK), needed, exact] {
            if fits(addresses, limit, size)
                && let Ok(base) = take(self.home, size)
            {
                addresses.grow(base, size);
                return Ok(());
            }
        }
        // Releases unused memory first: this pool's own free chunks, and those of the other pools.
        give(self.home, addresses.trim(0));
        trim_others(self);
        if !fits(addresses, limit, exact) {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        addresses.grow(take(self.home, exact)?, exact);
        Ok(())
    }

    /// Releases unused memory while more than `keep` bytes are held.
    pub fn trim(&self, keep: u64) {
        give(self.home, lock(&self.addresses).trim(keep));
    }
}

/// Returns true if a pool may hold `size` more bytes.
fn fits(addresses: &AddressMap, limit: u64, size: u64) -> bool {
    limit == 0 || addresses.reserved().saturating_add(size) <= limit
}

impl Drop for Pool {
    fn drop(&mut self) {
        give(self.home, lock(&self.addresses).chunks().collect());
    }
}

/// Takes a chunk of memory, with its addresses, from a device if the pool is there.
fn take(home: Home, bytes: u64) -> Result<u64, CUerror> {
    let Some(ordinal) = home.device() else {
        return heap::take_addresses(bytes);
    };
    capacity::take_free(ordinal, bytes)?;
    heap::take_addresses(bytes).inspect_err(|_| capacity::give(ordinal, bytes))
}

fn give(home: Home, chunks: Vec<(u64, u64)>) {
    for (base, bytes) in chunks {
        heap::give_addresses(base, bytes);
        if let Some(ordinal) = home.device() {
            capacity::give(ordinal, bytes);
        }
    }
}

/// Releases unused memory of the other pools on a pool's device. A locked pool is skipped, because it may be about to
/// do the same.
fn trim_others(own: &Pool) {
    for pool in POOLS.all() {
        if pool.home.device() == own.home.device()
            && pool.handle != own.handle
            && let Ok(mut addresses) = pool.addresses.try_lock()
        {
            give(pool.home, addresses.trim(0));
        }
    }
}

/// Releases unused memory of a device's pools because the device has none left.
fn trim_device(ordinal: i32) {
    for pool in POOLS.all() {
        if pool.home.device() == Some(ordinal) {
            pool.trim(0);
        }
    }
}

/// Releases unused memory above the thresholds of all pools after a synchronisation.
pub fn after_synchronisation() {
    if FREED.swap(false, Relaxed) {
        for pool in POOLS.all() {
            let threshold = lock(&pool.settings).threshold;
            pool.trim(threshold);
        }
    }
}

/// Marks an allocation as freed; its bytes are released when the returned work is done.
pub fn free_behind(address: CUdeviceptr, stream: u64) -> Result<Settle, CUerror> {
    let (pool, rest) = leave(address, |addresses| addresses.rest(address, stream))?;
    Ok(Settle { pool, rest })
}

/// Frees an allocation now.
pub fn free(address: CUdeviceptr) -> CUresult {
    leave(address, |addresses| addresses.free(address))?;
    FREED.store(true, Relaxed);
    Ok(())
}

/// Frees the allocations made in the streams of a primary context that has ended, as a driver (580.159.04) does.
/// Allocations of a created context outlive it.
pub fn primary_gone(context: u64) {
    for address in heap::ordered_in(context) {
        // Another thread may have freed it just now.
        let _ = free(address);
    }
    after_synchronisation();
}

/// Returns the pool of an allocation.
pub fn of_address(address: u64) -> Option<u64> {
    OWNERS.get(address).map(|pool| pool.handle)
}

/// Returns the handle types of an allocation's pool.
pub fn handle_types_at(address: u64) -> u32 {
    OWNERS
        .get(address)
        .map_or(0, |pool| lock(&pool.settings).handle_types)
}

/// Returns true if a device may access an address; memory of a pool may be closed to it.
pub fn is_reached(address: u64, ordinal: i32) -> bool {
    let Some(block) = heap::find(address) else {
        return true;
    };
    let pool = OWNERS
        .get(block.base)
        .or_else(|| share::imported_from(block.base));
    let from = CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_DEVICE,
        id: ordinal,
    };
    // Any device can access pinned host memory through the host's own addresses.
    pool.is_none_or(|pool| pool.home.medium() != Medium::Device || pool.access_from(from) != 0)
}

/// Returns true if an address is of a pool on the host that has given a device no access.
pub fn is_kept_on_host(address: u64, ordinal: i32) -> bool {
    let pool = heap::find(address).and_then(|block| OWNERS.get(block.base));
    let device = CUmemLocation::on(ordinal);
    pool.is_some_and(|pool| pool.home.medium() == Medium::Host && pool.access_from(device) == 0)
}

/// Removes an allocation from those in use; returns its pool.
fn leave<T>(
    address: u64,
    how: impl FnOnce(&mut AddressMap) -> Option<T>,
) -> Result<(Arc<Pool>, T), CUerror> {
    let pool = OWNERS.remove(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut addresses = lock(&pool.addresses);
    heap::forget(address, |block| matches!(block.kind, Kind::Ordered(_)))?;
    let done = how(&mut addresses).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    drop(addresses);
    Ok((pool, done))
}
