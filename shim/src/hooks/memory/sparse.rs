//! Hooks for physical memory mapped into sparse arrays. A mapped tile keeps it alive like a mapping at an address.

use super::account;
use gpushare_abi::{In, errors::CUresult, types::CUarrayMapInfo};

use crate::{hooks::Real, managed_process};

/// Value of `CUarrayMapInfo::memOperationType`.
const MAP: u32 = 1;

/// Forwards `cuMemMapArrayAsync`, which maps and unmaps several tiles.
pub fn map(
    real: Real<'_, impl FnOnce() -> CUresult>,
    list: In<CUarrayMapInfo>,
    count: u32,
) -> CUresult {
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    let infos: Vec<_> = (0..count as usize)
        .map_while(|index| list.nth(index))
        .collect();
    // The references are added before the driver is called, so that a concurrent release does not uncharge the
    // memory.
    let held: Vec<_> = infos
        .iter()
        .map(|info| {
            (info.memOperationType == MAP)
                .then(|| process.memory.physical.hold(info.memHandle))
                .flatten()
        })
        .collect();
    let result = real.call();
    for (info, id) in infos.iter().zip(held) {
        let over = if result.is_ok() {
            process.memory.sparse.back(info, id)
        } else {
            id
        };
        if let Some(id) = over {
            account::let_go(process, id);
        }
    }
    result
}

/// Calls `driver` to destroy an array, and removes the references of its tiles.
pub fn destroy(array: u64, driver: impl FnOnce() -> CUresult) -> CUresult {
    let Some(process) = managed_process::current() else {
        return driver();
    };
    // Removed before the driver may reuse the handle.
    let parts = process.memory.sparse.lock().remove(&array);
    let result = driver();
    let Some(parts) = parts else {
        return result;
    };
    if result.is_ok() {
        parts
            .into_values()
            .for_each(|id| account::let_go(process, id));
    } else {
        process.memory.sparse.lock().insert(array, parts);
    }
    result
}
