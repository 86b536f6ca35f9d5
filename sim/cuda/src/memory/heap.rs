//! The heap: the addresses of device memory in this process, and the owner of each address.
//!
//! Device memory is a range of this process's own address space, backed by an unnamed file, whose pages exist only
//! once they are touched. So a large allocation costs nothing until it is used, and another process can map the same
//! bytes (`ipc`). Addresses come from a best-fit list in steps of 512 bytes; there are more than the memory of all
//! devices. Freed pages are returned to the host. Addresses that no allocation has used yet are not accessible,
//! because a program that reads all its memory, as valgrind does at the end, would read for hours.
#![allow(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    os::fd::{FromRawFd, OwnedFd},
    sync::{Mutex, OnceLock},
};

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult};

use crate::{driver::driver, handles::lock, memory::capacity};

/// Alignment and step of device addresses.
pub const STEP: u64 = 512;

/// Bytes of the region that are made accessible at a time.
const OPENED_AT_ONCE: u64 = 16 << 20;

/// Size in bytes from which a freed block returns its pages to the host.
const WORTH_RETURNING: u64 = 64 << 10;

/// The owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Device,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemAllocAsync`: from a pool, which holds the capacity.
    Ordered(Medium),
    /// An array's memory.
    Array,
    /// Allocated by a graph, which holds the capacity.
    Graph,
    /// `cuMemHostAlloc`, with its flags.
    Host(u32),
    /// `cuMemHostRegister`, with its flags.
    Registered(u32),
    /// Part of a reserved range, mapped.
    Mapped,
    /// Part of a reserved range, mapped without access yet.
    Hidden,
    /// Another process's memory.
    Imported,
}

/// The location of a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A device's.
    Device,
    /// Pinned memory of the host.
    Host,
    /// Managed memory.
    Managed,
}

impl Kind {
    /// Returns true for host memory.
    pub fn is_host(self) -> bool {
        matches!(
            self,
            Self::Host(_) | Self::Registered(_) | Self::Ordered(Medium::Host)
        )
    }

    /// Returns true for managed memory.
    pub fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::Ordered(Medium::Managed))
    }
}

/// A range of addresses with an owner.
#[derive(Clone, Debug)]
pub struct Block {
    /// The first address.
    pub base: u64,
    /// The requested bytes.
    pub bytes: u64,
    /// The bytes of the device's capacity that it uses.
    pub charged: u64,
    /// The device's ordinal.
    pub device: i32,
    /// The context's handle.
    pub context: u64,
    /// The owner of the block.
    pub kind: Kind,
    /// A number no other block has.
    pub id: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub sync_memops: bool,
}

#[derive(Default)]
struct Heap {
    /// Free ranges by start, and by length.
    free: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    blocks: BTreeMap<u64, Block>,
    /// The region can be touched up to here.
    open_to: u64,
}

static HEAP: Mutex<Heap> = Mutex::new(Heap {
    free: BTreeMap::new(),
    by_length: BTreeSet::new(),
    blocks: BTreeMap::new(),
    open_to: 0,
});

/// The range that device memory is in.
#[derive(Debug)]
pub struct Region {
    /// The first address.
    pub base: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The file behind it.
    pub file: OwnedFd,
}

impl Region {
    fn end(&self) -> u64 {
        self.base + self.bytes
    }
}

/// Returns the region, created at its first use.
pub fn region() -> Result<&'static Region, CUerror> {
    static REGION: OnceLock<Option<Region>> = OnceLock::new();
    let region = REGION.get_or_init(|| {
        let region = reserve()?;
        let mut heap = lock(&HEAP);
        heap.give(region.base, region.bytes);
        heap.open_to = region.base;
        Some(region)
    });
    region.as_ref().ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

fn reserve() -> Option<Region> {
    // SAFETY: the name is a NUL-terminated literal.
    let raw = unsafe { libc::memfd_create(c"gpushare-sim-device".as_ptr(), libc::MFD_CLOEXEC) };
    if raw < 0 {
        return None;
    }
    // SAFETY: the descriptor was just made and has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(raw) };
    // Tries smaller and smaller sizes, in case the address space is limited.
    for shift in (30..=42).rev() {
        let bytes = 1u64 << shift;
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(raw, bytes as i64) } != 0 {
            continue;
        }
        if let Some(base) = map_for(libc::PROT_NONE, raw, 0, bytes) {
            return Some(Region { base, bytes, file });
        }
    }
    None
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Maps a file's bytes, shared.
pub fn map(file: i32, offset: u64, bytes: u64) -> Option<u64> {
    map_for(READ_WRITE, file, offset, bytes)
}

fn map_for(access: i32, file: i32, offset: u64, bytes: u64) -> Option<u64> {
    let (length, offset) = (bytes as usize, offset as i64);
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel likes.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, file, offset) };
    (address != libc::MAP_FAILED).then_some(address as u64)
}

/// Returns the position of an open file; -1 for an invalid descriptor.
pub fn place_in(file: i32) -> i64 {
    // SAFETY: asks the kernel about a number; no pointers.
    unsafe { libc::lseek(file, 0, libc::SEEK_CUR) }
}

