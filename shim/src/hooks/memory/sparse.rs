//! Physical memory mapped into sparse arrays: a tile keeps it alive as an address mapping does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_abi::In;
use gpushare_abi::errors::CUresult;
use gpushare_abi::types::CUarrayMapInfo;

use crate::guest::guest;
use crate::real::Real;

use super::physical::Id;

/// `CUarrayMapInfo::memOperationType`.
const MAP: u32 = 1;

/// A part of an array: which kind of part, and where.
type Part = (u32, [u64; 4]);

/// Which memory is mapped into which part of which array. No lock on it is held over a driver call.
#[derive(Default)]
pub struct Book {
    arrays: Mutex<HashMap<u64, HashMap<Part, Id>>>,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HashMap<Part, Id>>> {
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters what a part of an array is backed by now; what it was backed by before.
    fn back(&self, info: &CUarrayMapInfo, now: Option<Id>) -> Option<Id> {
        let part = (info.subresourceType, info.subresource);
        let mut arrays = self.lock();
        let parts = arrays.entry(info.resource).or_default();
        let before = match now {
            Some(id) => parts.insert(part, id),
            None => parts.remove(&part),
        };
        if parts.is_empty() {
            arrays.remove(&info.resource);
        }
        before
    }
}

/// `cuMemMapArrayAsync`: maps and unmaps, several at once.
pub fn map(
    real: Real<'_, impl FnOnce() -> CUresult>,
    list: In<CUarrayMapInfo>,
    count: u32,
) -> CUresult {
    let Some(guest) = guest() else {
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
                .then(|| guest.memory.physical.hold(info.memHandle))
                .flatten()
        })
        .collect();
    let result = real.call();
    for (info, id) in infos.iter().zip(held) {
        let over = if result.is_ok() {
            guest.memory.sparse.back(info, id)
        } else {
            id
        };
        if let Some(id) = over {
            guest.memory.physical.let_go(guest, id);
        }
    }
    result
}

/// An array is destroyed by `driver`, and with it all its mappings.
pub fn destroy(array: u64, driver: impl FnOnce() -> CUresult) -> CUresult {
    let Some(guest) = guest() else {
        return driver();
    };
    // Before the driver lets the handle be used again.
    let parts = guest.memory.sparse.lock().remove(&array);
    let result = driver();
    let Some(parts) = parts else {
        return result;
    };
    if result.is_ok() {
        parts
            .into_values()
            .for_each(|id| guest.memory.physical.let_go(guest, id));
    } else {
        guest.memory.sparse.lock().insert(array, parts);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(array: u64, x: u64) -> CUarrayMapInfo {
        CUarrayMapInfo {
            resourceType: 0,
            resource: array,
            subresourceType: 0,
            subresource: [0, x, 0, 0],
            memOperationType: MAP,
            memHandleType: 0,
            memHandle: 7,
            offset: 0,
            deviceBitMask: 1,
            flags: 0,
            reserved: [0; 2],
        }
    }

    #[test]
    fn a_tile_mapped_again_lets_go_of_what_it_had() {
        let book = Book::default();
        assert_eq!(book.back(&tile(9, 0), Some(1)), None);
        assert_eq!(book.back(&tile(9, 64), Some(1)), None);
        assert_eq!(book.back(&tile(9, 0), Some(2)), Some(1));
        assert_eq!(book.back(&tile(9, 0), None), Some(2));
        assert_eq!(book.back(&tile(9, 0), None), None);
        assert_eq!(book.lock()[&9].len(), 1);
        assert_eq!(book.back(&tile(9, 64), None), Some(1));
        assert!(book.lock().is_empty());
    }
}
