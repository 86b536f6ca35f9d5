//! Memory that leaves without the driver's checkpoint: what `--swappable` has made of parts is copied to the host at the
//! speed of the link, its physical memory is given back, and its addresses stay.
//!
//! What a failed step leaves:
//!
//! | fails | then |
//! |---|---|
//! | waiting, host memory, a copy out | nothing was taken away: the process goes on as before |
//! | an unmapping | that allocation stays on its device and in `used`; the others leave |
//! | making or mapping memory or a copy on the way back, for want of room | all of it is given back, and the process waits in line again |
//! | the same for another reason | the memory is lost, and the process's calls fail from then on |
//!
//! Contexts, modules, arrays, pools, what the program maps itself, and allocations of less than 2 MiB stay on the device, in `used` as far as they are in any
//! account. A process that has more than an eighth of its bytes there is evicted by the driver's checkpoint, whole.

use gpushare_abi::errors::{
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult,
};
use shm_layout::Why;

use crate::{
    driver::{self, Symbol},
    driver_query::{
        checkpoint, context, memory,
        transfer::{self, Lane},
        vmm,
    },
    eviction::footprint::{Footprint, Refusal},
    managed_process::ManagedProcess,
    sys::{futex, large_pages},
    tracking::{
        host_swap_buffer::{Cursor, HostSwapBuffer, Piece},
        swappable::Block,
    },
    turn::drain::Event,
};

/// A process is evicted by checkpoint if more than this part of its bytes is not swappable.
const PART: u64 = 8;
/// Host memory is taken and pinned in pieces of this size, while the one before is filled.
const PIECE: u64 = 256 << 20;
/// Between two looks at what will end by itself.
const NAP: std::time::Duration = std::time::Duration::from_micros(200);
/// How long a lock may wait for work under way.
const PATIENCE_MS: u32 = 1000;
/// Bytes a second, until they were measured (H200, 580.159.04).
pub const RATE: u64 = 20_000_000_000;

/// Bytes that would leave, if the process is to be evicted this way.
pub fn bytes(process: &ManagedProcess) -> Option<u64> {
    let bytes = process.memory.swappable.movable_bytes();
    let others = crate::eviction::held(process).saturating_sub(bytes);
    let can = || !driver::address(Symbol::cuCtxRecordEvent).is_null();
    (bytes > 0 && others <= bytes.saturating_add(others) / PART && can()).then_some(bytes)
}

/// Waits until all that was submitted is done.
pub fn quiet(
    process: &ManagedProcess,
    mut is_enough: impl FnMut() -> Option<Why>,
) -> Result<(), Refusal> {
    for context in contexts(process) {
        let mut result = Ok(());
        context::with_current(context, || {
            result = wait_for(context, &mut is_enough);
        });
        result?;
    }
    Ok(())
}

/// The contexts that there are: created ones, green ones among them, and primary ones in use.
pub(super) fn contexts(process: &ManagedProcess) -> Vec<usize> {
    let ordinals = process.devices.iter().map(|device| device.ordinal.into());
    let active = ordinals.filter(|ordinal| context::primary_is_active(*ordinal));
    let primaries = active.filter_map(|ordinal| Some(process.memory.primary(ordinal)?.context()));
    let mut all = process.memory.created();
    all.extend(primaries.filter(|context| *context != 0));
    all
}

fn wait_for(context: usize, is_enough: &mut impl FnMut() -> Option<Why>) -> Result<(), Refusal> {
    match Event::behind_all(context) {
        Ok(event) => {
            while event.is_pending() {
                if let Some(why) = is_enough() {
                    return Err((why, 0));
                }
                futex::nap(NAP);
            }
        }
        // A driver that records no event behind all of this context waits at a lock for what was submitted.
        Err(_) if checkpoint::exists() => {
            checkpoint::lock(PATIENCE_MS).map_err(|error| match error {
                CUDA_ERROR_NOT_READY => (Why::Busy, 0),
                error => refused(error),
            })?;
            checkpoint::unlock().map_err(refused)?;
        }
        Err(error) => return Err(refused(error)),
    }
    Ok(())
}

fn refused(error: CUerror) -> Refusal {
    (Why::Refused, error.code() as u16)
}

