//! Eviction without the driver's checkpoint: memory allocated under `--swappable` is copied to the host at the speed
//! of the link, its physical memory is released, and its addresses stay reserved.
//!
//! The host keeps its copy after the restore. The next eviction hashes the memory on its device, in chunks of 2 MiB, and copies
//! only the chunks whose hash is not that of the host's copy. A chunk of zeros is never copied. The hashes belong to the same
//! state as the copies: calls are suspended, all work is done, and other processes cannot reach swappable memory (an exported
//! allocation is fixed and never evicted). A copy is void from before its first byte is written until all copies are done, so a
//! failed eviction copies these chunks again. Where the hashes cannot be had (the driver does not compile PTX), all is copied.
//!
//! Memory that leaves for a process that waits for its room leaves allocation by allocation, each once it is copied, and that
//! process takes the room as it comes: a link carries both directions at once. If it waits for memory that returns, the rest stays
//! once it has enough: then less has to return to this process too. The rest leaves later in the same way.
//!
//! The state after a failed step:
//!
//! | failed step | state |
//! |---|---|
//! | waiting, host memory, a copy out | all memory is still on the device: the process continues as before |
//! | host memory or a copy out after a part has left for a process that waits | that part has left; the rest stays on its device and in `used` |
//! | an unmapping | that allocation stays on its device and in `used`; the others leave |
//! | creating or mapping memory or a copy during a restore, for lack of memory | all of it is released, and the process waits in the queue again |
//! | the same in a restore part by part, or the rest of the room does not come | all of it is released, and is restored as a whole later |
//! | the same for another reason | the memory is lost, and the process's calls fail from then on |
//!
//! Contexts, modules, arrays, pools, memory that the program maps itself, and allocations of less than 2 MiB stay on the
//! device, in `used` as far as an account contains them (`evictor::deepen` takes them later if the operator wants it). A process that has more than an eighth of its bytes in such memory
//! is evicted by the driver's checkpoint, whole.

mod difference;
mod leaving;
mod returning;

pub use leaving::{Gone, Leaves, out};
pub use returning::{Coming, RestoreError, restore};

use gpushare_abi::{
    chunk_hash::CHUNK,
    errors::{CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NOT_READY, CUerror, CUresult},
    types::CUdeviceptr,
};
use shm_layout::Why;

use crate::{
    driver::{self, Symbol},
    driver_query::{
        checkpoint, context, memory,
        transfer::{self, Lane},
    },
    eviction::footprint::Refusal,
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
/// Size in bytes of the pieces in which host memory is allocated and pinned, while the piece before is filled. To populate the next one
/// while one is pinned gained nothing: 1.85 s for 20 GiB both ways, because the kernel then pins less than half as fast (H100,
/// 580.159.04).
const PIECE: u64 = 256 << 20;
/// Size in bytes of the pieces that are made ahead of an eviction, so small that the application hardly notices.
const SMALL: u64 = 64 << 20;
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

/// Makes a small piece of host memory ahead of the eviction of `bytes`. Returns false once all is there, or if there is no more.
pub fn prepare(process: &ManagedProcess, bytes: u64) -> bool {
    let blocks = process.memory.swappable.movable();
    let mut swap_buffer = process.memory.swap_buffer.lock();
    let left = bytes.saturating_sub(swap_buffer.bytes());
    let (Some(block), 1..) = (blocks.first(), left) else {
        return false;
    };
    match grow(&mut swap_buffer, left.min(SMALL)) {
        Ok(piece) => pin_again(&mut swap_buffer, piece, block.context),
        Err(_) => return false,
    }
    left > SMALL
}

/// Adds one piece to the swap buffer, for at most `left` bytes. Returns its index.
fn grow(swap_buffer: &mut HostSwapBuffer, left: u64) -> Result<usize, Refusal> {
    let bytes = left.next_multiple_of(large_pages::LARGE).min(PIECE);
    let start = large_pages::take(bytes).ok_or((Why::HostMemory, 0))?;
    Ok(swap_buffer.add(Piece {
        start,
        bytes,
        pinned_in: 0,
    }))
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

/// Returns the free bytes of a device as the driver reports them.
pub fn free_bytes(process: &ManagedProcess, ordinal: u8) -> Option<u64> {
    let all = process.memory.swappable.all();
    let block = all.iter().find(|block| block.ordinal == ordinal)?;
    transfer::within(block.context, memory::free_bytes).ok()
}
