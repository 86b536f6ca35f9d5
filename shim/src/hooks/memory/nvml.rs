//! Hooks for NVML's memory info, so that it agrees with the quota inside the process, as `cuMemGetInfo` does.
//!
//! Only devices with a quota are changed, and only in a process that uses CUDA. The numbers of other processes and
//! the process lists are unchanged. `GPUSHARE_NVML_VIEW=0` switches it off.

use super::view;
use gpushare_abi::{
    Out,
    errors::CUresult,
    types::{CUdevice, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t},
};
use shm_layout::Ledger;

use crate::{
    driver_query::memory as ask,
    hooks::Real,
    managed_process::{self, ManagedProcess},
};

/// Forwards `nvmlDeviceGetMemoryInfo`.
pub fn memory_info(
    real: Real<'_, impl FnOnce() -> CUresult>,
    device: nvmlDevice_t,
    memory: Out<nvmlMemory_t>,
) -> CUresult {
    real.call()?;
    if let (Some(ledger), Some(mut info)) = (ledger_of(device), memory.get()) {
        (info.total, info.free, info.used) = agree(&ledger, info.total, info.free, info.used);
        memory.set(info);
    }
    Ok(())
}

/// Forwards `nvmlDeviceGetMemoryInfo_v2`. The memory that the driver reserves for itself is no part of a quota.
pub fn memory_info_v2(
    real: Real<'_, impl FnOnce() -> CUresult>,
    device: nvmlDevice_t,
    memory: Out<nvmlMemory_v2_t>,
) -> CUresult {
    real.call()?;
    if let (Some(ledger), Some(mut info)) = (ledger_of(device), memory.get()) {
        (info.total, info.free, info.used) = agree(&ledger, info.total, info.free, info.used);
        info.reserved = info.reserved.min(info.total - info.free - info.used);
        memory.set(info);
    }
    Ok(())
}

/// Returns total, free and used bytes within the quota, with free + used ≤ total.
fn agree(ledger: &Ledger<'_>, total: u64, free: u64, used: u64) -> (u64, u64, u64) {
    let most = view::whole(ledger);
    if most >= total {
        return (total, free, used);
    }
    let free = free.min(view::room(ledger)).min(most);
    (most, free, ledger.used().min(most - free))
}

/// Returns the ledger of a device of the process. CUDA is not called, because NVML's calls do not wait during an
/// eviction.
fn ledger_of(device: nvmlDevice_t) -> Option<Ledger<'static>> {
    let process = managed_process::current().filter(|process| process.environment.nvml_view)?;
    let find = || ordinal_of(process, device);
    let ordinal = process.memory.nvml.ordinal(device, find)?;
    process.device(ordinal).map(|device| device.ledger)
}

fn ordinal_of(process: &ManagedProcess, device: nvmlDevice_t) -> Option<CUdevice> {
    let uuid = ask::nvml_uuid(device)?;
    let device = process.devices.iter().find(|device| device.uuid == uuid)?;
    Some(device.ordinal.into())
}
