//! Swappable allocations. The shim creates their physical memory and their addresses itself, so that the memory can
//! be released while the addresses stay reserved.
//!
//! Each also has a record in the [allocation map](super::allocation_map), by which it is charged and freed. This
//! table contains its parts.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use gpushare_abi::types::{CUdeviceptr, CUmemGenericAllocationHandle};

use crate::tracking::record::{self, Record};

/// A swappable allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first address.
    pub start: CUdeviceptr,
    /// A number that no other allocation of the process has had.
    pub serial: u64,
    /// The requested bytes.
    pub bytes: u64,
    /// The bytes that are reserved and mapped.
    pub room: u64,
    /// The physical memory; `None` while evicted.
    pub handle: Option<CUmemGenericAllocationHandle>,
    /// The context in which it was allocated.
    pub context: usize,
    /// The ordinal of its device.
    pub ordinal: u8,
    /// Something outside of the driver uses the physical memory, so it cannot be evicted.
    pub is_fixed: bool,
}

/// The swappable allocations of a process. No lock on them is held over a driver call.
#[derive(Default)]
pub struct SwappableAllocations {
    blocks: Mutex<BTreeMap<CUdeviceptr, Block>>,
    /// Pairs of a device and the owner of memory that the device can access.
    peers: Mutex<Vec<(u8, u8)>>,
    /// Frees that a capture has delayed, with the records to uncharge.
    late: Mutex<Vec<(CUdeviceptr, Record)>>,
    /// The driver refuses to create such allocations.
    refused: AtomicBool,
    serials: AtomicU64,
}

fn is_movable(block: &&Block) -> bool {
    block.handle.is_some() && !block.is_fixed
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SwappableAllocations {
    /// Returns the serial number of a new allocation.
    pub fn next_serial(&self) -> u64 {
        self.serials.fetch_add(1, Relaxed)
    }

    /// Adds or replaces an allocation.
    pub fn put(&self, block: Block) {
        lock(&self.blocks).insert(block.start, block);
    }

    /// Returns the allocation that begins at an address.
    pub fn get(&self, start: CUdeviceptr) -> Option<Block> {
        lock(&self.blocks).get(&start).copied()
    }

    /// Returns the allocation that contains an address.
    pub fn at(&self, address: CUdeviceptr) -> Option<Block> {
        let blocks = lock(&self.blocks);
        let (_, block) = blocks.range(..=address).next_back()?;
        (address - block.start < block.bytes).then_some(*block)
    }

    /// Removes and returns an allocation.
    pub fn take(&self, start: CUdeviceptr) -> Option<Block> {
        lock(&self.blocks).remove(&start)
    }

    /// Returns all allocations, by address.
    pub fn all(&self) -> Vec<Block> {
        lock(&self.blocks).values().copied().collect()
    }

    /// Returns the allocations that are evicted.
    pub fn evicted(&self) -> Vec<Block> {
        let mut blocks = self.all();
        blocks.retain(|block| block.handle.is_none());
        blocks
    }

    /// Returns the allocations whose physical memory can be evicted, by address.
    pub fn movable(&self) -> Vec<Block> {
        let blocks = lock(&self.blocks);
        blocks.values().filter(is_movable).copied().collect()
    }

    /// Returns the requested bytes of the allocations that can be evicted.
    pub fn movable_bytes(&self) -> u64 {
        let blocks = lock(&self.blocks);
        blocks
            .values()
            .filter(is_movable)
            .map(|block| block.bytes)
            .sum()
    }

    /// Marks the allocation that contains an address as one that cannot be evicted.
    pub fn fix(&self, address: CUdeviceptr) {
        let mut blocks = lock(&self.blocks);
        let below = blocks.range_mut(..=address).next_back();
        if let Some((_, block)) = below
            && address - block.start < block.bytes
        {
            block.is_fixed = true;
        }
    }

    /// Records that a device can access the memory of another one.
    pub fn add_peer(&self, reaches: u8, owner: u8) {
        let mut peers = lock(&self.peers);
        if !peers.contains(&(reaches, owner)) {
            peers.push((reaches, owner));
        }
    }

    /// Returns the devices that can access the memory of `owner`, itself first.
    pub fn who_reaches(&self, owner: u8) -> Vec<u8> {
        let peers = lock(&self.peers);
        let others = peers.iter().filter(|(_, of)| *of == owner);
        let others = others.map(|(reaches, _)| *reaches);
        std::iter::once(owner).chain(others).collect()
    }

    /// Delays a free until no capture is open.
    pub fn put_off(&self, start: CUdeviceptr, record: Record) {
        lock(&self.late).push((start, record));
    }

    /// Removes and returns the delayed frees.
    pub fn take_late(&self) -> Vec<(CUdeviceptr, Record)> {
        std::mem::take(&mut lock(&self.late))
    }

    /// Removes and returns the delayed frees of allocations in these contexts.
    pub fn take_late_of(&self, contexts: &[u64]) -> Vec<(CUdeviceptr, Record)> {
        let mut late = lock(&self.late);
        let gone = late.extract_if(.., |(_, record)| {
            contexts.contains(&record::context(record))
        });
        gone.collect()
    }

    /// Records that the driver has refused to create such an allocation, and would again.
    pub fn refuse(&self) {
        self.refused.store(true, Relaxed);
    }

    /// Returns true if the driver refuses to create such allocations.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64) -> Block {
        Block {
            start,
            serial: start,
            bytes: 100,
            room: 128,
            handle: Some(7),
            context: 1,
            ordinal: 0,
            is_fixed: false,
        }
    }

    #[test]
    fn an_address_is_found_within_what_was_asked_for() {
        let table = SwappableAllocations::default();
        table.put(block(1000));
        table.put(block(2000));
        assert_eq!(table.at(999), None);
        assert_eq!(table.at(1099), Some(block(1000)));
        assert_eq!(table.at(1100), None, "mapped, and not asked for");
        table.fix(2050);
        assert!(table.get(2000).is_some_and(|block| block.is_fixed));
        assert!(table.get(1000).is_some_and(|block| !block.is_fixed));
        assert_eq!(table.take(1000), Some(block(1000)));
        assert_eq!((table.get(1000), table.all().len()), (None, 1));
    }

    #[test]
    fn a_device_reaches_itself_and_its_peers() {
        let table = SwappableAllocations::default();
        table.add_peer(2, 1);
        table.add_peer(2, 1);
        assert_eq!(table.who_reaches(1), [1, 2]);
        assert_eq!(table.who_reaches(2), [2]);
    }
}
