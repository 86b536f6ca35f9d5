//! Allocations that we made ourselves, of physical memory and addresses, so that the one can leave while the other stay.
//!
//! Each has a record in the [allocation map](super::allocation_map) too, as every allocation has: that one is charged and freed by. Here is
//! what it is made of.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use gpushare_abi::types::{CUdeviceptr, CUmemGenericAllocationHandle};

use crate::tracking::{allocation_map::Record, record};

/// One allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first address.
    pub start: CUdeviceptr,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Bytes that are reserved and mapped.
    pub room: u64,
    /// The physical memory behind it; none while that is away.
    pub handle: Option<CUmemGenericAllocationHandle>,
    /// The context that it was allocated in.
    pub context: usize,
    /// The device it is on.
    pub ordinal: u8,
    /// Something outside of the driver uses the physical memory: it stays where it is.
    pub is_fixed: bool,
}

/// All of them. No lock on it is held over a driver call.
#[derive(Default)]
pub struct SwappableAllocations {
    blocks: Mutex<BTreeMap<CUdeviceptr, Block>>,
    /// Which device reaches the memory of which other one.
    peers: Mutex<Vec<(u8, u8)>>,
    /// Frees that a capture has put off, with what is to be given back.
    late: Mutex<Vec<(CUdeviceptr, Record)>>,
    /// The driver does not let us make any.
    refused: AtomicBool,
}

fn is_movable(block: &&Block) -> bool {
    block.handle.is_some() && !block.is_fixed
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SwappableAllocations {
    /// Remembers one, or what became of it.
    pub fn put(&self, block: Block) {
        lock(&self.blocks).insert(block.start, block);
    }

    /// The one that begins at an address.
    pub fn get(&self, start: CUdeviceptr) -> Option<Block> {
        lock(&self.blocks).get(&start).copied()
    }

    /// The one that an address is in.
    pub fn at(&self, address: CUdeviceptr) -> Option<Block> {
        let blocks = lock(&self.blocks);
        let (_, block) = blocks.range(..=address).next_back()?;
        (address - block.start < block.bytes).then_some(*block)
    }

    /// Forgets one.
    pub fn take(&self, start: CUdeviceptr) -> Option<Block> {
        lock(&self.blocks).remove(&start)
    }

    /// All there are, by address.
    pub fn all(&self) -> Vec<Block> {
        lock(&self.blocks).values().copied().collect()
    }

    /// Those whose physical memory can leave, by address.
    pub fn movable(&self) -> Vec<Block> {
        let blocks = lock(&self.blocks);
        blocks.values().filter(is_movable).copied().collect()
    }

    /// Bytes that were asked for of those.
    pub fn movable_bytes(&self) -> u64 {
        let blocks = lock(&self.blocks);
        blocks
            .values()
            .filter(is_movable)
            .map(|block| block.bytes)
            .sum()
    }

    /// Its physical memory stays where it is from now on.
    pub fn fix(&self, address: CUdeviceptr) {
        let mut blocks = lock(&self.blocks);
        let below = blocks.range_mut(..=address).next_back();
        if let Some((_, block)) = below
            && address - block.start < block.bytes
        {
            block.is_fixed = true;
        }
    }

    /// A device reaches another one's memory from now on.
    pub fn add_peer(&self, reaches: u8, owner: u8) {
        let mut peers = lock(&self.peers);
        if !peers.contains(&(reaches, owner)) {
            peers.push((reaches, owner));
        }
    }

    /// The devices that reach the memory of one, itself first.
    pub fn who_reaches(&self, owner: u8) -> Vec<u8> {
        let peers = lock(&self.peers);
        let others = peers.iter().filter(|(_, of)| *of == owner);
        let others = others.map(|(reaches, _)| *reaches);
        std::iter::once(owner).chain(others).collect()
    }

    /// It is freed once no capture is under way.
    pub fn put_off(&self, start: CUdeviceptr, record: Record) {
        lock(&self.late).push((start, record));
    }

    /// What was put off.
    pub fn take_late(&self) -> Vec<(CUdeviceptr, Record)> {
        std::mem::take(&mut lock(&self.late))
    }

    /// What was put off of what these contexts held.
    pub fn take_late_of(&self, contexts: &[u64]) -> Vec<(CUdeviceptr, Record)> {
        let mut late = lock(&self.late);
        let gone = late.extract_if(.., |(_, record)| {
            contexts.contains(&record::context(record))
        });
        gone.collect()
    }

    /// The driver has refused to make one, and would again.
    pub fn refuse(&self) {
        self.refused.store(true, Relaxed);
    }

    /// Whether the driver does not let us make any.
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
