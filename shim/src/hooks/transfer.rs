//! Hooks for asynchronous copies and prefetches, which are submitted like kernels.

use super::{copy::Region, launch::submit, stream};
use gpushare_abi::{
    Amount, In,
    errors::CUresult,
    types::{CUDA_FABRIC_COPY_BATCH_OP, CUDA_MEMCPY3D_BATCH_OP, CUmemDecompressParams, CUstream},
};

use crate::{hooks::launch::Submission, thread::Work};

/// Submits a copy or a prefetch.
#[inline(always)]
pub fn bytes(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    stream: CUstream,
    bytes: impl Amount,
) -> CUresult {
    submit(real, stream, Work::Copy(bytes.wide() as usize))
}

/// Submits a copy to the host's memory. Where that memory is not pinned, the driver returns when the copy is done, and so has the
/// application waited for the device.
#[inline(always)]
pub fn to_host(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    stream: CUstream,
    bytes: impl Amount,
) -> CUresult {
    let began = stream::begin_copy_to_host();
    submit(real, stream, Work::Copy(bytes.wide() as usize))?;
    if began != 0 {
        stream::copied_to_host(began);
    }
    Ok(())
}

/// Submits a copy of a region.
#[inline(always)]
pub fn region(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    stream: CUstream,
    copy: In<impl Region>,
) -> CUresult {
    submit(
        real,
        stream,
        Work::Copy(copy.get().map_or(0, Region::bytes)),
    )
}

/// Submits several copies or prefetches at once.
pub fn batch(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    stream: CUstream,
    sizes: In<usize>,
    count: usize,
) -> CUresult {
    let sizes = (0..count).map_while(|index| sizes.nth(index));
    submit(real, stream, several(count, sizes))
}

/// Submits several copies of regions at once.
pub fn regions(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    stream: CUstream,
    list: In<CUDA_MEMCPY3D_BATCH_OP>,
    count: usize,
) -> CUresult {
    let sizes = (0..count).map_while(|index| Some(list.nth(index)?.bytes()));
    submit(real, stream, several(count, sizes))
}

/// Submits several copies over a fabric at once.
pub fn fabric(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    stream: CUstream,
    list: In<CUDA_FABRIC_COPY_BATCH_OP>,
    count: usize,
) -> CUresult {
    let sizes = (0..count).map_while(|index| Some(list.nth(index)?.size));
    submit(real, stream, several(count, sizes))
}

/// Submits several decompressions at once, counted by their output bytes.
pub fn decompressed(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    stream: CUstream,
    list: In<CUmemDecompressParams>,
    count: usize,
) -> CUresult {
    let sizes = (0..count).map_while(|index| Some(list.nth(index)?.dstNumBytes));
    submit(real, stream, several(count, sizes))
}

/// Submits several discards of ranges, which move no bytes.
pub fn discarded(
    real: Submission<impl FnOnce() -> CUresult + Copy>,
    stream: CUstream,
    count: usize,
) -> CUresult {
    submit(real, stream, Work::Copies(count, 0))
}

/// Returns the number and the total bytes of a batch of copies.
fn several(count: usize, sizes: impl Iterator<Item = usize>) -> Work {
    Work::Copies(count, sizes.fold(0, usize::saturating_add))
}
