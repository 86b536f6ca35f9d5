//! Physical memory mapped into sparse arrays: a tile keeps it alive as an address mapping does.

use super::account;
use gpushare_abi::{In, errors::CUresult, types::CUarrayMapInfo};

use crate::{hooks::Real, managed_process};

/// `CUarrayMapInfo::memOperationType`.
const MAP: u32 = 1;

/// `cuMemMapArrayAsync`: maps and unmaps, several at once.
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
    // Held before the driver is asked, so that a release meanwhile does not give it back.
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

/// An array is destroyed by `driver`, and with it all its mappings.
pub fn destroy(array: u64, driver: impl FnOnce() -> CUresult) -> CUresult {
    let Some(process) = managed_process::current() else {
        return driver();
    };
    // Before the driver lets the handle be used again.
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
