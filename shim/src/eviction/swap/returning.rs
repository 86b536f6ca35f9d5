//! The way back of memory that has left: its physical memory is created again and mapped at its addresses, and the host's copy
//! fills it.
//!
//! While the driver creates and releases memory, a copy engine is half as fast as it can be: 27 GB/s in place of 54 on an H200
//! (580.159.04). A kernel that reads pinned host memory is not: 47 in place of 50. But to let a kernel bring a fifth of it took 431 ms
//! in place of 437 for 19 GiB, and a kernel waits for the kernels of others, so the engines bring all.

use std::sync::MutexGuard;

use gpushare_abi::{
    errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult},
    types::CUmemGenericAllocationHandle,
};

use super::{lanes, of, on_host, place, wait};
use crate::{
    driver_query::{transfer::Lane, vmm},
    managed_process::ManagedProcess,
    tracking::{host_swap_buffer::HostSwapBuffer, swappable::Block},
};

/// The reason why a restore failed.
pub enum RestoreError {
    /// The device has no room for all of the memory, which is still on the host.
    Full,
    /// The memory is lost.
    Lost(CUerror),
}

impl From<CUerror> for RestoreError {
    fn from(error: CUerror) -> Self {
        match error {
            CUDA_ERROR_OUT_OF_MEMORY => Self::Full,
            error => Self::Lost(error),
        }
    }
}

/// Restores all evicted blocks, or none.
pub fn restore(process: &ManagedProcess) -> Result<(), RestoreError> {
    let mut coming = Coming::begin(process)?;
    let mut brought = Ok(());
    while brought.is_ok() && coming.next_bytes().is_some() {
        let came = coming.bring_next();
        brought = came.and_then(|came| came.then_some(()).ok_or(CUDA_ERROR_OUT_OF_MEMORY));
    }
    match brought.and_then(|()| coming.wait()) {
        Ok(()) => coming.complete(),
        Err(error) => {
            coming.give_back();
            return Err(error.into());
        }
    }
    Ok(())
}

/// The restore of all evicted blocks, one by one.
pub struct Coming<'p> {
    process: &'p ManagedProcess,
    swap_buffer: MutexGuard<'p, HostSwapBuffer>,
    lanes: Vec<Option<Lane>>,
    /// The evicted blocks; those before `next` are mapped and being filled.
    blocks: Vec<Block>,
    next: usize,
}

impl<'p> Coming<'p> {
    /// Prepares the restore.
    pub fn begin(process: &'p ManagedProcess) -> Result<Self, RestoreError> {
        let swap_buffer = process.memory.swap_buffer.lock();
        let blocks = process.memory.swappable.evicted();
        Ok(Self {
            process,
            swap_buffer,
            lanes: lanes(&blocks)?,
            blocks,
            next: 0,
        })
    }

    /// Returns the bytes of the next block.
    pub fn next_bytes(&self) -> Option<u64> {
        Some(self.blocks.get(self.next)?.bytes)
    }

    /// Creates the next block's memory, maps it at its addresses, and starts to fill it. Returns false, and changes nothing, if the
    /// device has no room for it.
    pub fn bring_next(&mut self) -> Result<bool, CUerror> {
        let Some(block) = self.blocks.get_mut(self.next) else {
            return Ok(true);
        };
        match vmm::create(block.ordinal.into(), block.room) {
            Err(CUDA_ERROR_OUT_OF_MEMORY) => return Ok(false),
            handle => map(self.process, block, handle?)?,
        }
        self.next += 1;
        fill(block, &mut self.swap_buffer, of(&self.lanes, block)?)?;
        Ok(true)
    }

    /// Waits until the blocks are filled. Returns an error if a copy failed.
    pub fn wait(&self) -> CUresult {
        wait(&self.lanes)
    }

    /// Records that all blocks are filled.
    pub fn complete(self) {
        let swappable = &self.process.memory.swappable;
        self.blocks
            .into_iter()
            .for_each(|block| swappable.put(block));
    }

    /// Releases what was created, so that a lack of memory loses nothing: the host still has all contents.
    pub fn give_back(self) {
        // The copies write to this memory.
        let _ = self.wait();
        for (block, handle) in self
            .blocks
            .iter()
            .filter_map(|block| Some((block, block.handle?)))
        {
            let _ = vmm::unmap(block.start, block.room);
            let _ = vmm::release(handle);
        }
    }
}

/// Maps physical memory at a block's addresses.
fn map(
    process: &ManagedProcess,
    block: &mut Block,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    vmm::map(block.start, block.room, handle).inspect_err(|_| _ = vmm::release(handle))?;
    block.handle = Some(handle);
    let reaches = process.memory.swappable.who_reaches(block.ordinal);
    vmm::allow(block.start, block.room, &reaches)
}

/// Starts to copy a block's contents from the host.
fn fill(block: &Block, swap_buffer: &mut HostSwapBuffer, lane: &Lane) -> CUresult {
    let all = swap_buffer.all(block.serial);
    swap_buffer
        .runs(block.serial, &all)
        .iter()
        .try_for_each(|run| {
            let (on_device, bytes) = place(block, run);
            match run.slot {
                Some(_) => lane.back(on_device, on_host(swap_buffer, run, lane.context())?, bytes),
                None => lane.zero(on_device, bytes),
            }
        })
}
