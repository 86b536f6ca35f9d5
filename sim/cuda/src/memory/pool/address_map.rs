//! The address map of a pool: its addresses, those in use, and those that may be used again.
//!
//! A pool takes memory from the device in *chunks* and divides them into allocations. A freed block has two states:
//! *resting*, when `cuMemFreeAsync` was called but its stream has not reached it yet, so that only the same stream
//! may use it again; and *free*, when any stream may. A chunk that is completely free can be returned to the device,
//! by a trim or a synchronisation.
//!
//! ```text
//! chunk  [ used | free      | resting(stream 7) | used ]      reserved = chunks, used = used blocks
//! ```
//!
//! The map contains only numbers; [`super`] takes and releases the memory.

use std::collections::{BTreeMap, BTreeSet};

/// Allocations are multiples of this and aligned to it.
pub const GRAIN: u64 = 512;
/// A chunk is at least this, if the device has as much.
pub const CHUNK: u64 = 32 << 20;
/// A chunk is a multiple of this.
pub const CHUNK_GRAIN: u64 = 2 << 20;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Used,
    /// Freed in stream order: the stream, and the free's number.
    Resting(u64, u64),
}

#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    state: State,
}

/// Blocks in order of size, to find the smallest that is large enough.
type Fits = BTreeSet<(u64, u64)>;

/// A pool's chunks and blocks.
#[derive(Debug, Default)]
pub struct AddressMap {
    /// Base and size.
    chunks: BTreeMap<u64, u64>,
    /// Every byte of every chunk is in one block.
    blocks: BTreeMap<u64, Block>,
    /// Free blocks, by size and address.
    free: Fits,
    /// Resting blocks of each stream, by size and address.
    resting: BTreeMap<u64, Fits>,
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
    frees: u64,
}

/// A free that its stream has not reached yet.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    address: u64,
    size: u64,
    number: u64,
}

/// Returns the size of the block for an allocation of `bytes`.
pub fn rounded(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(GRAIN)
}

impl AddressMap {
    /// Returns the bytes that the pool holds of the device now.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Returns the most bytes that the pool has held since the last reset.
    pub fn reserved_high(&self) -> u64 {
        self.reserved_high
    }

    /// Returns the bytes in use now.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the most bytes in use since the last reset.
    pub fn used_high(&self) -> u64 {
        self.used_high
    }

    /// Starts the high-water mark of held bytes again.
    pub fn reset_reserved_high(&mut self) {
        self.reserved_high = self.reserved;
    }

    /// Starts the high-water mark of used bytes again.
    pub fn reset_used_high(&mut self) {
        self.used_high = self.used;
    }

    /// Finds room in the pool's memory: first in blocks that rest in the same stream, then in free blocks.
    pub fn allocate(&mut self, bytes: u64, stream: u64) -> Option<u64> {
        let size = rounded(bytes)?;
        let fits = |all: &Fits| all.range((size, 0)..).next().map(|(_, address)| *address);
        let resting = self.resting.get(&stream).and_then(fits);
        let address = resting.or_else(|| fits(&self.free))?;
        let block = self.take(address)?;
        let used = Block {
            size,
            state: State::Used,
        };
        self.put(address, used);
        if block.size > size {
            // The rest keeps its state.
            let rest = Block {
                size: block.size - size,
                ..block
            };
            self.put(address + size, rest);
        }
        self.used += size;
        self.used_high = self.used_high.max(self.used);
        Some(address)
    }

    /// Adds a chunk.
    pub fn grow(&mut self, base: u64, size: u64) {
        self.chunks.insert(base, size);
        let whole = Block {
            size,
            state: State::Free,
        };
        self.put(base, whole);
        self.reserved += size;
        self.reserved_high = self.reserved_high.max(self.reserved);
    }

    /// Marks a block as resting until its stream has reached the free.
    pub fn rest(&mut self, address: u64, stream: u64) -> Option<Rest> {
        self.frees += 1;
        let number = self.frees;
        let size = self.leave_use(address, State::Resting(stream, number))?;
        Some(Rest {
            address,
            size,
            number,
        })
    }

