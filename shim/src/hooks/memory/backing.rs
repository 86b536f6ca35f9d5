//! What large allocations are made of under `--swappable`: addresses and physical memory of our own, where `cuMemAlloc`
//! would give both at once.
//!
//! The reader may rely on this: what is made is mapped, and its device and that one's peers reach it; what cannot be made leaves
//! nothing behind. It is taken apart as `cuMemFree` would free it: when what was submitted in its context is done.

use gpushare_abi::{
    errors::{CUerror, CUresult},
    types::CUdeviceptr,
};

use crate::{driver_query::vmm, managed_process::ManagedProcess, tracking::swappable::Block};

/// Makes an allocation on a device: its address.
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
    let made = place(process, room, |start| Block {
        start,
        bytes,
        room,
        handle: Some(handle),
        context,
        ordinal,
        is_fixed: false,
    });
    made.inspect_err(|_| _ = vmm::release(handle))
}

/// Gives physical memory addresses, and remembers what it is.
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
        // Before its peers are looked up: who becomes one now finds it here.
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

/// Takes an allocation apart, once the work of its context is done. What the driver refuses stays as it was.
pub fn unmake(process: &ManagedProcess, start: CUdeviceptr) -> CUresult {
    if let Some(block) = process.memory.swappable.get(start) {
        vmm::synchronize(block.context)?;
    }
    abandon(process, start)
}

/// The same when its context has gone, and with it all that was submitted there.
pub fn abandon(process: &ManagedProcess, start: CUdeviceptr) -> CUresult {
    let book = &process.memory.swappable;
    let Some(block) = book.take(start) else {
        return Ok(());
    };
    if let Some(handle) = block.handle {
        vmm::unmap(start, block.room).inspect_err(|_| book.put(block))?;
        // What is left now is at the worst addresses or memory that nothing uses until the process ends.
        let _ = vmm::release(handle);
    }
    let _ = vmm::free(start, block.room);
    Ok(())
}

/// Gives devices that have become peers what there is already.
pub fn let_reach(process: &ManagedProcess, reaches: u8, owner: u8) {
    let book = &process.memory.swappable;
    book.add_peer(reaches, owner);
    let of_owner = |block: &Block| block.ordinal == owner && block.handle.is_some();
    for block in book.all().into_iter().filter(of_owner) {
        // One that has just been freed refuses.
        let _ = vmm::allow(block.start, block.room, &[reaches]);
    }
}