/// Maps zeroed host memory.
pub fn map_host(bytes: u64) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let length = bytes as usize;
    // SAFETY: a new mapping where the kernel likes.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), length, READ_WRITE, flags, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address as u64)
}

/// Unmaps memory of [`map_host`].
pub fn unmap_host(address: u64, bytes: u64) {
    // SAFETY: the range came from `map_host` and no reference to it is left.
    unsafe { libc::munmap(address as *mut _, bytes as usize) };
}

/// Counts managed memory, which prevents a checkpoint of the process, and imported memory, which prevents a restore.
fn count_special(block: &Block, more: bool) {
    if let (Kind::Managed | Kind::Imported, Ok(driver)) = (block.kind, driver()) {
        match block.kind {
            Kind::Managed => driver.member.managed(more),
            _ => driver.member.imported(more),
        }
    }
}

impl Heap {
    fn add(
        &mut self,
        base: u64,
        bytes: u64,
        charged: u64,
        device: i32,
        context: u64,
        kind: Kind,
    ) -> Block {
        let block = Block {
            base,
            bytes,
            charged,
            device,
            context,
            kind,
            id: fresh_id(),
            sync_memops: false,
        };
        count_special(&block, true);
        self.blocks.insert(base, block.clone());
        block
    }

    fn remove(&mut self, base: u64) -> Option<Block> {
        let block = self.blocks.remove(&base)?;
        count_special(&block, false);
        Some(block)
    }

    /// Takes a range of free addresses.
    fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let wanted = (bytes + align.saturating_sub(STEP), 0);
        let &(length, start) = self.by_length.range(wanted..).next()?;
        self.by_length.remove(&(length, start));
        self.free.remove(&start);
        let address = start.next_multiple_of(align);
        if address > start {
            self.give(start, address - start);
        }
        let end = address + bytes;
        if start + length > end {
            self.give(end, start + length - end);
        }
        Some(address)
    }

    /// Takes addresses from the region that are accessible.
    fn take_open(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let address = self.take(bytes, align)?;
        let end = (address + bytes).next_multiple_of(OPENED_AT_ONCE);
        if end > self.open_to {
            let end = end.min(region().ok()?.end());
            let (from, more) = (self.open_to as *mut _, (end - self.open_to) as usize);
            // SAFETY: the range is in the region, from where it cannot be touched on.
            if unsafe { libc::mprotect(from, more, READ_WRITE) } != 0 {
                self.give(address, bytes);
                return None;
            }
            self.open_to = end;
        }
        Some(address)
    }

    /// Makes a range free, joined with its neighbours.
    fn give(&mut self, mut start: u64, mut length: u64) {
        if let Some((&before, &bytes)) = self.free.range(..start).next_back()
            && before + bytes == start
        {
            self.free.remove(&before);
            self.by_length.remove(&(bytes, before));
            (start, length) = (before, length + bytes);
        }
        if let Some(bytes) = self.free.remove(&(start + length)) {
            self.by_length.remove(&(bytes, start + length));
            length += bytes;
        }
        self.free.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn find(&self, address: u64) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=address).next_back()?;
        (address - block.base < block.bytes.max(1)).then_some(block)
    }
}

fn fresh_id() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Returns the bytes that a block of this size uses in the region.
pub fn rounded(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(STEP)
}

