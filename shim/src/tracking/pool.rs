//! The memory pools of stream-ordered allocations: the location of each pool's memory, and the pools that may keep freed
//! memory.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use gpushare_abi::types::{
    CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_INVALID, CU_STREAM_PER_THREAD, CUdevice,
    CUmemLocation, CUmemoryPool,
};
use shm_layout::DEVICES_PER_PROCESS;

/// The location of a pool's memory.
#[derive(Clone, Copy)]
pub enum Home {
    /// The memory is on a device.
    Device(CUdevice),
    /// The memory is on the host.
    Host,
}

impl Home {
    /// Returns the location, or `None` for managed memory without a device or an invalid location: it moves to where
    /// it is used.
    pub fn at(location: CUmemLocation, kind: u32) -> Option<Self> {
        match location.device() {
            Some(device) => Some(Self::Device(device)),
            None if location.type_ == CU_MEM_LOCATION_TYPE_INVALID => None,
            None if kind == CU_MEM_ALLOCATION_TYPE_MANAGED => None,
            None => Some(Self::Host),
        }
    }
}

/// The locations of the pools that the process has created or asked for.
#[derive(Default)]
pub struct Homes {
    homes: Mutex<HashMap<usize, Home>>,
}

impl Homes {
    /// Calls `act` with the locked table.
    pub fn with<T>(&self, act: impl FnOnce(&mut HashMap<usize, Home>) -> T) -> T {
        act(&mut self.homes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The pools that may keep freed memory, with their devices. A pool is added before its first allocation.
///
/// The shim calls the driver with these pools, also in calls of the application that do not name them. So a pool is removed before
/// the driver destroys it, the destruction waits for calls that use it, and it is not added again in that time.
#[derive(Default)]
pub struct Caching {
    any: AtomicBool,
    known: Mutex<Known>,
    /// Held shared while the driver is called with pools of the table. No thread waits for a turn or for memory under it.
    in_use: RwLock<()>,
}

#[derive(Default)]
struct Known {
    pools: HashMap<usize, CUdevice>,
    /// The pools that the driver is destroying.
    dying: Vec<usize>,
    /// The pool from which each device allocates if none is named; 0 if the driver must be asked.
    current: [usize; DEVICES_PER_PROCESS],
    /// Number of changes that make an earlier answer of the driver about a current pool invalid.
    changes: u64,
}

/// A pool that the driver is destroying, until it is dropped.
pub struct Dying<'c> {
    caching: &'c Caching,
    pool: usize,
    /// The device, if the pool was in the table.
    device: Option<CUdevice>,
}

impl Dying<'_> {
    /// Adds the pool again because the driver has not destroyed it.
    pub fn stays(self) {
        let (caching, pool, device) = (self.caching, self.pool, self.device);
        drop(self);
        if let Some(device) = device {
            caching.add(pool as CUmemoryPool, device);
        }
    }
}

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        self.caching.with(|known| {
            known.dying.retain(|pool| *pool != self.pool);
            // The driver may have named this pool until now.
            known.changes += 1;
        });
    }
}

impl Caching {
    /// Returns true if any pool may keep memory.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Records an allocation from a pool on a device.
    pub fn add(&self, pool: CUmemoryPool, device: CUdevice) {
        self.with(|known| {
            if !known.dying.contains(&(pool as usize)) {
                known.pools.insert(pool as usize, device);
            }
        });
    }

    /// Records a new pool. The driver may have given it the handle of one whose destruction has not returned yet.
    pub fn created(&self, pool: CUmemoryPool) {
        self.with(|known| known.dying.retain(|dying| *dying != pool as usize));
    }