    /// Frees a resting block when its stream has reached the free, unless it was used again.
    pub fn settle(&mut self, rest: Rest) {
        let waits =
            |block: &Block| matches!(block.state, State::Resting(_, own) if own == rest.number);
        let range = rest.address..rest.address + rest.size;
        let parts = self.blocks.range(range).filter(|(_, block)| waits(block));
        for address in parts.map(|(address, _)| *address).collect::<Vec<_>>() {
            self.become_state(address, State::Free);
        }
        self.join(rest.address, rest.address + rest.size);
    }

    /// Frees a block at once.
    pub fn free(&mut self, address: u64) -> Option<()> {
        let size = self.leave_use(address, State::Free)?;
        self.join(address, address + size);
        Some(())
    }

    fn leave_use(&mut self, address: u64, state: State) -> Option<u64> {
        let block = self.blocks.get(&address)?;
        if block.state != State::Used {
            return None;
        }
        let size = block.size;
        self.become_state(address, state);
        self.used -= size;
        Some(size)
    }

    /// Removes completely free chunks while more than `keep` bytes are held. Returns the base and size of each.
    pub fn trim(&mut self, keep: u64) -> Vec<(u64, u64)> {
        let mut gone = Vec::new();
        for (base, size) in self.chunks.clone() {
            let whole = self.blocks.get(&base).copied();
            let free = whole.is_some_and(|b| b.size == size && b.state == State::Free);
            if free && self.reserved - size >= keep {
                self.chunks.remove(&base);
                self.take(base);
                self.reserved -= size;
                gone.push((base, size));
            }
        }
        gone
    }

