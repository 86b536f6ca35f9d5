//! Hooks for memory that another process or interface has allocated. It is shown as imported and charged to its
//! creator.

use std::sync::atomic::Ordering::Relaxed;

use super::account;
use gpushare_abi::{
    In, Out,
    errors::CUresult,
    types::{CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdeviceptr, CUexternalMemory},
};

use crate::{driver_query::memory as ask, hooks::Real, tracking::record::Kind};

/// Forwards `cuIpcOpenMemHandle`.
pub fn open(real: Real<'_, impl FnOnce() -> CUresult>, dptr: Out<CUdeviceptr>) -> CUresult {
    let bytes = || dptr.get().and_then(ask::size_of_allocation).unwrap_or(0);
    account::count(real, Kind::Shared, bytes, || dptr.get())
}

/// Forwards `cuIpcCloseMemHandle`.
pub fn close(real: Real<'_, impl FnOnce() -> CUresult>, dptr: CUdeviceptr) -> CUresult {
    account::free(real, dptr, Kind::Shared)
}

/// Forwards `cuMemPoolImportPointer`. The allocation from another process's pool is freed like any other.
pub fn pointer(real: Real<'_, impl FnOnce() -> CUresult>, dptr: Out<CUdeviceptr>) -> CUresult {
    let bytes = || dptr.get().and_then(ask::size_of_allocation).unwrap_or(0);
    account::count(real, Kind::PoolShared, bytes, || dptr.get())
}

/// Forwards `cuImportExternalMemory`.
pub fn external(
    real: Real<'_, impl FnOnce() -> CUresult>,
    memory: Out<CUexternalMemory>,
    desc: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
) -> CUresult {
    let bytes = || desc.get().map_or(0, |desc| desc.size);
    account::count(real, Kind::External, bytes, || Some(memory.get()? as u64))
}

/// Forwards `cuDestroyExternalMemory`.
pub fn destroy_external(
    real: Real<'_, impl FnOnce() -> CUresult>,
    memory: CUexternalMemory,
) -> CUresult {
    account::free(real, memory as u64, Kind::External)
}

/// Forwards a call after which other processes may use memory or an event of this process.
pub fn shown(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    if let Some(process) = real.process() {
        process.memory.shown.store(true, Relaxed);
    }
    real.call()
}

/// Forwards a call after which this process may use memory or an event of another process.
pub fn taken(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    if let Some(process) = real.process() {
        process.memory.taken.store(true, Relaxed);
    }
    real.call()
}
