//! NVML's memory info inside the process: it agrees with the quota, as `cuMemGetInfo` does.
//!
//! Only devices of ours on which a quota holds are touched, and only in a process that uses CUDA; the numbers of other
//! processes and the process lists stay as they are. `GPUSHARE_NVML_VIEW=0` switches it off.

use gpushare_abi::Out;
use gpushare_abi::errors::CUresult;
use gpushare_abi::types::{CUdevice, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t};

use crate::ask::memory as ask;
use crate::guest::{Guest, guest};
use crate::real::Real;

use super::account::{self, Account};
use super::view;

/// `nvmlDeviceGetMemoryInfo`.
pub fn memory_info(
    real: Real<'_, impl FnOnce() -> CUresult>,
    device: nvmlDevice_t,
    memory: Out<nvmlMemory_t>,
) -> CUresult {
    real.call()?;
    if let (Some(account), Some(mut info)) = (account_of(device), memory.get()) {
        (info.total, info.free, info.used) = agree(account, info.total, info.free, info.used);
        memory.set(info);
    }
    Ok(())
}

/// `nvmlDeviceGetMemoryInfo_v2`. What the driver reserves for itself is no part of a quota.
pub fn memory_info_v2(
    real: Real<'_, impl FnOnce() -> CUresult>,
    device: nvmlDevice_t,
    memory: Out<nvmlMemory_v2_t>,
) -> CUresult {
    real.call()?;
    if let (Some(account), Some(mut info)) = (account_of(device), memory.get()) {
        (info.total, info.free, info.used) = agree(account, info.total, info.free, info.used);
        info.reserved = info.reserved.min(info.total - info.free - info.used);
        memory.set(info);
    }
    Ok(())
}

/// Total, free and used, with free + used ≤ total.
fn agree(account: Account, total: u64, free: u64, used: u64) -> (u64, u64, u64) {
    let ledger = account.ledger();
    let most = view::whole(ledger);
    if most >= total {
        return (total, free, used);
    }
    let free = free.min(view::room(ledger)).min(most);
    (most, free, ledger.used().min(most - free))
}

fn account_of(device: nvmlDevice_t) -> Option<Account> {
    let guest = guest().filter(|guest| guest.environment.nvml_view)?;
    let find = || ordinal_of(guest, device);
    account::of_device(guest.memory.nvml.ordinal(device, find)?)
}

fn ordinal_of(guest: &Guest, device: nvmlDevice_t) -> Option<CUdevice> {
    let uuid = ask::nvml_uuid(device)?;
    let ordinals = guest
        .devices
        .iter()
        .map(|device| CUdevice::from(device.ordinal));
    ordinals
        .into_iter()
        .find(|ordinal| ask::uuid(*ordinal) == Some(uuid))
}
