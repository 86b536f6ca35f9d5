//! Which of our devices an NVML handle is.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpushare_abi::types::{CUdevice, nvmlDevice_t};

/// Which of our devices an NVML handle is, once asked.
#[derive(Default)]
pub struct NvmlHandles {
    ordinals: Mutex<HashMap<usize, Option<CUdevice>>>,
}

impl NvmlHandles {
    /// The device of a handle; asked for by `find` the first time.
    pub fn ordinal(
        &self,
        device: nvmlDevice_t,
        find: impl FnOnce() -> Option<CUdevice>,
    ) -> Option<CUdevice> {
        let device = device as usize;
        let known = self.ordinals().get(&device).copied();
        known.unwrap_or_else(|| {
            // Asked without the lock: the driver may keep a thread for as long as the process is evicted.
            let found = find();
            *self.ordinals().entry(device).or_insert(found)
        })
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
