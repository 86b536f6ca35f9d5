//! The memory pools of stream-ordered allocations: the location of each pool's memory, and the pools that may keep
//! freed memory.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use gpushare_abi::types::{
    CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_INVALID, CUdevice, CUmemLocation,
    CUmemoryPool,
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

/// The pools that may keep freed memory, with their devices. A pool is added with its first allocation.
#[derive(Default)]
pub struct Caching {
    any: AtomicBool,
    pools: Mutex<HashMap<usize, CUdevice>>,
    /// The pool from which each device allocates if none is named; 0 if the driver must be asked.
    current: [AtomicUsize; DEVICES_PER_PROCESS],
}

impl Caching {
    /// Returns true if any pool may keep memory.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Records an allocation from a pool on a device.
    pub fn add(&self, pool: CUmemoryPool, device: CUdevice) {
        self.with(|pools| _ = pools.insert(pool as usize, device));
    }

    /// Removes a destroyed pool.
    pub fn forget(&self, pool: CUmemoryPool) {
        self.with(|pools| _ = pools.remove(&(pool as usize)));
        // The device's default pool becomes the current one.
        for current in &self.current {
            let _ = current.compare_exchange(pool as usize, 0, Relaxed, Relaxed);
        }
    }

    /// Returns the device's current pool, or `None` if the driver must be asked.
    pub fn current(&self, device: CUdevice) -> Option<CUmemoryPool> {
        let pool = self.current_word(device)?.load(Relaxed);
        (pool != 0).then_some(pool as CUmemoryPool)
    }

    /// Sets the device's current pool.
    pub fn set_current(&self, device: CUdevice, pool: CUmemoryPool) {
        if let Some(word) = self.current_word(device) {
            word.store(pool as usize, Relaxed);
        }
    }

    fn current_word(&self, device: CUdevice) -> Option<&AtomicUsize> {
        self.current.get(usize::try_from(device).ok()?)
    }

    /// Returns the pools on a device, with `first` before the others.
    pub fn on(&self, device: CUdevice, first: Option<CUmemoryPool>) -> Vec<CUmemoryPool> {
        let first = first.map_or(0, |pool| pool as usize);
        let mut all = self.with(|pools| {
            let here = pools.iter().filter(|(_, on)| **on == device);
            here.map(|(pool, _)| *pool).collect::<Vec<_>>()
        });
        all.sort_by_key(|pool| *pool != first);
        all.into_iter().map(|pool| pool as CUmemoryPool).collect()
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<usize, CUdevice>) -> T) -> T {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut pools);
        self.any.store(!pools.is_empty(), Relaxed);
        result
    }
}