    /// Returns the base and size of every chunk.
    pub fn chunks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.chunks.iter().map(|(base, size)| (*base, *size))
    }

    /// Returns the index that contains blocks of this state.
    fn index(&mut self, state: State) -> Option<&mut Fits> {
        match state {
            State::Free => Some(&mut self.free),
            State::Resting(stream, _) => Some(self.resting.entry(stream).or_default()),
            State::Used => None,
        }
    }

    fn put(&mut self, address: u64, block: Block) {
        if let Some(index) = self.index(block.state) {
            index.insert((block.size, address));
        }
        self.blocks.insert(address, block);
    }

    fn take(&mut self, address: u64) -> Option<Block> {
        let block = self.blocks.remove(&address)?;
        if let Some(index) = self.index(block.state) {
            index.remove(&(block.size, address));
            let spent = index.is_empty();
            if let State::Resting(stream, _) = block.state
                && spent
            {
                self.resting.remove(&stream);
            }
        }
        Some(block)
    }

    fn become_state(&mut self, address: u64, state: State) {
        if let Some(block) = self.take(address) {
            self.put(address, Block { state, ..block });
        }
    }

    /// Merges free neighbours of the same chunk, from the block before `start` to the one at `end`.
    fn join(&mut self, start: u64, end: u64) {
        let before = self.blocks.range(..start).next_back();
        let touches = before.filter(|(address, block)| **address + block.size == start);
        let mut at = touches.map_or(start, |(address, _)| *address);
        while at < end {
            let Some(block) = self.blocks.get(&at).copied() else {
                return;
            };
            let next = at + block.size;
            let neighbour = self.blocks.get(&next).copied();
            let joins = block.state == State::Free
                && neighbour.is_some_and(|next| next.state == State::Free)
                && !self.chunks.contains_key(&next);
            if !joins {
                at = next;
                continue;
            }
            let more = self.take(next).map_or(0, |next| next.size);
            self.take(at);
            let size = block.size + more;
            self.put(at, Block { size, ..block });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x1000_0000;

    fn pool(bytes: u64) -> AddressMap {
        let mut addresses = AddressMap::default();
        addresses.grow(BASE, bytes);
        addresses
    }

    #[test]
    fn allocations_do_not_overlap_and_come_back_whole() {
        let mut addresses = pool(4096);
        let all: Vec<_> = (0..8).map(|_| addresses.allocate(1, 1).unwrap()).collect();
        assert_eq!(all[7], BASE + 7 * GRAIN);
        assert_eq!(addresses.allocate(1, 1), None);
        assert_eq!((addresses.used(), addresses.used_high()), (4096, 4096));
        for address in [3, 1, 2, 0, 7, 6, 4, 5].map(|i| all[i]) {
            addresses.free(address).unwrap();
        }
        assert_eq!((addresses.used(), addresses.used_high()), (0, 4096));
        assert_eq!(addresses.allocate(4096, 1), Some(BASE));
    }

    #[test]
    fn what_rests_is_for_its_own_stream_until_the_stream_comes_to_it() {
        let mut addresses = pool(1024);
        let address = addresses.allocate(1024, 7).unwrap();
        let first = addresses.rest(address, 7).unwrap();
        assert_eq!(addresses.allocate(1024, 8), None);
        assert_eq!(addresses.allocate(512, 7), Some(address));
        addresses.settle(first);
        assert_eq!(addresses.used(), 512, "used again since");
        assert_eq!(addresses.allocate(1024, 8), None);
        assert_eq!(addresses.allocate(512, 8), Some(address + 512));
    }

    #[test]
    fn freeing_twice_is_noticed() {
        let mut addresses = pool(1024);
        let address = addresses.allocate(512, 1).unwrap();
        assert!(addresses.rest(address, 1).is_some());
        assert!(addresses.rest(address, 1).is_none());
        assert!(addresses.free(address).is_none());
        assert!(addresses.free(address + 1).is_none());
    }

    #[test]
    fn trimming_gives_back_whole_chunks_down_to_what_is_kept() {
        let mut addresses = pool(1024);
        addresses.grow(BASE + 1024, 1024);
        let low = addresses.allocate(512, 1).unwrap();
        assert_eq!(addresses.trim(0), [(BASE + 1024, 1024)]);
        addresses.free(low).unwrap();
        assert_eq!(addresses.trim(1024), []);
        assert_eq!(addresses.trim(0), [(BASE, 1024)]);
        assert_eq!((addresses.reserved(), addresses.reserved_high()), (0, 2048));
    }

    #[test]
    fn neighbouring_chunks_stay_apart() {
        let mut addresses = pool(1024);
        addresses.grow(BASE + 1024, 1024);
        assert_eq!(addresses.allocate(2048, 1), None);
        let (one, two) = (
            addresses.allocate(1024, 1).unwrap(),
            addresses.allocate(1024, 1).unwrap(),
        );
        addresses.free(one).unwrap();
        addresses.free(two).unwrap();
        assert_eq!(addresses.allocate(2048, 1), None);
    }

    #[test]
    fn chunks_far_apart_become_whole_again_each() {
        let mut addresses = pool(1024);
        addresses.grow(BASE + (1 << 30), 1024);
        let all: Vec<_> = (0..4)
            .map(|_| addresses.allocate(512, 1).unwrap())
            .collect();
        for address in all {
            addresses.free(address).unwrap();
        }
        assert_eq!(addresses.trim(0).len(), 2);
    }

    #[test]
    fn the_smallest_hole_that_fits_is_taken() {
        let mut addresses = pool(8 * GRAIN);
        let wide = addresses.allocate(3 * GRAIN, 1).unwrap();
        let between = addresses.allocate(GRAIN, 1).unwrap();
        let narrow = addresses.allocate(GRAIN, 1).unwrap();
        addresses.allocate(GRAIN, 1).unwrap();
        addresses.free(wide).unwrap();
        addresses.free(narrow).unwrap();
        assert_eq!(addresses.allocate(GRAIN, 1), Some(narrow));
        addresses.free(between).unwrap();
        assert_eq!(addresses.allocate(4 * GRAIN, 1), Some(wide), "joined");
    }
}
