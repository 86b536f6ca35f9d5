//! Eviction without the driver's checkpoint: memory allocated under `--swappable` is copied to the host at the speed
//! of the link, its physical memory is released, and its addresses stay reserved.
//!
//! The host keeps its copy after the restore. The next eviction hashes the memory on its device, in chunks of 2 MiB, and copies
//! only the chunks whose hash is not that of the host's copy. A chunk of zeros is never copied. The hashes belong to the same
//! state as the copies: calls are suspended, all work is done, and other processes cannot reach swappable memory (an exported
//! allocation is fixed and never evicted). A copy is void from before its first byte is written until all copies are done, so a
//! failed eviction copies these chunks again. Where the hashes cannot be had (the driver does not compile PTX), all is copied.
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
//! device, in `used` as far as an account contains them (`evictor::deepen` takes them later if the operator wants it). A process that has more than an eighth of its bytes in such memory
//! is evicted by the driver's checkpoint, whole.

mod difference;

use gpushare_abi::{
    chunk_hash::CHUNK,
    errors::{
        CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY, CUerror,
        CUresult,
    },
    types::CUdeviceptr,
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
        host_swap_buffer::{HostSwapBuffer, Piece, Run},
        swappable::Block,
    },
    turn::drain::Event,
};

/// Divisor: a process is evicted by checkpoint if more than this part of its bytes is not swappable.
const FIXED_PART: u64 = 8;
/// Number of chunks for which host memory is made at once, while the chunks before are copied.
const PART: usize = (PIECE / CHUNK) as usize;
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
    (bytes > 0 && others <= bytes.saturating_add(others) / FIXED_PART && can()).then_some(bytes)
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
    mut called_off: impl FnMut() -> Option<Why>,
) -> Result<Vec<Footprint<'static>>, Refusal> {
    let blocks = process.memory.swappable.movable();
    let mut swap_buffer = process.memory.swap_buffer.lock();
    swap_buffer.keep_only(&blocks.iter().map(|block| block.serial).collect());
    copy_out(&blocks, &mut swap_buffer, &mut called_off)?;
    if let Some(why) = called_off() {
        return Err((why, 0));
    }
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

/// Copies to the host what it does not have yet.
fn copy_out(
    blocks: &[Block],
    swap_buffer: &mut HostSwapBuffer,
    called_off: &mut impl FnMut() -> Option<Why>,
) -> Result<(), Refusal> {
    let lanes = lanes(blocks).map_err(refused)?;
    let hashes = difference::hashes(swap_buffer, &lanes, blocks);
    let differing: Vec<Vec<u64>> = blocks
        .iter()
        .zip(&hashes)
        .map(|(block, hashes)| swap_buffer.differing(block.serial, hashes))
        .collect();
    let plan = || blocks.iter().zip(&differing);
    let mut left: usize = plan()
        .map(|(block, chunks)| swap_buffer.lacking(block.serial, chunks))
        .sum();
    let mut begin = || {
        for (block, chunks) in plan() {
            let lane = of(&lanes, block).map_err(refused)?;
            for part in chunks.chunks(PART) {
                left -= swap_buffer.lacking(block.serial, part);
                loop {
                    match swap_buffer.assign(block.serial, part) {
                        0 => break,
                        missing => grow(swap_buffer, (left + missing) as u64 * CHUNK)?,
                    }
                }
                for run in swap_buffer.runs(block.serial, part) {
                    if let Some(why) = called_off() {
                        return Err((why, 0));
                    }
                    let (on_device, bytes) = place(block, &run);
                    let to = on_host(swap_buffer, &run, lane.context()).map_err(refused)?;
                    lane.out(to, on_device, bytes).map_err(refused)?;
                }
            }
        }
        Ok(())
    };
    let begun = begin();
    let waited = wait(&lanes).map_err(refused);
    begun.and(waited)?;
    for (block, hashes) in blocks.iter().zip(&hashes) {
        swap_buffer.copied(block.serial, hashes);
    }
    Ok(())
}

/// Returns the address and the bytes of chunks on their device.
fn place(block: &Block, run: &Run) -> (CUdeviceptr, u64) {
    let offset = run.first * CHUNK;
    let bytes = (u64::from(run.count) * CHUNK).min(block.room - offset);
    (block.start + offset, bytes)
}

/// Returns the address of chunks on the host, which is pinned if possible.
fn on_host(swap_buffer: &mut HostSwapBuffer, run: &Run, context: usize) -> Result<u64, CUerror> {
    let slot = run.slot.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    pin_again(swap_buffer, slot.piece(), context);
    swap_buffer.address(slot).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// Adds one piece to the swap buffer, for at most `left` bytes.
fn grow(swap_buffer: &mut HostSwapBuffer, left: u64) -> Result<(), Refusal> {
    let bytes = left.next_multiple_of(large_pages::LARGE).min(PIECE);
    let start = large_pages::take(bytes).ok_or((Why::HostMemory, 0))?;
    swap_buffer.add(Piece {
        start,
        bytes,
        pinned_in: 0,
    });
    Ok(())
}

/// Pins a piece that is not pinned, or whose context was destroyed. Copies to memory that is not pinned are slow but
/// correct.
fn pin_again(swap_buffer: &mut HostSwapBuffer, piece: usize, context: usize) {
    if let Some(piece) = swap_buffer.piece(piece)
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

/// Restores all evicted blocks, or none.
pub fn restore(process: &ManagedProcess) -> Result<(), RestoreError> {
    let book = &process.memory.swappable;
    let mut swap_buffer = process.memory.swap_buffer.lock();
    let mut away = book.all();
    away.retain(|block| block.handle.is_none());
    if let Err(error) = bring_back(process, &mut away, &mut swap_buffer) {
        return Err(not_back(&away, error));
    }
    away.into_iter().for_each(|block| book.put(block));
    Ok(())
}

/// Creates the memory of each block, maps it at the block's addresses, and starts to fill it while the next block's is
/// created. Waits until all are filled.
fn bring_back(
    process: &ManagedProcess,
    away: &mut [Block],
    swap_buffer: &mut HostSwapBuffer,
) -> CUresult {
    let lanes = lanes(away)?;
    let begun = away.iter_mut().try_for_each(|block| {
        map(process, block)?;
        fill(block, swap_buffer, of(&lanes, block)?)
    });
    begun.and(wait(&lanes))
}

/// Creates physical memory for a block and maps it at its addresses.
fn map(process: &ManagedProcess, block: &mut Block) -> CUresult {
    let handle = vmm::create(block.ordinal.into(), block.room)?;
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

/// Releases what was created, so that a lack of memory loses nothing: the host still has all contents. No copy is
/// under way.
fn not_back(away: &[Block], error: CUerror) -> RestoreError {
    for (block, handle) in away.iter().filter_map(|block| Some((block, block.handle?))) {
        let _ = vmm::unmap(block.start, block.room);
        let _ = vmm::release(handle);
    }
    match error {
        CUDA_ERROR_OUT_OF_MEMORY => RestoreError::Full,
        error => RestoreError::Lost(error),
    }
}

/// Returns the free bytes of a device as the driver reports them.
pub fn free_bytes(process: &ManagedProcess, ordinal: u8) -> Option<u64> {
    let all = process.memory.swappable.all();
    let block = all.iter().find(|block| block.ordinal == ordinal)?;
    transfer::within(block.context, memory::free_bytes).ok()
}
