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

use std::sync::MutexGuard;

use gpushare_abi::{
    chunk_hash::{CHUNK, Hash},
    errors::{
        CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY, CUerror,
        CUresult,
    },
    types::{CUdeviceptr, CUmemGenericAllocationHandle},
};
use shm_layout::{Why, clock};

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

/// The way in which memory leaves.
#[derive(Clone, Copy)]
pub enum Leaves<'l> {
    /// At the end, so that the process goes on as before if it is called off.
    Whole,
    /// Each allocation once it is copied, for a process that waits for its room, until the function says that this is enough. It is
    /// not called off once one has left.
    InParts(&'l dyn Fn() -> bool),
}

/// An allocation that is about to leave.
struct Departure {
    block: Block,
    hashes: Vec<Option<Hash>>,
    /// The chunks that the host does not have.
    chunks: Vec<u64>,
}

/// Memory that has left.
pub struct Gone {
    /// The memory that has left, by device.
    pub footprints: Vec<Footprint<'static>>,
    /// The time in nanoseconds in which host memory was made. The next eviction finds it there.
    pub making_ns: u64,
}

/// Evicts the movable memory that is on its devices, and reports each allocation to `left` once it has left. After an error all memory
/// is where it was.
pub fn out(
    process: &'static ManagedProcess,
    leaves: Leaves<'_>,
    mut called_off: impl FnMut() -> Option<Why>,
    mut left: impl FnMut(&Block),
) -> Result<Gone, Refusal> {
    let blocks = process.memory.swappable.movable();
    let mut swap_buffer = process.memory.swap_buffer.lock();
    let all = process.memory.swappable.all().into_iter();
    let kept = all.filter(|block| !block.is_fixed);
    swap_buffer.keep_only(&kept.map(|block| block.serial).collect());
    // One part is copied while what is behind another is done.
    let lanes = [lanes(&blocks), lanes(&blocks)];
    let [even, odd] = lanes.map(|lanes| lanes.map_err(refused));
    let lanes = [even?, odd?];
    let departures = departures(&blocks, &mut swap_buffer, &lanes[0]);
    let mut copies = Copies::of(&departures, &swap_buffer);
    let size = match leaves {
        Leaves::Whole => departures.len().max(1),
        Leaves::InParts(_) => 1,
    };
    let mut gone: Vec<Block> = Vec::new();
    let (mut result, mut unmapped) = (Ok(()), Ok(()));
    let mut before: Option<&[Departure]> = None;
    let is_enough = || matches!(leaves, Leaves::InParts(is_enough) if is_enough());
    let parts = departures.chunks(size).map(Some).chain([None]);
    for (part, (at, behind)) in parts.zip([(0, 1), (1, 0)].into_iter().cycle()) {
        let is_tied = gone.is_empty();
        let mut called_off = || called_off().filter(|_| is_tied);
        let begun = part.map_or(Ok(()), |part| {
            copies.begin(part, &mut swap_buffer, &lanes[at], &mut called_off)
        });
        let waited = wait(&lanes[behind]).map_err(refused);
        if let (Some(part), Ok(())) = (before, waited) {
            for one in part {
                swap_buffer.copied(one.block.serial, &one.hashes);
            }
            match called_off() {
                Some(why) => result = Err((why, 0)),
                None => unmapped = take_away(process, part, &mut gone, &mut left).and(unmapped),
            }
        }
        result = result.and(waited).and(begun);
        let goes_on = result.is_ok() && (gone.is_empty() || !is_enough());
        before = part.filter(|_| goes_on);
        if before.is_none() {
            let _ = wait(&lanes[at]);
            break;
        }
    }
    if gone.is_empty() {
        result.and(unmapped)?;
    }
    Ok(Gone {
        footprints: footprints(process, &gone),
        making_ns: copies.making_ns,
    })
}

