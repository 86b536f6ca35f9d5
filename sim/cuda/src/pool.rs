//! Memory pools: memory in stream order.
//!
//! An allocation can be used as soon as its call returns; a free takes effect when its stream comes to it,
//! for others than that stream. [`books`] says what is where, this file takes and gives the device's memory, [`calls`]
//! is the interface. A pool keeps memory that nobody uses until a synchronisation finds more than its release
//! threshold, until it is trimmed, or until the device runs out.

pub mod books;
pub mod calls;
pub mod share;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult};
use gpushare_abi::types::{CUdeviceptr, CUmemoryPool};

use crate::capacity;
use crate::driver::{Driver, driver};
use crate::handles::{Table, fresh, lock};
use crate::heap::{self, Kind};
use crate::stream::Stream;
use crate::work::Work;
use books::{Books, CHUNK, CHUNK_GRAIN, Rest};

/// A pool of a device's memory.
#[derive(Debug)]
pub struct Pool {
    /// Its handle.
    pub handle: u64,
    /// Its device's ordinal.
    pub device: i32,
    /// The device's own pool, which is never destroyed.
    is_default: bool,
    books: Mutex<Books>,
    settings: Mutex<Settings>,
    /// The file that holds it, if it is another process's.
    elsewhere: Option<File>,
}

/// What can be said of a pool.
#[derive(Debug, Default)]
struct Settings {
    /// Unused bytes it keeps through a synchronisation.
    threshold: u64,
    /// The most it may hold; 0 for no limit of its own. A driver (580.159.04) let a pool of
    /// 16 MiB hold more, one of 32 MiB not; the rule is not known, and here the limit is what was asked for.
    max_size: u64,
    /// Handle types it was made for.
    handle_types: u32,
    /// The three ways to reuse memory earlier, which are on unless switched off.
    no_reuse: [bool; 3],
    /// Access of other devices.
    access: BTreeMap<i32, u32>,
}

/// A device's pools.
#[derive(Clone, Debug)]
struct OfDevice {
    /// Its own.
    default: Arc<Pool>,
    /// The one that allocations come from when none is named.
    current: Arc<Pool>,
}

static POOLS: Table<Pool> = Table::new();
/// The pool of each allocation in use, by address.
static OWNERS: Table<Pool> = Table::new();
static OF_DEVICE: Mutex<BTreeMap<i32, OfDevice>> = Mutex::new(BTreeMap::new());
/// Something was freed since the last synchronisation.
static FREED: AtomicBool = AtomicBool::new(false);

