//! Hooks for multicast objects: one address range that accesses the memory of several devices.
//!
//! The object has no memory of its own and is not charged. Memory bound to it was created by `cuMemCreate` and is
//! charged to its device. A binding keeps that memory alive like a mapping, until it is undone, or until the object's
//! last handle and last mapping are gone.

use super::account;
use gpushare_abi::{
    Amount, Out,
    errors::CUresult,
    types::{CUdevice, CUdeviceptr, CUmemGenericAllocationHandle},
};

use crate::{
    hooks::Real,
    managed_process::{self, ManagedProcess},
    tracking::physical::Id,
};

/// Forwards `cuMulticastCreate`.
pub fn create(
    real: Real<'_, impl FnOnce() -> CUresult>,
    team: Out<CUmemGenericAllocationHandle>,
) -> CUresult {
    real.call()?;
    if let (Some(process), Some(team)) = (managed_process::current(), team.get()) {
        process.memory.physical.lock().enter(team, None);
    }
    Ok(())
}

/// Forwards `cuMulticastBindMem`, for the device of the memory.
pub fn bind(
    real: Real<'_, impl FnOnce() -> CUresult>,
    team: CUmemGenericAllocationHandle,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    bytes: usize,
) -> CUresult {
    let held = |process: &ManagedProcess| process.memory.physical.hold(memory);
    keep(real, team, None, [offset.wide(), bytes.wide()], held)
}

/// Forwards `cuMulticastBindMem` for a named device.
pub fn bind_for(
    real: Real<'_, impl FnOnce() -> CUresult>,
    team: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    bytes: usize,
) -> CUresult {
    let held = |process: &ManagedProcess| process.memory.physical.hold(memory);
    keep(
        real,
        team,
        Some(device),
        [offset.wide(), bytes.wide()],
        held,
    )
}

/// Forwards `cuMulticastBindAddr`, for the device of the memory.
pub fn bind_address(
    real: Real<'_, impl FnOnce() -> CUresult>,
    team: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    // Memory of a pool has no handle: the application must keep it alive.
    let held = |process: &ManagedProcess| process.memory.physical.hold_at(address);
    keep(real, team, None, [offset.wide(), bytes.wide()], held)
}

/// Forwards `cuMulticastBindAddr` for a named device.
pub fn bind_address_for(
    real: Real<'_, impl FnOnce() -> CUresult>,
    team: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    let held = |process: &ManagedProcess| process.memory.physical.hold_at(address);
    keep(
        real,
        team,
        Some(device),
        [offset.wide(), bytes.wide()],
        held,
    )
}

/// Forwards a binding of memory that `hold` has added a reference to.
fn keep(
    real: Real<'_, impl FnOnce() -> CUresult>,
    team: CUmemGenericAllocationHandle,
    device: Option<CUdevice>,
    range: [u64; 2],
    hold: impl FnOnce(&ManagedProcess) -> Option<Id>,
) -> CUresult {
    let Some((process, id)) =
        managed_process::current().and_then(|process| Some((process, hold(process)?)))
    else {
        return real.call();
    };
    let result = real.call();
    let book = &process.memory.physical;
    let bound = result.is_ok() && {
        let mut book = book.lock();
        let team = book.named(team);
        team.is_some_and(|team| book.bind(team, device, range, id))
    };
    if !bound {
        account::let_go(process, id);
    }
    result
}

/// Forwards `cuMulticastUnbind`.
pub fn unbind(
    real: Real<'_, impl FnOnce() -> CUresult>,
    team: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    bytes: usize,
) -> CUresult {
    real.call()?;
    if let Some(process) = managed_process::current() {
        let book = &process.memory.physical;
        let gone = {
            let mut book = book.lock();
            let range = [offset.wide(), bytes.wide()];
            let team = book.named(team);
            team.map(|team| book.unbind(team, device, range))
        };
        gone.into_iter()
            .flatten()
            .for_each(|id| account::let_go(process, id));
    }
    Ok(())
}
