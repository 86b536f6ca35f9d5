//! The table from NVML device handles to the process's devices.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpushare_abi::types::{CUdevice, nvmlDevice_t};

/// The process's device for each NVML handle that was looked up.
#[derive(Default)]
pub struct NvmlHandles {
    ordinals: Mutex<HashMap<usize, Option<CUdevice>>>,
    /// Total bytes, reserved bytes and device by handle, as NVML last reported them.
    seen: Mutex<HashMap<usize, Seen>>,
}

/// Total bytes, reserved bytes and device of a handle.
type Seen = (u64, u64, CUdevice);

impl NvmlHandles {
    /// Returns the device of a handle, looked up with `find` the first time.
    pub fn ordinal(
        &self,
        device: nvmlDevice_t,
        find: impl FnOnce() -> Option<CUdevice>,
    ) -> Option<CUdevice> {
        let device = device as usize;
        let known = self.ordinals().get(&device).copied();
        known.unwrap_or_else(|| {
            // Looked up without the lock: a driver call may not return while the process is evicted.
            let found = find();
            *self.ordinals().entry(device).or_insert(found)
        })
    }

    /// Remembers what NVML reported for a device.
    pub fn see(&self, device: nvmlDevice_t, total: u64, reserved: u64, ordinal: CUdevice) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(device as usize, (total, reserved, ordinal));
    }

    /// Returns what NVML reported last for a device.
    pub fn seen(&self, device: nvmlDevice_t) -> Option<Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&(device as usize)).copied()
    }

    fn ordinals(&self) -> MutexGuard<'_, HashMap<usize, Option<CUdevice>>> {
        self.ordinals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn a_thread_that_the_driver_keeps_keeps_no_other() {
        let table = NvmlHandles::default();
        let handle = |number: usize| number as nvmlDevice_t;
        std::thread::scope(|scope| {
            let found = table.ordinal(handle(1), || {
                let (tell, told) = mpsc::channel();
                let table = &table;
                scope.spawn(move || {
                    let other = table.ordinal(handle(2), || Some(7));
                    tell.send(other).ok();
                });
                told.recv_timeout(Duration::from_secs(10)).ok().flatten()
            });
            assert_eq!(found, Some(7));
        });
        assert_eq!(table.ordinal(handle(2), || None), Some(7), "asked once");
    }
}