/// The pool behind a handle.
pub fn by_handle(handle: CUmemoryPool) -> Result<Arc<Pool>, CUerror> {
    driver()?;
    POOLS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// A device's pools, made at their first use.
fn of_device(ordinal: i32) -> Result<OfDevice, CUerror> {
    driver()?.device(ordinal)?;
    let mut all = lock(&OF_DEVICE);
    let pools = all.entry(ordinal).or_insert_with(|| {
        let default = Pool::keep(ordinal, true, Settings::default());
        let current = Arc::clone(&default);
        OfDevice { default, current }
    });
    Ok(pools.clone())
}

/// The pool that a device's allocations come from when none is named.
pub fn current(ordinal: i32) -> Result<Arc<Pool>, CUerror> {
    Ok(of_device(ordinal)?.current)
}

/// A free whose stream has not come to it.
#[derive(Clone, Debug)]
pub struct Settle {
    pool: Arc<Pool>,
    rest: Rest,
}

/// The stream has come to it.
impl Work for Settle {
    fn run(&self, _: &Driver, _: i32, ready: u64) -> u64 {
        lock(&self.pool.books).settle(self.rest);
        FREED.store(true, Relaxed);
        ready
    }
}

impl Pool {
    fn keep(device: i32, is_default: bool, settings: Settings) -> Arc<Self> {
        let (books, settings) = (Mutex::default(), Mutex::new(settings));
        let pool = Arc::new(Self {
            handle: fresh(),
            device,
            is_default,
            books,
            settings,
            elsewhere: None,
        });
        POOLS.insert(pool.handle, Arc::clone(&pool));
        capacity::reclaim_by(trim_device);
        pool
    }

    /// Whether so many bytes can be asked of it.
    pub fn check(&self, bytes: u64) -> CUresult {
        if bytes == 0 || self.elsewhere.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// Allocates in the order of a stream.
    pub fn allocate(
        self: &Arc<Self>,
        bytes: u64,
        stream: &Arc<Stream>,
    ) -> Result<CUdeviceptr, CUerror> {
        self.check(bytes)?;
        let driver = driver()?;
        if !driver.slow_alloc.is_zero() {
            std::thread::sleep(driver.slow_alloc);
        }
        let mut books = lock(&self.books);
        let address = match books.allocate(bytes, stream.handle) {
            Some(address) => address,
            None => {
                self.grow(&mut books, bytes)?;
                books
                    .allocate(bytes, stream.handle)
                    .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?
            }
        };
        heap::note(address, bytes, self.device, stream.context, Kind::Ordered)?;
        OWNERS.insert(address, Arc::clone(self));
        Ok(address)
    }

    /// Takes another chunk: a large one if there is room, else what is needed.
    fn grow(&self, books: &mut Books, bytes: u64) -> CUresult {
        let needed = bytes
            .checked_next_multiple_of(CHUNK_GRAIN)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let limit = lock(&self.settings).max_size;
        let exact = books::rounded(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        for size in [needed.max(CHUNK), needed, exact] {
            if fits(books, limit, size)
                && let Ok(base) = take(self.device, size)
            {
                books.grow(base, size);
                return Ok(());
            }
        }
        // What other pools do not use is for those who need it, and what this one has in pieces too.
        give(self.device, books.trim(0));
        trim_others(self);
        if !fits(books, limit, exact) {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        books.grow(take(self.device, exact)?, exact);
        Ok(())
    }

    /// Gives unused memory back while more than `keep` bytes are held.
    pub fn trim(&self, keep: u64) {
        give(self.device, lock(&self.books).trim(keep));
    }
}

/// Whether a pool may hold so many bytes more.
fn fits(books: &Books, limit: u64, size: u64) -> bool {
    limit == 0 || books.reserved().saturating_add(size) <= limit
}

impl Drop for Pool {
    fn drop(&mut self) {
        give(self.device, lock(&self.books).chunks().collect());
    }
}

/// Takes a chunk of a device's memory, and addresses for it.
fn take(ordinal: i32, bytes: u64) -> Result<u64, CUerror> {
    capacity::take_free(ordinal, bytes)?;
    heap::take_addresses(bytes).inspect_err(|_| capacity::give(ordinal, bytes))
}

fn give(ordinal: i32, chunks: Vec<(u64, u64)>) {
    for (base, bytes) in chunks {
        heap::give_addresses(base, bytes);
        capacity::give(ordinal, bytes);
    }
}

/// Gives back what the other pools of a pool's device do not use. One that is at work is left alone: it may be
/// about to do the same.
fn trim_others(own: &Pool) {
    for pool in POOLS.all() {
        if pool.device == own.device
            && pool.handle != own.handle
            && let Ok(mut books) = pool.books.try_lock()
        {
            give(pool.device, books.trim(0));
        }
    }
}

/// The device has run out: what its pools do not use is given back.
fn trim_device(ordinal: i32) {
    for pool in POOLS.all().iter().filter(|pool| pool.device == ordinal) {
        pool.trim(0);
    }
}

/// Something was waited for: pools give back what they do not use above their thresholds.
pub fn after_synchronisation() {
    if FREED.swap(false, Relaxed) {
        for pool in POOLS.all() {
            let threshold = lock(&pool.settings).threshold;
            pool.trim(threshold);
        }
    }
}

/// Takes an allocation out of use; its bytes come back when the returned work is done.
pub fn free_behind(address: CUdeviceptr, stream: u64) -> Result<Settle, CUerror> {
    let (pool, rest) = leave(address, |books| books.rest(address, stream))?;
    Ok(Settle { pool, rest })
}

/// Frees an allocation now.
pub fn free(address: CUdeviceptr) -> CUresult {
    leave(address, |books| books.free(address))?;
    FREED.store(true, Relaxed);
    Ok(())
}

/// The pool that an allocation came from.
pub fn of_address(address: u64) -> Option<u64> {
    OWNERS.get(address).map(|pool| pool.handle)
}

/// An allocation goes out of use; tells its pool.
fn leave<T>(
    address: u64,
    how: impl FnOnce(&mut Books) -> Option<T>,
) -> Result<(Arc<Pool>, T), CUerror> {
    let pool = OWNERS.remove(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut books = lock(&pool.books);
    heap::forget(address, |block| block.kind == Kind::Ordered)?;
    let done = how(&mut books).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    drop(books);
    Ok((pool, done))
}
