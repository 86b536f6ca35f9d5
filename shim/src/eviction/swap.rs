//! Eviction without the driver's checkpoint: memory allocated under `--swappable` is copied to the host at the speed
//! of the link, its physical memory is released, and its addresses stay reserved.
//!
//! The state after a failed step:
//!
//! | failed step | state |
//! |---|---|
//! | waiting, host memory, a copy out | all memory is still on the device: the process continues as before |
//! | an unmapping | that allocation stays on its device and in `used`; the others leave |
//! | creating or mapping memory or a copy during a restore, for lack of memory | all of it is released, and the process waits in the queue again |
//! | the same for another reason | the memory is lost, and the process's calls fail from then on |
//!
//! Contexts, modules, arrays, pools, memory that the program maps itself, and allocations of less than 2 MiB stay on the
//! device, in `used` as far as an account contains them. A process that has more than an eighth of its bytes in such memory
//! is evicted by the driver's checkpoint, whole.

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

/// Divisor: a process is evicted by checkpoint if more than this part of its bytes is not swappable.
const PART: u64 = 8;
/// Size in bytes of the pieces in which host memory is allocated and pinned, while the piece before is filled.
const PIECE: u64 = 256 << 20;
/// Polling period of something that ends by itself.
const NAP: std::time::Duration = std::time::Duration::from_micros(200);
/// Longest time that the driver's lock waits for work under way, in milliseconds.
const PATIENCE_MS: u32 = 1000;
/// Assumed rate in bytes per second until one was measured (H200, 580.159.04).
pub const RATE: u64 = 20_000_000_000;

/// Returns the bytes that copies would evict, or `None` if the process cannot be evicted this way.
pub fn bytes(process: &ManagedProcess) -> Option<u64> {
    let bytes = process.memory.swappable.movable_bytes();
    let others = crate::eviction::held(process).saturating_sub(bytes);
    let can = || !driver::address(Symbol::cuCtxRecordEvent).is_null();
    (bytes > 0 && others <= bytes.saturating_add(others) / PART && can()).then_some(bytes)
}

/// The reason why submitted work was not waited for.
pub enum NotQuiet {
    /// The process continues as before.
    Refused(Refusal),
    /// The driver has locked the process and does not unlock it, so no call returns.
    Locked(CUerror),
}

impl From<Refusal> for NotQuiet {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Waits until all submitted work is done, or `is_enough` gives a reason to stop.
pub fn quiet(
    process: &ManagedProcess,
    mut is_enough: impl FnMut() -> Option<Why>,
) -> Result<(), NotQuiet> {
    for context in contexts(process) {
        let mut recorded = Ok(());
        let mut called_off = None;
        context::with_current(context, || {
            recorded = Event::behind_all(context).map(|event| {
                while called_off.is_none() && event.is_pending() {
                    called_off = is_enough();
                    futex::nap(NAP);
                }
            });
        });
        match recorded {
            Ok(()) => {}
            // If the driver cannot record an event behind all work of a context, its checkpoint lock waits for the work.
            Err(_) if checkpoint::exists() => wait_by_lock()?,
            Err(error) => return Err(refused(error).into()),
        }
        if let Some(why) = called_off {
            return Err((why, 0).into());
        }
    }
    Ok(())
}

/// Waits until the driver can lock the process. No other call is made before it is unlocked, because none would return.
fn wait_by_lock() -> Result<(), NotQuiet> {
    checkpoint::lock(PATIENCE_MS).map_err(|error| match error {
        CUDA_ERROR_NOT_READY => (Why::Busy, 0),
        error => refused(error),
    })?;
    checkpoint::unlock().map_err(NotQuiet::Locked)
}

/// Returns the existing contexts: created ones, including green ones, and active primary ones.
pub(super) fn contexts(process: &ManagedProcess) -> Vec<usize> {
    let ordinals = process.devices.iter().map(|device| device.ordinal.into());
    let active = ordinals.filter(|ordinal| context::primary_is_active(*ordinal));
    let primaries = active.filter_map(|ordinal| Some(process.memory.primary(ordinal)?.context()));
    let mut all = process.memory.created();
    all.extend(primaries.filter(|context| *context != 0));
    all
}

fn refused(error: CUerror) -> Refusal {
    (Why::Refused, error.code() as u16)
}

/// Evicts the movable memory. Returns what has left, by device; after an error all memory is where it was.
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
        // The mapping is gone, so the release of the last handle frees the memory.
        let _ = vmm::release(handle);
    }
    Ok(())
}

/// Creates a stream for each device.
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
    // Each lane is waited for, even after an error, because its copies write to the shim's memory.
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

/// Adds one piece to the swap buffer, for at most `left` bytes.
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

/// Pins a piece that is not pinned, or whose context was destroyed. Copies to memory that is not pinned are slow but
/// correct.
fn pin_again(swap_buffer: &mut HostSwapBuffer, piece: usize, context: usize) {
    if let Some(piece) = swap_buffer.pieces.get_mut(piece)
        && piece.pinned_in == 0
        && transfer::pin(context, piece.start, piece.bytes).is_ok()
    {
        piece.pinned_in = context;
    }
}

/// The reason why a restore failed.
pub enum RestoreError {
    /// The device has no room for all of the memory, which is still on the host.
    Full,
    /// The memory is lost.
    Lost(CUerror),
}

/// A block whose contents are in the swap buffer.
struct EvictedBlock {
    bytes: u64,
    /// The block to restore; `None` for one that was never unmapped.
    block: Option<Block>,
}

/// Restores all evicted blocks, or none.
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

/// Creates physical memory for evicted blocks and maps it at their addresses.
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

/// Releases what was created, so that a lack of memory loses nothing: the host still has all contents.
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

/// Returns the free bytes of a device as the driver reports them.
pub fn free_bytes(process: &ManagedProcess, ordinal: u8) -> Option<u64> {
    let all = process.memory.swappable.all();
    let block = all.iter().find(|block| block.ordinal == ordinal)?;
    transfer::within(block.context, memory::free_bytes).ok()
}