/// Out. What has left, by device; an error leaves all where it was.
pub fn out(
    process: &'static ManagedProcess,
    mut is_called_off: impl FnMut() -> bool,
) -> Result<Vec<Footprint<'static>>, Refusal> {
    let blocks = process.memory.swappable.movable();
    let mut swap_buffer = process.memory.swap_buffer.lock();
    swap_buffer.order.clear();
    copy_out(&blocks, &mut swap_buffer, &mut is_called_off)?;
    let order = blocks.iter().map(|block| (block.start, block.bytes));
    swap_buffer.order = order.collect();
    let mut error = Ok(());
    let mut gone = Vec::new();
    for block in blocks {
        match take_away(process, block) {
            Ok(()) => gone.push(block),
            Err(refusal) => error = Err(refused(refusal)),
        }
    }
    let footprints: Vec<_> = process
        .devices
        .iter()
        .filter_map(|device| {
            let here = || gone.iter().filter(|block| block.ordinal == device.ordinal);
            let used: u64 = here().map(|block| block.bytes).sum();
            let room: u64 = here().map(|block| block.room).sum();
            (used > 0).then_some(Footprint {
                device,
                used,
                besides: 0,
                margin: room - used,
            })
        })
        .collect();
    if footprints.is_empty() {
        error?;
    }
    Ok(footprints)
}

fn take_away(process: &ManagedProcess, block: Block) -> CUresult {
    vmm::unmap(block.start, block.room)?;
    let handle = block.handle;
    process.memory.swappable.put(Block {
        handle: None,
        ..block
    });
    if let Some(handle) = handle {
        // The mapping is gone, and the handle was the last to keep it.
        let _ = vmm::release(handle);
    }
    Ok(())
}

/// A stream for each device.
fn lanes(blocks: &[Block]) -> Result<Vec<Option<Lane>>, CUerror> {
    let mut lanes = Vec::new();
    for block in blocks {
        let ordinal = usize::from(block.ordinal);
        if lanes.len() <= ordinal {
            lanes.resize_with(ordinal + 1, || None);
        }
        if lanes[ordinal].is_none() {
            lanes[ordinal] = Some(Lane::make(block.context)?);
        }
    }
    Ok(lanes)
}

fn of<'l>(lanes: &'l [Option<Lane>], block: &Block) -> Result<&'l Lane, CUerror> {
    let lane = lanes.get(usize::from(block.ordinal));
    lane.and_then(Option::as_ref)
        .ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

fn wait(lanes: &[Option<Lane>]) -> CUresult {
    // Each of them, whatever becomes of the others: what is on its way writes to memory of ours.
    let mut result = Ok(());
    for lane in lanes.iter().flatten() {
        result = result.and(lane.wait());
    }
    result
}

fn copy_out(
    blocks: &[Block],
    swap_buffer: &mut HostSwapBuffer,
    is_called_off: &mut impl FnMut() -> bool,
) -> Result<(), Refusal> {
    let lanes = lanes(blocks).map_err(refused)?;
    let mut left: u64 = blocks.iter().map(|block| block.bytes).sum();
    let mut cursor = Cursor::default();
    let mut begin = || {
        for block in blocks {
            let lane = of(&lanes, block).map_err(refused)?;
            let mut done = 0;
            while done < block.bytes {
                let at = cursor.piece();
                let Some((to, bytes)) = cursor.take(swap_buffer, block.bytes - done) else {
                    grow(swap_buffer, lane.context(), left)?;
                    continue;
                };
                pin_again(swap_buffer, at, lane.context());
                if is_called_off() {
                    return Err((Why::Wanted, 0));
                }
                lane.out(to, block.start + done, bytes).map_err(refused)?;
                done += bytes;
                left -= bytes;
            }
        }
        Ok(())
    };
    let begun = begin();
    let waited = wait(&lanes).map_err(refused);
    begun.and(waited)
}

/// One piece more, for as many bytes as are still to be copied.
fn grow(swap_buffer: &mut HostSwapBuffer, context: usize, left: u64) -> Result<(), Refusal> {
    let bytes = left.next_multiple_of(large_pages::LARGE).min(PIECE);
    let start = large_pages::take(bytes).ok_or((Why::HostMemory, 0))?;
    swap_buffer.pieces.push(Piece {
        start,
        bytes,
        pinned_in: 0,
    });
    pin_again(swap_buffer, swap_buffer.pieces.len() - 1, context);
    Ok(())
}