/// Returns what has left, by device.
fn footprints(process: &'static ManagedProcess, gone: &[Block]) -> Vec<Footprint<'static>> {
    process
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
        .collect()
}

/// Hashes the allocations. Those that the host has in full come first, because they leave at once.
fn departures(
    blocks: &[Block],
    swap_buffer: &mut HostSwapBuffer,
    lanes: &[Option<Lane>],
) -> Vec<Departure> {
    let hashes = difference::hashes(swap_buffer, lanes, blocks);
    let mut departures: Vec<Departure> = blocks
        .iter()
        .zip(hashes)
        .map(|(block, hashes)| Departure {
            block: *block,
            chunks: swap_buffer.differing(block.serial, &hashes),
            hashes,
        })
        .collect();
    departures.sort_by_key(|one| !one.chunks.is_empty());
    departures
}

/// Releases the physical memory of copied allocations. One that cannot be unmapped stays; the error is returned.
fn take_away(
    process: &ManagedProcess,
    part: &[Departure],
    gone: &mut Vec<Block>,
    left: &mut impl FnMut(&Block),
) -> Result<(), Refusal> {
    let mut result = Ok(());
    for Departure { block, .. } in part {
        match release(process, *block) {
            Ok(()) => {
                gone.push(*block);
                left(block);
            }
            Err(error) => result = Err(refused(error)),
        }
    }
    result
}

fn release(process: &ManagedProcess, block: Block) -> CUresult {
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

/// The copies to the host of what it does not have yet.
struct Copies {
    /// The number of chunks that still have no place on the host.
    lacking: usize,
    /// The time in nanoseconds in which host memory was made.
    making_ns: u64,
}

impl Copies {
    fn of(departures: &[Departure], swap_buffer: &HostSwapBuffer) -> Self {
        let lacking = departures
            .iter()
            .map(|one| swap_buffer.lacking(one.block.serial, &one.chunks));
        Self {
            lacking: lacking.sum(),
            making_ns: 0,
        }
    }

    /// Starts to copy a part.
    fn begin(
        &mut self,
        part: &[Departure],
        swap_buffer: &mut HostSwapBuffer,
        lanes: &[Option<Lane>],
        called_off: &mut impl FnMut() -> Option<Why>,
    ) -> Result<(), Refusal> {
        for Departure { block, chunks, .. } in part {
            let lane = of(lanes, block).map_err(refused)?;
            for chunks in chunks.chunks(PART) {
                self.find_places(block, chunks, swap_buffer)?;
                for run in swap_buffer.runs(block.serial, chunks) {
                    if let Some(why) = called_off() {
                        return Err((why, 0));
                    }
                    let (on_device, bytes) = place(block, &run);
                    let pinned = || on_host(swap_buffer, &run, lane.context());
                    let to = timed(&mut self.making_ns, pinned).map_err(refused)?;
                    lane.out(to, on_device, bytes).map_err(refused)?;
                }
            }
        }
        Ok(())
    }

    /// Gives these chunks places on the host.
    fn find_places(
        &mut self,
        block: &Block,
        chunks: &[u64],
        swap_buffer: &mut HostSwapBuffer,
    ) -> Result<(), Refusal> {
        self.lacking -= swap_buffer.lacking(block.serial, chunks);
        loop {
            match swap_buffer.assign(block.serial, chunks) {
                0 => return Ok(()),
                missing => {
                    let bytes = (self.lacking + missing) as u64 * CHUNK;
                    timed(&mut self.making_ns, || grow(swap_buffer, bytes))?;
                }
            }
        }
    }
}

/// Adds the time that `work` takes, in nanoseconds.
fn timed<T>(sum_ns: &mut u64, work: impl FnOnce() -> T) -> T {
    let began = clock::now();
    let result = work();
    *sum_ns += clock::now().saturating_sub(began);
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
        let mut blocks = process.memory.swappable.all();
        blocks.retain(|block| block.handle.is_none());
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

/// Returns the free bytes of a device as the driver reports them.
pub fn free_bytes(process: &ManagedProcess, ordinal: u8) -> Option<u64> {
    let all = process.memory.swappable.all();
    let block = all.iter().find(|block| block.ordinal == ordinal)?;
    transfer::within(block.context, memory::free_bytes).ok()
}