/// Allocates device memory: capacity first, then addresses.
pub fn allocate(
    bytes: u64,
    align: u64,
    ordinal: i32,
    context: u64,
    kind: Kind,
) -> Result<Block, CUerror> {
    let driver = driver()?;
    driver.device(ordinal)?;
    if !driver.slow_alloc.is_zero() {
        gpushare_sim::clock::sleep(driver.slow_alloc);
    }
    let charged = rounded(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    capacity::take(ordinal, charged)?;
    place(bytes, charged, align, ordinal, context, kind)
        .inspect_err(|_| capacity::give(ordinal, charged))
}

/// Assigns addresses to a block, whose capacity is already taken (`charged` bytes belong to the block itself).
pub fn place(
    bytes: u64,
    charged: u64,
    align: u64,
    device: i32,
    context: u64,
    kind: Kind,
) -> Result<Block, CUerror> {
    region()?;
    let room = rounded(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let mut heap = lock(&HEAP);
    let base = heap
        .take_open(room, align.max(STEP))
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(heap.add(base, bytes, charged, device, context, kind))
}

/// Notes memory that has its addresses from elsewhere.
pub fn note(
    base: u64,
    bytes: u64,
    device: i32,
    context: u64,
    kind: Kind,
) -> Result<Block, CUerror> {
    let mut heap = lock(&HEAP);
    let next = heap.blocks.range((Excluded(base), Unbounded)).next();
    let overlaps = heap.find(base).is_some()
        || next.is_some_and(|(start, _)| *start < base.saturating_add(bytes));
    if bytes == 0 || overlaps {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(heap.add(base, bytes, 0, device, context, kind))
}

/// Forgets memory that was noted.
pub fn forget(base: u64, which: impl FnOnce(&Block) -> bool) -> Result<Block, CUerror> {
    let mut heap = lock(&HEAP);
    let block = heap.blocks.get(&base).filter(|block| which(block)).cloned();
    let block = block.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    heap.remove(base);
    Ok(block)
}

/// Frees a block by its first address.
pub fn free(base: u64, kind: Kind) -> Result<Block, CUerror> {
    let block = forget(base, |block| block.kind == kind)?;
    release(&block)?;
    Ok(block)
}

/// Releases the addresses and the capacity of a block that was already removed.
fn release(block: &Block) -> CUresult {
    give_addresses(
        block.base,
        rounded(block.bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?,
    );
    if block.charged > 0 {
        capacity::give(block.device, block.charged);
    }
    Ok(())
}

/// Takes addresses without a block; the caller adds one with [`note`].
pub fn take_addresses(bytes: u64) -> Result<u64, CUerror> {
    region()?;
    let room = rounded(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let taken = lock(&HEAP).take_open(room, STEP);
    taken.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

/// Releases addresses, which have no block any more.
pub fn give_addresses(base: u64, bytes: u64) {
    let Some(room) = rounded(bytes) else { return };
    if room >= WORTH_RETURNING {
        let first = base.next_multiple_of(4096);
        let pages = (base + room) / 4096 * 4096 - first;
        // SAFETY: the range is in the region and is free now.
        unsafe { libc::madvise(first as *mut _, pages as usize, libc::MADV_REMOVE) };
    }
    lock(&HEAP).give(base, room);
}

/// Returns the block that contains an address.
pub fn find(address: u64) -> Option<Block> {
    lock(&HEAP).find(address).cloned()
}

/// Returns the start addresses of allocations that pools made in a context.
pub fn ordered_in(context: u64) -> Vec<u64> {
    let heap = lock(&HEAP);
    let blocks = heap.blocks.values();
    let ours = blocks.filter(|block| block.context == context);
    ours.filter(|block| matches!(block.kind, Kind::Ordered(_)))
        .map(|block| block.base)
        .collect()
}

/// Sets `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` of the block that an address is in; whether there is one.
pub fn set_sync_memops(address: u64, value: bool) -> bool {
    let mut heap = lock(&HEAP);
    let Some(base) = heap.find(address).map(|block| block.base) else {
        return false;
    };
    heap.blocks
        .entry(base)
        .and_modify(|block| block.sync_memops = value);
    true
}

/// Returns the block that contains all of a range, or its start if the range covers several mappings; an unknown
/// address is an invalid value.
pub fn check(address: u64, bytes: u64) -> Result<Block, CUerror> {
    let end = address.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let heap = lock(&HEAP);
    let reachable = |address| {
        heap.find(address)
            .filter(|block| block.kind != Kind::Hidden)
    };
    let first = reachable(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut at = first.base + first.bytes;
    while at < end {
        let next = reachable(at).filter(|next| next.kind == first.kind && next.base == at);
        let next = next.filter(|_| first.kind == Kind::Mapped);
        at += next.ok_or(CUDA_ERROR_INVALID_VALUE)?.bytes;
    }
    Ok(first.clone())
}

/// Frees all device memory of a context.
pub fn free_all(context: u64) {
    let gone: Vec<Block> = {
        let mut heap = lock(&HEAP);
        let owned = |block: &Block| {
            block.context == context
                && matches!(block.kind, Kind::Device | Kind::Managed | Kind::Array)
        };
        let bases: Vec<_> = heap
            .blocks
            .values()
            .filter(|b| owned(b))
            .map(|b| b.base)
            .collect();
        bases.iter().filter_map(|base| heap.remove(*base)).collect()
    };
    for block in gone {
        // The driver is there: a context of it was.
        let _ = release(&block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ranges_join_and_the_best_fit_is_taken() {
        let mut heap = Heap::default();
        heap.give(0x10000, 0x10000);
        let one = heap.take(0x200, STEP).expect("room");
        let two = heap.take(0x400, STEP).expect("room");
        let three = heap.take(0x200, STEP).expect("room");
        assert_eq!((one, two, three), (0x10000, 0x10200, 0x10600));
        heap.give(two, 0x400);
        assert_eq!(heap.take(0x400, STEP), Some(two), "the hole fits best");
        heap.give(one, 0x200);
        heap.give(three, 0x200);
        heap.give(two, 0x400);
        assert_eq!(heap.free.len(), 1, "all of it is one range again");
        assert_eq!(heap.take(0x20000, STEP), None);
    }

    #[test]
    fn an_alignment_is_kept_and_nothing_is_lost() {
        let mut heap = Heap::default();
        heap.give(0x10200, 0x20000);
        let address = heap.take(0x1000, 0x10000).expect("room");
        assert_eq!(address % 0x10000, 0);
        heap.give(address, 0x1000);
        assert_eq!(heap.free.len(), 1);
    }
}
