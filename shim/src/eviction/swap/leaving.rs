//! The way out: what the host does not have is copied there, and the physical memory is released.

use std::sync::MutexGuard;

use gpushare_abi::{
    chunk_hash::{CHUNK, Hash},
    errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult},
};
use shm_layout::{Why, clock};

use super::{difference, grow, lanes, of, on_host, place, refused, wait};
use crate::{
    driver_query::{transfer::Lane, vmm},
    eviction::footprint::{Footprint, Refusal},
    managed_process::ManagedProcess,
    tracking::{host_swap_buffer::HostSwapBuffer, swappable::Block},
};

/// Number of chunks for which host memory is made at once, while the chunks before are copied.
const PART: usize = (super::PIECE / CHUNK) as usize;
/// Divisor: what has not changed of this part of the memory leaves before the rest is hashed, so that a process that waits begins to
/// copy at once. To hash 20 GiB takes 8 ms (H200, 580.159.04).
const FIRST: usize = 8;

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

impl Departure {
    /// Returns true if the host has all of it.
    fn is_unchanged(&self) -> bool {
        self.chunks.is_empty()
    }
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
    called_off: impl FnMut() -> Option<Why>,
    left: impl FnMut(&Block),
) -> Result<Gone, Refusal> {
    let blocks = process.memory.swappable.movable();
    let mut swap_buffer = process.memory.swap_buffer.lock();
    let all = process.memory.swappable.all().into_iter();
    let kept = all.filter(|block| !block.is_fixed);
    swap_buffer.keep_only(&kept.map(|block| block.serial).collect());
    let [even, odd] = [lanes(&blocks), lanes(&blocks)].map(|lanes| lanes.map_err(no_lane));
    let mut leaving = Leaving {
        process,
        leaves,
        called_off,
        left,
        lanes: [even?, odd?],
        swap_buffer,
        copies: Copies::default(),
        gone: Vec::new(),
        unmapped: Ok(()),
    };
    let result = leaving.all(&blocks);
    if leaving.gone.is_empty() {
        result.and(leaving.unmapped)?;
    }
    Ok(Gone {
        footprints: footprints(process, &leaving.gone),
        making_ns: leaving.copies.making_ns,
    })
}

/// A process is asked to leave when the card is full, and then even a stream may be too much for the driver.
fn no_lane(error: CUerror) -> Refusal {
    match error {
        CUDA_ERROR_OUT_OF_MEMORY => (Why::CardFull, error.code() as u16),
        error => refused(error),
    }
}

/// Memory on its way out.
struct Leaving<'l, C, L> {
    process: &'static ManagedProcess,
    leaves: Leaves<'l>,
    called_off: C,
    left: L,
    /// One part is copied while what is behind another is done.
    lanes: [Vec<Option<Lane>>; 2],
    swap_buffer: MutexGuard<'static, HostSwapBuffer>,
    copies: Copies,
    gone: Vec<Block>,
    /// The error of the last allocation that could not be unmapped. The others leave.
    unmapped: Result<(), Refusal>,
}

impl<C: FnMut() -> Option<Why>, L: FnMut(&Block)> Leaving<'_, C, L> {
    /// Evicts the allocations, as far as they have to leave.
    fn all(&mut self, blocks: &[Block]) -> Result<(), Refusal> {
        let first = match self.leaves {
            Leaves::Whole => 0,
            Leaves::InParts(_) => blocks.len() / FIRST,
        };
        let (first, rest) = blocks.split_at(first);
        let first = self.departures(first).into_iter();
        let (unchanged, changed): (Vec<_>, Vec<_>) = first.partition(Departure::is_unchanged);
        self.leave(&unchanged)?;
        if self.is_enough() {
            return Ok(());
        }
        let mut departures = self.departures(rest);
        departures.extend(changed);
        // Allocations that the host has in full come first, because they leave at once.
        departures.sort_by_key(|one| !one.is_unchanged());
        self.leave(&departures)
    }

    /// Hashes the allocations.
    fn departures(&mut self, blocks: &[Block]) -> Vec<Departure> {
        let hashes = difference::hashes(&mut self.swap_buffer, &self.lanes[0], blocks);
        blocks
            .iter()
            .zip(hashes)
            .map(|(block, hashes)| Departure {
                block: *block,
                chunks: self.swap_buffer.differing(block.serial, &hashes),
                hashes,
            })
            .collect()
    }

    /// Copies these allocations and releases their memory, as far as they have to leave.
    fn leave(&mut self, departures: &[Departure]) -> Result<(), Refusal> {
        self.copies.expect(departures, &self.swap_buffer);
        let size = match self.leaves {
            Leaves::Whole => departures.len().max(1),
            Leaves::InParts(_) => 1,
        };
        let mut result = Ok(());
        let mut before: Option<&[Departure]> = None;
        let parts = departures.chunks(size).map(Some).chain([None]);
        for (part, (at, behind)) in parts.zip([(0, 1), (1, 0)].into_iter().cycle()) {
            let begun = part.map_or(Ok(()), |part| self.begin(part, at));
            let waited = wait(&self.lanes[behind]).map_err(refused);
            if let (Some(part), Ok(())) = (before, waited) {
                for one in part {
                    self.swap_buffer.copied(one.block.serial, &one.hashes);
                }
                match self.is_called_off() {
                    Some(why) => result = Err((why, 0)),
                    None => self.take_away(part),
                }
            }
            result = result.and(waited).and(begun);
            before = part.filter(|_| result.is_ok() && !self.is_enough());
            if before.is_none() {
                let _ = wait(&self.lanes[at]);
                break;
            }
        }
        result
    }

    /// Starts to copy a part.
    fn begin(&mut self, part: &[Departure], at: usize) -> Result<(), Refusal> {
        let is_tied = self.gone.is_empty();
        let mut called_off = || (self.called_off)().filter(|_| is_tied);
        let lanes = &self.lanes[at];
        self.copies
            .begin(part, &mut self.swap_buffer, lanes, &mut called_off)
    }

    /// Returns why nothing leaves, if that is so and nothing has left.
    fn is_called_off(&mut self) -> Option<Why> {
        (self.called_off)().filter(|_| self.gone.is_empty())
    }

    /// Returns true if something has left and that is enough.
    fn is_enough(&self) -> bool {
        !self.gone.is_empty() && matches!(self.leaves, Leaves::InParts(is_enough) if is_enough())
    }

    /// Releases the physical memory of copied allocations. One that cannot be unmapped stays.
    fn take_away(&mut self, part: &[Departure]) {
        for Departure { block, .. } in part {
            match release(self.process, *block) {
                Ok(()) => {
                    self.gone.push(*block);
                    (self.left)(block);
                }
                Err(error) => self.unmapped = Err(refused(error)),
            }
        }
    }
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

/// The copies to the host of what it does not have yet.
#[derive(Default)]
struct Copies {
    /// The number of chunks that still have no place on the host.
    lacking: usize,
    /// The time in nanoseconds in which host memory was made.
    making_ns: u64,
}

impl Copies {
    /// Counts what these allocations lack on the host.
    fn expect(&mut self, departures: &[Departure], swap_buffer: &HostSwapBuffer) {
        let lacking = departures
            .iter()
            .map(|one| swap_buffer.lacking(one.block.serial, &one.chunks));
        self.lacking = lacking.sum();
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
