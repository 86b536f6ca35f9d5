//! The hashes of the memory that is about to be evicted.

use gpushare_abi::{
    chunk_hash::{CHUNK, Hash},
    errors::CUerror,
};

use crate::{
    driver_query::{chunk_hash, transfer::Lane},
    tracking::{host_swap_buffer::HostSwapBuffer, swappable::Block},
};

/// Returns the hash of each chunk of each block; `None` where it is unknown. No work may be under way.
pub fn hashes(
    swap_buffer: &mut HostSwapBuffer,
    lanes: &[Option<Lane>],
    blocks: &[Block],
) -> Vec<Vec<Option<Hash>>> {
    let chunks = |block: &Block| block.room.div_ceil(CHUNK) as usize;
    let mut hashes: Vec<Vec<Option<Hash>>> = blocks
        .iter()
        .map(|block| vec![None; chunks(block)])
        .collect();
    for (ordinal, lane) in lanes.iter().enumerate() {
        let Some(lane) = lane else { continue };
        let here: Vec<(usize, u64)> = blocks
            .iter()
            .enumerate()
            .filter(|(_, block)| usize::from(block.ordinal) == ordinal)
            // A last part that is smaller than a chunk is always copied.
            .flat_map(|(at, block)| (0..block.room / CHUNK).map(move |chunk| (at, chunk)))
            .collect();
        if here.is_empty() {
            continue;
        }
        let addresses: Vec<u64> = here
            .iter()
            .map(|(at, chunk)| blocks[*at].start + chunk * CHUNK)
            .collect();
        let found = of_device(swap_buffer, lane, &addresses).unwrap_or_default();
        for ((at, chunk), hash) in here.into_iter().zip(found) {
            hashes[at][chunk as usize] = Some(hash);
        }
    }
    hashes
}

fn of_device(
    swap_buffer: &mut HostSwapBuffer,
    lane: &Lane,
    chunks: &[u64],
) -> Result<Vec<Hash>, CUerror> {
    let context = lane.context();
    let function = swap_buffer.function(context, || chunk_hash::load(context))?;
    chunk_hash::of(lane, function, &swap_buffer.keys(), chunks)
}
