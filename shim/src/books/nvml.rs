//! Which of our devices an NVML handle is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use gpushare_abi::types::{CUdevice, nvmlDevice_t};

/// Which of our devices an NVML handle is, once asked.
#[derive(Default)]
pub struct Book {
    ordinals: Mutex<HashMap<usize, Option<CUdevice>>>,
}

impl Book {
    /// The device of a handle; asked for by `find` the first time.
    pub fn ordinal(
        &self,
        device: nvmlDevice_t,
        find: impl FnOnce() -> Option<CUdevice>,
    ) -> Option<CUdevice> {
        let mut ordinals = self.ordinals.lock().unwrap_or_else(PoisonError::into_inner);
        *ordinals.entry(device as usize).or_insert_with(find)
    }
}
