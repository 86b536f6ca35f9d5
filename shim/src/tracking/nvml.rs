//! The table from NVML device handles to the process's devices.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpushare_abi::types::{CUdevice, nvmlDevice_t};

/// The process's device for each NVML handle that was looked up.
#[derive(Default)]
pub struct NvmlHandles(Mutex<HashMap<usize, Handle>>);

/// A handle that was looked up.
#[derive(Clone, Copy)]
struct Handle {
    ordinal: Option<CUdevice>,
    /// Total and reserved bytes, as NVML last reported them.
    bytes: Option<(u64, u64)>,
}

impl NvmlHandles {
    /// Returns the device of a handle, looked up with `find` the first time.
    pub fn ordinal(
        &self,
        device: nvmlDevice_t,
        find: impl FnOnce() -> Option<CUdevice>,
    ) -> Option<CUdevice> {
        let device = device as usize;
        let known = self.all().get(&device).copied();
        let handle = known.unwrap_or_else(|| {
            // Looked up without the lock: a driver call may not return while the process is evicted.
            let ordinal = find();
            let bytes = None;
            let found = Handle { ordinal, bytes };
            *self.all().entry(device).or_insert(found)
        });
        handle.ordinal
    }

    /// Remembers the total and the reserved bytes that NVML reported for a device.
    pub fn see(&self, device: nvmlDevice_t, total: u64, reserved: u64) {
        if let Some(handle) = self.all().get_mut(&(device as usize)) {
            handle.bytes = Some((total, reserved));
        }
    }

    /// Returns the total and the reserved bytes that NVML reported last for one of the process's devices, and the device.
    pub fn seen(&self, device: nvmlDevice_t) -> Option<(u64, u64, CUdevice)> {
        let handle = self.all().get(&(device as usize)).copied()?;
        let (total, reserved) = handle.bytes?;
        Some((total, reserved, handle.ordinal?))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<usize, Handle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
