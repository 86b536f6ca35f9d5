//! The backing of large allocations under `--swappable`: the shim creates addresses and physical memory separately,
//! where `cuMemAlloc` would create both at once.
//!
//! An allocation that succeeds is mapped and accessible from its device and that device's peers. One that fails
//! leaves nothing behind. It is freed as `cuMemFree` would free it: after the work submitted in its context is done.

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult},
    types::CUdeviceptr,
};

use crate::{
    driver_query::vmm,
    hooks::Real,
    managed_process::ManagedProcess,
    sys::caller_state::Uncancelled,
    tracking::{record::Record, swappable::Block},
};

/// Creates an allocation on a device. Returns its address.
pub fn make(
    process: &ManagedProcess,
    ordinal: u8,
    context: usize,
    bytes: u64,
) -> Result<CUdeviceptr, CUerror> {
    let device = ordinal.into();
    let grain = vmm::granularity(device)?.max(1);
    let room = bytes.next_multiple_of(grain);
    let handle = vmm::create(device, room)?;
    let serial = process.memory.swappable.next_serial();
    let made = place(process, room, |start| Block {
        start,
        serial,
        bytes,
        room,
        handle: Some(handle),
        context,
        ordinal,
        is_fixed: false,
    });
    made.inspect_err(|_| _ = vmm::release(handle))
}

/// Maps physical memory at new addresses, and adds the block to the table.
fn place(
    process: &ManagedProcess,
    room: u64,
    block: impl FnOnce(CUdeviceptr) -> Block,
) -> Result<CUdeviceptr, CUerror> {
    let start = vmm::reserve(room)?;
    let block = block(start);
    let result = block.handle.map_or(Ok(()), |handle| {
        vmm::map(start, room, handle)?;
        let book = &process.memory.swappable;
        // Added before its peers are looked up, so that a device that becomes a peer now finds it.
        book.put(block);
        vmm::allow(start, room, &book.who_reaches(block.ordinal)).inspect_err(|_| {
            book.take(start);
            let _ = vmm::unmap(start, room);
        })
    });
    match result {
        Ok(()) => Ok(start),
        Err(error) => {
            let _ = vmm::free(start, room);
            Err(error)
        }
    }
}

/// Frees memory that the shim has mapped itself, in place of the driver. Returns `None` if a capture has delayed the free.
#[cold]
#[inline(never)]
pub fn free(
    real: Real<'_, impl FnOnce() -> CUresult>,
    process: &ManagedProcess,
    key: u64,
    record: Record,
) -> Option<CUresult> {
    let _uncancelled = Uncancelled::enter();
    if let Some(_held_off) = process.memory.captures.hold_off() {
        let result = unmake(process, key);
        real.answered(result);
        return Some(result);
    }
    // The driver, which has no allocation at this address, decides whether the capture allows a free.
    match real.call() {
        Err(CUDA_ERROR_INVALID_VALUE) | Ok(()) => {
            process.memory.swappable.put_off(key, record);
            None
        }
        refused => Some(refused),
    }
}

/// Frees an allocation after the work of its context is done, while captures are held off. After an error of the driver it stays
/// as it was.
pub fn unmake(process: &ManagedProcess, start: CUdeviceptr) -> CUresult {
    if let Some(block) = process.memory.swappable.get(start) {
        vmm::synchronize(block.context)?;
    }
    abandon(process, start)
}

/// Frees an allocation whose context was destroyed, together with all submitted work.
pub fn abandon(process: &ManagedProcess, start: CUdeviceptr) -> CUresult {
    let book = &process.memory.swappable;
    let Some(block) = book.take(start) else {
        return Ok(());
    };
    if let Some(handle) = block.handle {
        vmm::unmap(start, block.room).inspect_err(|_| book.put(block))?;
        // A failure from here on leaves at most addresses or memory that stay unused until the process ends.
        let _ = vmm::release(handle);
    }
    let _ = vmm::free(start, block.room);
    Ok(())
}

/// Gives a device that has become a peer access to the existing allocations.
pub fn let_reach(process: &ManagedProcess, reaches: u8, owner: u8) {
    let book = &process.memory.swappable;
    book.add_peer(reaches, owner);
    let of_owner = |block: &Block| block.ordinal == owner && block.handle.is_some();
    for block in book.all().into_iter().filter(of_owner) {
        // The driver refuses a block that was just freed, which does no harm.
        let _ = vmm::allow(block.start, block.room, &[reaches]);
    }
}
