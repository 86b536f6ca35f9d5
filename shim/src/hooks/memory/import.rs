//! Memory that another process or another interface allocated: shown as imported, charged to the process that made it.

use std::sync::atomic::Ordering::Relaxed;

use super::account;
use gpushare_abi::{
    In, Out,
    errors::CUresult,
    types::{CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdeviceptr, CUexternalMemory},
};

use crate::{driver_query::memory as ask, hooks::Real, tracking::record::Kind};

/// `cuIpcOpenMemHandle`.
pub fn open(real: Real<'_, impl FnOnce() -> CUresult>, dptr: Out<CUdeviceptr>) -> CUresult {
    let bytes = || dptr.get().and_then(ask::size_of_allocation).unwrap_or(0);
    account::count(real, Kind::Shared, bytes, || dptr.get())
}

/// `cuIpcCloseMemHandle`.
pub fn close(real: Real<'_, impl FnOnce() -> CUresult>, dptr: CUdeviceptr) -> CUresult {
    account::free(real, dptr, Kind::Shared)
}

/// `cuMemPoolImportPointer`: an allocation of another process's pool, which is freed like any other.
pub fn pointer(real: Real<'_, impl FnOnce() -> CUresult>, dptr: Out<CUdeviceptr>) -> CUresult {
    let bytes = || dptr.get().and_then(ask::size_of_allocation).unwrap_or(0);
    account::count(real, Kind::PoolShared, bytes, || dptr.get())
}

/// `cuImportExternalMemory`.
pub fn external(
    real: Real<'_, impl FnOnce() -> CUresult>,
    memory: Out<CUexternalMemory>,
    desc: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>,
) -> CUresult {
    let bytes = || desc.get().map_or(0, |desc| desc.size);
    account::count(real, Kind::External, bytes, || Some(memory.get()? as u64))
}

/// `cuDestroyExternalMemory`.
pub fn destroy_external(
    real: Real<'_, impl FnOnce() -> CUresult>,
    memory: CUexternalMemory,
) -> CUresult {
    account::free(real, memory as u64, Kind::External)
}

/// A call after which other processes may use what is this one's.
pub fn shown(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    if let Some(process) = real.process() {
        process.memory.shown.store(true, Relaxed);
    }
    real.call()
}

/// A call after which this process may use what is another one's.
pub fn taken(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    if let Some(process) = real.process() {
        process.memory.taken.store(true, Relaxed);
    }
    real.call()
}
