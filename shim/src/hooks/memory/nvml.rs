//! Hooks for NVML's memory info, so that it agrees with the quota inside the process, as `cuMemGetInfo` does.
//!
//! Only devices with a quota or a steady view ([`view`]) are changed, and only in a process that uses CUDA. The numbers
//! of other processes and the process lists are unchanged. `GPUSHARE_NVML_VIEW=0` switches it off. After a checkpoint
//! NVML does not return before the restore, so the figures that it returned before are used then.

use super::view;
use gpushare_abi::{
    Out,
    errors::{CUerror, CUresult},
    types::{CUdevice, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t},
};

use crate::{
    driver_query::memory as ask,
    eviction,
    hooks::Real,
    managed_process::{self, Device, ManagedProcess},
    thread,
};

/// NVML's figures of a device, in bytes. In the first form of the call, nothing is reserved.
#[derive(Clone, Copy)]
struct Figures {
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// Forwards `nvmlDeviceGetMemoryInfo`.
pub fn memory_info(
    real: Real<'_, impl FnOnce() -> CUresult>,
    device: nvmlDevice_t,
    memory: Out<nvmlMemory_t>,
) -> CUresult {
    let read = |memory: nvmlMemory_t| Figures {
        total: memory.total,
        reserved: 0,
        free: memory.free,
        used: memory.used,
    };
    let figures = figures(real, device, || memory.get().map(read))?;
    if let (Some(figures), Some(mut info)) = (figures, memory.get()) {
        (info.total, info.free, info.used) = (figures.total, figures.free, figures.used);
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
    let read = |memory: nvmlMemory_v2_t| Figures {
        total: memory.total,
        reserved: memory.reserved,
        free: memory.free,
        used: memory.used,
    };
    let figures = figures(real, device, || memory.get().map(read))?;
    if let (Some(figures), Some(mut info)) = (figures, memory.get()) {
        (info.total, info.free, info.used) = (figures.total, figures.free, figures.used);
        info.reserved = figures.reserved;
        memory.set(info);
    }
    Ok(())
}

/// Forwards the call, or uses earlier figures after a checkpoint. Returns the figures to report; `None` leaves NVML's.
fn figures(
    real: Real<'_, impl FnOnce() -> CUresult>,
    handle: nvmlDevice_t,
    read: impl FnOnce() -> Option<Figures>,
) -> Result<Option<Figures>, CUerror> {
    let process = managed_process::current().filter(|process| process.environment.nvml_view);
    let Some(process) = process else {
        real.call()?;
        return Ok(None);
    };
    if thread::is_suspended() {
        eviction::wait_until_moved(real.thread());
    }
    let nvml = &process.memory.nvml;
    let earlier = eviction::is_checkpointed(process).then(|| nvml.seen(handle));
    let (figures, device) = match earlier.flatten() {
        Some((total, reserved, ordinal)) => {
            real.answered(Ok(()));
            let figures = Figures {
                total,
                reserved,
                free: total.saturating_sub(reserved),
                used: 0,
            };
            (Some(figures), process.device(ordinal))
        }
        None => {
            real.call()?;
            let figures = read();
            let ordinal = nvml.ordinal(handle, || ordinal_of(process, handle));
            if let Some(figures) = figures {
                nvml.see(handle, figures.total, figures.reserved);
            }
            (figures, ordinal.and_then(|ordinal| process.device(ordinal)))
        }
    };
    Ok(figures
        .zip(device)
        .map(|(figures, device)| agree(process, device, figures)))
}

/// Returns the figures within the limits, with free + used + reserved ≤ total.
fn agree(process: &ManagedProcess, device: &Device, said: Figures) -> Figures {
    let steady = view::steady(process, device);
    let is_whole = |total: u64| total >= device.total_bytes;
    match steady.or_else(|| device.ledger.outlook()) {
        Some(alone) if steady.is_some() && is_whole(alone.whole) => {
            let free = alone.room.min(said.total.saturating_sub(said.reserved));
            Figures {
                free,
                used: said.total - said.reserved - free,
                ..said
            }
        }
        Some(outlook) if outlook.whole < said.total => {
            let (total, free) = (outlook.whole, outlook.room.min(outlook.whole));
            let free = if steady.is_some() {
                free
            } else {
                free.min(said.free)
            };
            let used = eviction::own_bytes(process, device).min(total - free);
            Figures {
                total,
                free,
                used,
                reserved: said.reserved.min(total - free - used),
            }
        }
        _ => said,
    }
}

fn ordinal_of(process: &ManagedProcess, device: nvmlDevice_t) -> Option<CUdevice> {
    let uuid = ask::nvml_uuid(device)?;
    let device = process.devices.iter().find(|device| device.uuid == uuid)?;
    Some(device.ordinal.into())
}
