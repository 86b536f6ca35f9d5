//! Multicast objects: one address range that shows memory of several devices.
//!
//! The object has no memory of its own and is charged nothing: what is bound to it was made by `cuMemCreate`, and is
//! charged to its device. A binding keeps that memory alive as a mapping does, until it is undone, or until the
//! object's last handle and its last mapping are gone.

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

/// `cuMulticastCreate`.
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

/// `cuMulticastBindMem`, on the device the memory is on.
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

/// `cuMulticastBindMem` for a device.
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

/// `cuMulticastBindAddr`, on the device the memory is on.
pub fn bind_address(
    real: Real<'_, impl FnOnce() -> CUresult>,
    team: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    let held = |process: &ManagedProcess| hold_at(process, address);
    keep(real, team, None, [offset.wide(), bytes.wide()], held)
}

/// `cuMulticastBindAddr` for a device.
pub fn bind_address_for(
    real: Real<'_, impl FnOnce() -> CUresult>,
    team: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    let held = |process: &ManagedProcess| hold_at(process, address);
    keep(
        real,
        team,
        Some(device),
        [offset.wide(), bytes.wide()],
        held,
    )
}

/// Memory of a pool has an address and no handle; its binding is up to the application.
fn hold_at(process: &ManagedProcess, address: CUdeviceptr) -> Option<Id> {
    let mut book = process.memory.physical.lock();
    let id = book.mapping_at(address)?;
    book.hold(id);
    Some(id)
}

/// Binds what `hold` keeps alive from now on.
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

/// `cuMulticastUnbind`.
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
