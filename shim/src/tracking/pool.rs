//! The pools of stream-ordered memory: where each one's memory is, and which may keep freed memory.

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

/// Where a pool's memory is.
#[derive(Clone, Copy)]
pub enum Home {
    /// On a device.
    Device(CUdevice),
    /// On the host.
    Host,
}

impl Home {
    /// Managed memory that is on no device, or nowhere in particular, has no home: it goes where it is used.
    pub fn at(location: CUmemLocation, kind: u32) -> Option<Self> {
        match location.device() {
            Some(device) => Some(Self::Device(device)),
            None if location.type_ == CU_MEM_LOCATION_TYPE_INVALID => None,
            None if kind == CU_MEM_ALLOCATION_TYPE_MANAGED => None,
            None => Some(Self::Host),
        }
    }
}

/// The pools we have seen made or asked for.
#[derive(Default)]
pub struct Homes {
    homes: Mutex<HashMap<usize, Home>>,
}

impl Homes {
    /// Runs `act` on the pools.
    pub fn with<T>(&self, act: impl FnOnce(&mut HashMap<usize, Home>) -> T) -> T {
        act(&mut self.homes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The pools that may keep freed memory, and their devices: those that something was allocated from.
#[derive(Default)]
pub struct Caching {
    any: AtomicBool,
    pools: Mutex<HashMap<usize, CUdevice>>,
    /// The pool that each device's allocations come from when none is named; 0 where that has to be asked.
    current: [AtomicUsize; DEVICES_PER_PROCESS],
}

impl Caching {
    /// Whether a pool may keep anything at all.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Something is allocated from a pool on this device.
    pub fn add(&self, pool: CUmemoryPool, device: CUdevice) {
        self.with(|pools| _ = pools.insert(pool as usize, device));
    }

    /// A pool is destroyed.
    pub fn forget(&self, pool: CUmemoryPool) {
        self.with(|pools| _ = pools.remove(&(pool as usize)));
        // The device's own pool is current then.
        for current in &self.current {
            let _ = current.compare_exchange(pool as usize, 0, Relaxed, Relaxed);
        }
    }

    /// The device's current pool, where it is known.
    pub fn current(&self, device: CUdevice) -> Option<CUmemoryPool> {
        let pool = self.current_word(device)?.load(Relaxed);
        (pool != 0).then_some(pool as CUmemoryPool)
    }

    /// A pool is the device's current one from now on.
    pub fn set_current(&self, device: CUdevice, pool: CUmemoryPool) {
        if let Some(word) = self.current_word(device) {
            word.store(pool as usize, Relaxed);
        }
    }

    fn current_word(&self, device: CUdevice) -> Option<&AtomicUsize> {
        self.current.get(usize::try_from(device).ok()?)
    }

    /// The pools on a device, this one first.
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
