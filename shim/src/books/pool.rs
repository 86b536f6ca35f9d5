//! The pools of stream-ordered memory: where each one's memory is, and which keep freed memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use gpushare_abi::types::{
    CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_INVALID, CUdevice, CUmemLocation,
    CUmemoryPool,
};

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
    /// The device a pool's memory is on, if it is on one.
    pub fn device_of(&self, pool: CUmemoryPool) -> Option<CUdevice> {
        match self.with(|homes| homes.get(&(pool as usize)).copied()) {
            Some(Home::Device(device)) => Some(device),
            _ => None,
        }
    }

    /// Runs `act` on the pools.
    pub fn with<T>(&self, act: impl FnOnce(&mut HashMap<usize, Home>) -> T) -> T {
        act(&mut self.homes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The pools with a release threshold, and their devices.
#[derive(Default)]
pub struct Caching {
    any: AtomicBool,
    pools: Mutex<HashMap<usize, CUdevice>>,
}

impl Caching {
    /// Whether a pool keeps anything at all.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// The pool is no more, or keeps nothing from now on.
    pub fn forget(&self, pool: CUmemoryPool) {
        self.with(|pools| _ = pools.remove(&(pool as usize)));
    }

    /// Runs `act` on the pools.
    pub fn with<T>(&self, act: impl FnOnce(&mut HashMap<usize, CUdevice>) -> T) -> T {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut pools);
        self.any.store(!pools.is_empty(), Relaxed);
        result
    }
}
