//! Pools of another process: the pool by a file descriptor, and its allocations by exported data.
//!
//! An imported pool allocates nothing. An imported allocation is freed like any other; the exporter stays charged for
//! it and frees it too.

use std::{
    io::{Seek, SeekFrom},
    os::fd::{AsRawFd, IntoRawFd},
    sync::Arc,
};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUresult,
    },
    types::{CUdeviceptr, CUmemPoolPtrExportData, CUmemoryPool},
};

use crate::{
    c::{In, Out},
    context::current,
    device::POOL_HANDLE_TYPES,
    driver::driver,
    faces::faces,
    handles::{Table, lock},
    memory::{
        heap::{self, Kind},
        ipc,
        pool::{Elsewhere, OWNERS, Pool, Settings, by_handle, home::Home},
    },
};

const MAGIC: u64 = u64::from_le_bytes(*b"GPUSIM\0P");

/// The pool of each imported allocation, by address.
static IMPORTS: Table<Pool> = Table::new();

/// Unmaps an imported allocation.
pub fn close(address: u64) -> CUresult {
    IMPORTS.remove(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    ipc::hide(address)
}

/// Returns the imported pool of an allocation.
pub fn imported_from(address: u64) -> Option<Arc<Pool>> {
    IMPORTS.get(address)
}

/// Bits of the number that a pool has for others; those below are of its place.
const NUMBER: i64 = (1 << 36) - 1;
const PLACE_BITS: u32 = 24;

/// Returns a pool's number, which is unique in its process.
fn number(pool: &Pool) -> i64 {
    // Handles are multiples of 64.
    (pool.handle >> 6) as i64 & NUMBER
}

/// Returns 64 bytes with the position of an allocation in its process's device memory, and with its pool.
fn told(address: u64, pool: &Pool) -> Option<[u8; 64]> {
    let block = heap::find(address).filter(|block| matches!(block.kind, Kind::Ordered(_)))?;
    let region = heap::region().ok()?;
    let offset = block.base - region.base;
    let words = [MAGIC, offset, block.bytes, number(pool) as u64];
    let mut data = [0; 64];
    for (place, word) in data.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    Some(data)
}

/// Returns the offset and size in the exported data, if it is of this pool.
fn understood(data: [u8; 64], pool: i64) -> Option<(u64, u64)> {
    let word = |at: usize| Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?));
    let (offset, bytes) = (word(8)?, word(16)?);
    let sane = offset.checked_add(bytes).is_some_and(|end| end < 1 << 48) && bytes > 0;
    (word(0)? == MAGIC && word(24)? == pool as u64 && sane).then_some((offset, bytes))
}

/// Checks that a handle is a descriptor, the only kind that is shared.
fn descriptors_only(kind: u32, flags: u64) -> CUresult {
    if kind == 0 || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if kind == POOL_HANDLE_TYPES {
        Ok(())
    } else {
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
}

faces! {
    "cuMemPoolExportToShareableHandle" 11020 cuMemPoolExportToShareableHandle (out: Out<i32>, pool: CUmemoryPool, kind: u32, flags: u64) {
        let pool = by_handle(pool)?;
        out.check()?;
        descriptors_only(kind, flags)?;
        if lock(&pool.settings).handle_types & kind == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let region = format!("/proc/self/fd/{}", heap::region()?.file.as_raw_fd());
        let mut file = ipc::region_of(&region).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        // A file that is opened anew has its own read position, which identifies the pool.
        let which = number(&pool) << PLACE_BITS | pool.home.number()?;
        let told = file.seek(SeekFrom::Start(which as u64));
        told.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        out.set(file.into_raw_fd())
    }
    "cuMemPoolImportFromShareableHandle" 11020 cuMemPoolImportFromShareableHandle (out: Out<CUmemoryPool>, descriptor: usize, kind: u32, flags: u64) {
        driver()?;
        out.check()?;
        descriptors_only(kind, flags)?;
        let file = ipc::region_of(&format!("/proc/self/fd/{descriptor}"));
        let file = file.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let which = heap::place_in(descriptor as i32);
        let home = Home::from_number(which & ((1 << PLACE_BITS) - 1))?;
        let elsewhere = Elsewhere { file, number: which >> PLACE_BITS };
        let settings = Settings { handle_types: kind, ..Settings::default() };
        out.set(Pool::keep(home, false, settings, Some(elsewhere)).handle as CUmemoryPool)
    }
    "cuMemPoolExportPointer" 11020 cuMemPoolExportPointer (out: Out<CUmemPoolPtrExportData>, address: CUdeviceptr) {
        driver()?;
        out.check()?;
        let pool = OWNERS.get(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if lock(&pool.settings).handle_types == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(CUmemPoolPtrExportData { reserved: told(address, &pool).ok_or(CUDA_ERROR_INVALID_VALUE)? })
    }
    "cuMemPoolImportPointer" 11020 cuMemPoolImportPointer (out: Out<CUdeviceptr>, pool: CUmemoryPool, data: In<CUmemPoolPtrExportData>) {
        let pool = by_handle(pool)?;
        out.check()?;
        let context = current().map_or(0, |context| context.owner);
        let elsewhere = pool.elsewhere.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let told = understood(data.get()?.reserved, elsewhere.number);
        let (offset, bytes) = told.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let device = pool.home.device().unwrap_or(0);
        let address = ipc::show(&elsewhere.file, offset, bytes, device, context)?;
        IMPORTS.insert(address, Arc::clone(&pool));
        out.set(address)
    }
}