    /// Removes a pool that is about to be destroyed. Waits for the calls of the driver that use it.
    pub fn destroys(&self, pool: CUmemoryPool) -> Dying<'_> {
        let pool = pool as usize;
        let device = self.with(|known| {
            known.dying.push(pool);
            known.changes += 1;
            // The device's default pool becomes the current one.
            let current = known.current.iter_mut();
            current
                .filter(|current| **current == pool)
                .for_each(|current| *current = 0);
            known.pools.remove(&pool)
        });
        // From here on no thread finds the pool in the table.
        drop(self.in_use.write());
        Dying {
            caching: self,
            pool,
            device,
        }
    }

    /// Records an allocation from a device's current pool, and returns the pool. `ask` asks the driver for it. Returns `None` if the
    /// driver does not know, or is destroying the pool.
    pub fn use_current(
        &self,
        device: CUdevice,
        ask: impl Fn() -> Option<CUmemoryPool>,
    ) -> Option<CUmemoryPool> {
        let place = usize::try_from(device)
            .ok()
            .filter(|place| *place < DEVICES_PER_PROCESS)?;
        loop {
            let (pool, changes) = self.with(|known| {
                let pool = known.current[place];
                if pool != 0 {
                    known.pools.insert(pool, device);
                }
                (pool, known.changes)
            });
            if pool != 0 {
                return Some(pool as CUmemoryPool);
            }
            let answer = ask()? as usize;
            self.with(|known| {
                let is_dying = known.dying.contains(&answer);
                // An answer that a change has made invalid is asked for again.
                if !is_dying && known.changes == changes {
                    known.current[place] = answer;
                }
                (!is_dying).then_some(())
            })?;
        }
    }

    /// Records that a device's current pool has changed.
    pub fn current_changed(&self, device: CUdevice) {
        self.with(|known| {
            known.changes += 1;
            let current = usize::try_from(device).ok();
            if let Some(current) = current.and_then(|place| known.current.get_mut(place)) {
                *current = 0;
            }
        });
    }

    /// Holds off the destruction of pools until it is dropped.
    pub fn in_use(&self) -> RwLockReadGuard<'_, ()> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pools on a device, with `first` before the others. The caller holds [`in_use`](Self::in_use) as long as it uses them.
    pub fn on(&self, device: CUdevice, first: Option<CUmemoryPool>) -> Vec<CUmemoryPool> {
        let first = first.map_or(0, |pool| pool as usize);
        let mut all = self.with(|known| {
            let here = known.pools.iter().filter(|(_, on)| **on == device);
            here.map(|(pool, _)| *pool).collect::<Vec<_>>()
        });
        all.sort_by_key(|pool| *pool != first);
        all.into_iter().map(|pool| pool as CUmemoryPool).collect()
    }

    /// Calls `act` with a pool, which is not destroyed in that time. Returns `None` if it is no longer in the table.
    pub fn with_pool<T>(&self, pool: CUmemoryPool, act: impl FnOnce() -> T) -> Option<T> {
        let _in_use = self.in_use();
        let is_known = self.with(|known| known.pools.contains_key(&(pool as usize)));
        is_known.then(act)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut known);
        self.any.store(!known.pools.is_empty(), Relaxed);
        result
    }
}

/// A pool, and the stream in whose order it allocates or frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The pool's handle.
    pub pool: usize,
    /// The stream, or 1 and 2 for the default streams.
    stream: usize,
    /// The calling thread, for its own default stream.
    thread: usize,
}

impl Source {
    /// Returns the source for a call of the thread with this number.
    pub fn new(pool: CUmemoryPool, stream: usize, thread: usize) -> Self {
        let is_own = stream == CU_STREAM_PER_THREAD as usize;
        Self {
            pool: pool as usize,
            stream,
            thread: if is_own { thread } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_is_being_destroyed_is_neither_used_nor_found_again() {
        let table = Caching::default();
        let (pool, default) = (16 as CUmemoryPool, 32 as CUmemoryPool);
        assert_eq!(table.use_current(0, || Some(pool)), Some(pool));
        assert_eq!(table.use_current(0, || panic!("it is known")), Some(pool));
        assert_eq!(table.on(0, None), [pool]);
        let dying = table.destroys(pool);
        assert_eq!(table.use_current(0, || Some(pool)), None);
        table.add(pool, 0);
        assert!(table.on(0, None).is_empty() && !table.any());
        assert_eq!(table.with_pool(pool, || ()), None);
        let asked = std::cell::RefCell::new(vec![default, pool]);
        let dying = std::cell::Cell::new(Some(dying));
        let answer = || {
            dying.take();
            asked.borrow_mut().pop()
        };
        assert_eq!(
            table.use_current(0, answer),
            Some(default),
            "asked again, because the pool was destroyed in between"
        );
        assert_eq!(table.on(0, None), [default]);
        table.destroys(default).stays();
        assert_eq!(table.on(0, None), [default]);
    }

    #[test]
    fn the_destruction_of_a_pool_waits_for_calls_that_use_it() {
        let table = Caching::default();
        let pool = 16;
        table.add(pool as CUmemoryPool, 0);
        let is_used = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let in_use = table.in_use();
            let destroys = scope.spawn(|| {
                drop(table.destroys(pool as CUmemoryPool));
                assert!(!is_used.load(Relaxed));
            });
            while table.any() {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            is_used.store(false, Relaxed);
            drop(in_use);
            destroys.join().expect("it ends");
        });
    }

    #[test]
    fn each_thread_has_a_default_stream_of_its_own() {
        let own = CU_STREAM_PER_THREAD as usize;
        let of = |stream, thread| Source::new(1 as CUmemoryPool, stream, thread);
        assert_ne!(of(own, 7), of(own, 8));
        assert_eq!(of(0x10, 7), of(0x10, 8));
    }
}
