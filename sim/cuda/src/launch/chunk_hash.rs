//! The one kernel that is computed: the hashes by which the library finds out what has changed.

use gpushare_abi::{
    chunk_hash::{CHUNK, Keys, NAME, of},
    errors::{CUDA_ERROR_ILLEGAL_ADDRESS, CUresult},
};

use crate::{c, memory::heap};

/// Time for a chunk on a device of speed 1, in nanoseconds.
pub const CHUNK_NS: u64 = 1_000;

/// Returns true for the kernel's name.
pub fn is_named(name: &str) -> bool {
    NAME.to_str() == Ok(name)
}

/// Computes the hash of each block's chunk.
pub fn run(arguments: &[u8], blocks: u64) -> CUresult {
    let (addresses, keys) = arguments
        .split_at_checked(16)
        .ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
    let keys = Keys::from_bytes(keys).ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
    let (chunks, hashes) = (word(addresses), word(&addresses[8..]));
    heap::check(chunks, 8 * blocks)?;
    heap::check(hashes, 16 * blocks)?;
    for block in 0..blocks {
        let chunk = word(&c::read_bytes(chunks + 8 * block, 8));
        heap::check(chunk, CHUNK).map_err(|_| CUDA_ERROR_ILLEGAL_ADDRESS)?;
        let hash = of(&keys, &c::read_bytes(chunk, CHUNK as usize));
        c::copy_bytes(hashes + 16 * block, hash.as_ptr() as u64, 16);
    }
    Ok(())
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}