/// A piece is pinned, or was in a context that has gone. Copies to memory that is not pinned are slow, and right.
fn pin_again(swap_buffer: &mut HostSwapBuffer, piece: usize, context: usize) {
    if let Some(piece) = swap_buffer.pieces.get_mut(piece)
        && piece.pinned_in == 0
        && transfer::pin(context, piece.start, piece.bytes).is_ok()
    {
        piece.pinned_in = context;
    }
}

/// Why it is not back.
pub enum RestoreError {
    /// There is no room for all of it; it is where it was.
    Full,
    /// What it was is lost.
    Lost(CUerror),
}

/// One of those that lie in the swap buffer.
struct EvictedBlock {
    bytes: u64,
    /// What is to come back; none for one that had stayed after all.
    block: Option<Block>,
}

/// Back: all that is away, or nothing.
pub fn restore(process: &ManagedProcess) -> Result<(), RestoreError> {
    let book = &process.memory.swappable;
    let mut swap_buffer = process.memory.swap_buffer.lock();
    let order = swap_buffer.order.iter();
    let mut all: Vec<EvictedBlock> = order
        .map(|&(start, bytes)| EvictedBlock {
            bytes,
            block: book.get(start).filter(|block| block.handle.is_none()),
        })
        .collect();
    let mut away: Vec<&mut Block> = all
        .iter_mut()
        .filter_map(|one| one.block.as_mut())
        .collect();
    make_room(process, &mut away)?;
    if let Err(error) = copy_back(&all, &swap_buffer) {
        let away = all.iter_mut().filter_map(|one| one.block.as_mut());
        return Err(not_back(&mut away.collect::<Vec<_>>(), usize::MAX, error));
    }
    all.iter()
        .filter_map(|one| one.block)
        .for_each(|block| book.put(block));
    swap_buffer.order.clear();
    Ok(())
}

/// Physical memory for what has none, mapped at its addresses.
fn make_room(process: &ManagedProcess, blocks: &mut [&mut Block]) -> Result<(), RestoreError> {
    let mut mapped = 0;
    let mut make = || {
        for block in blocks.iter_mut() {
            block.handle = Some(vmm::create(block.ordinal.into(), block.room)?);
        }
        for block in blocks.iter() {
            if let Some(handle) = block.handle {
                vmm::map(block.start, block.room, handle)?;
                mapped += 1;
                let reaches = process.memory.swappable.who_reaches(block.ordinal);
                vmm::allow(block.start, block.room, &reaches)?;
            }
        }
        Ok(())
    };
    make().map_err(|error| not_back(blocks, mapped, error))
}

/// Gives back what was made, so that for want of memory nothing is lost: the host has all of it still.
fn not_back(blocks: &mut [&mut Block], mapped: usize, error: CUerror) -> RestoreError {
    for block in blocks.iter().take(mapped) {
        let _ = vmm::unmap(block.start, block.room);
    }
    for handle in blocks.iter_mut().filter_map(|block| block.handle.take()) {
        let _ = vmm::release(handle);
    }
    match error {
        CUDA_ERROR_OUT_OF_MEMORY => RestoreError::Full,
        error => RestoreError::Lost(error),
    }
}

fn copy_back(all: &[EvictedBlock], swap_buffer: &HostSwapBuffer) -> CUresult {
    let away: Vec<Block> = all.iter().filter_map(|one| one.block).collect();
    let lanes = lanes(&away)?;
    let mut cursor = Cursor::default();
    let begun = all.iter().try_for_each(|one| {
        let mut done = 0;
        while done < one.bytes {
            let next = cursor.take(swap_buffer, one.bytes - done);
            let (from, bytes) = next.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
            if let Some(block) = &one.block {
                of(&lanes, block)?.back(block.start + done, from, bytes)?;
            }
            done += bytes;
        }
        Ok(())
    });
    begun.and(wait(&lanes))
}

/// Bytes free on a device, as the driver says at once.
pub fn free_bytes(process: &ManagedProcess, ordinal: u8) -> Option<u64> {
    let all = process.memory.swappable.all();
    let block = all.iter().find(|block| block.ordinal == ordinal)?;
    transfer::within(block.context, memory::free_bytes).ok()
}
