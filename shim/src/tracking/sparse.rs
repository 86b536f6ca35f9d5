//! The physical memory to which the tiles of sparse arrays are mapped.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpushare_abi::types::CUarrayMapInfo;

use crate::tracking::physical::Id;

/// A part of an array: its kind and its position.
pub type Part = (u32, [u64; 4]);

/// The physical memory of each mapped part of each array. No lock on it is held over a driver call.
#[derive(Default)]
pub struct SparseMappings {
    arrays: Mutex<HashMap<u64, HashMap<Part, Id>>>,
}

impl SparseMappings {
    /// Locks the mapped parts, by array.
    pub fn lock(&self) -> MutexGuard<'_, HashMap<u64, HashMap<Part, Id>>> {
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the new memory of an array's part, or `None` for an unmapping. Returns the memory it had before.
    pub fn back(&self, info: &CUarrayMapInfo, now: Option<Id>) -> Option<Id> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(array: u64, x: u64) -> CUarrayMapInfo {
        CUarrayMapInfo {
            resourceType: 0,
            resource: array,
            subresourceType: 0,
            subresource: [0, x, 0, 0],
            memOperationType: 1,
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
        let table = SparseMappings::default();
        assert_eq!(table.back(&tile(9, 0), Some(1)), None);
        assert_eq!(table.back(&tile(9, 64), Some(1)), None);
        assert_eq!(table.back(&tile(9, 0), Some(2)), Some(1));
        assert_eq!(table.back(&tile(9, 0), None), Some(2));
        assert_eq!(table.back(&tile(9, 0), None), None);
        assert_eq!(table.lock()[&9].len(), 1);
        assert_eq!(table.back(&tile(9, 64), None), Some(1));
        assert!(table.lock().is_empty());
    }
}
