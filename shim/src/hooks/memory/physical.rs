//! Hooks for physical memory and its mappings (`cuMemCreate`, `cuMemMap`, …).
//!
//! Physical memory exists as long as a handle to it, a mapping of it or its binding to a multicast object. It is
//! charged for that time: the release of the handle of mapped memory uncharges nothing, its last unmapping does.
//!
//! Memory on the host is counted as pinned. Memory of another process is charged to that process; here its mappings
//! are counted as imported. A file descriptor does not identify the owner of its memory. So memory that this process
//! exports to a descriptor, imports again and then releases by its own handle counts as imported as well.
//!
//! A reference is entered before the driver is asked for it. A thread that removes one has the tables' turn until the driver has done so, and
//! who adds one waits for that: the memory would be in the tables no more, and with the driver still.

use std::{ffi::c_void, sync::atomic::Ordering::Relaxed};

use super::{account, allocate::granted, code, swappable};
use gpushare_abi::{
    In, Out,
    errors::{CUDA_ERROR_INVALID_VALUE, CUresult},
    types::{
        CU_MEM_HANDLE_TYPE_FABRIC, CUdeviceptr, CUmemAllocationProp, CUmemGenericAllocationHandle,
        CUmemLocation, FabricHandle,
    },
};

use crate::{hooks::Real, managed_process, tracking::record::Kind};

/// Forwards `cuMemCreate`.
pub fn create(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    handle: Out<CUmemGenericAllocationHandle>,
    bytes: usize,
    prop: In<CUmemAllocationProp>,
) -> CUresult {
    let location = prop.get().map(|prop| prop.location);
    let device = location.and_then(CUmemLocation::device);
    let on_device = location.is_none() || device.is_some();
    let account = device.map_or_else(account::of_current_device, account::of_device);
    let Some(account) = account else {
        return if on_device {
            account::unaccounted(real)
        } else {
            real.call()
        };
    };
    let bytes = bytes as u64;
    real.moves(bytes);
    let kind = if on_device { Kind::Linear } else { Kind::Host };
    if on_device {
        granted(account, &real, bytes)?;
    } else {
        real.call()?;
    }
    let record = account.enter(bytes, kind);
    if let Some(handle) = handle.get() {
        let book = &account.process().memory.physical;
        book.lock().enter(handle, Some(record));
    }
    Ok(())
}

/// Forwards `cuMemRelease`.
pub fn release(
    real: Real<'_, impl FnOnce() -> CUresult>,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    let book = &process.memory.physical;
    let _turn = book.turn();
    // Removed before the driver may reuse the number.
    let Some(id) = book.lock().drop_handle(handle) else {
        return real.call();
    };
    match real.call() {
        Ok(()) => {
            account::let_go(process, id);
            Ok(())
        }
        Err(error) => {
            book.lock().name(handle, id);
            Err(error)
        }
    }
}

/// Forwards `cuMemRetainAllocationHandle`, which adds a handle to the memory mapped at an address.
pub fn retain(
    real: Real<'_, impl FnOnce() -> CUresult>,
    handle: Out<CUmemGenericAllocationHandle>,
    addr: *mut c_void,
) -> CUresult {
    if swappable::has(addr as CUdeviceptr) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    let book = &process.memory.physical;
    let held = book.hold_at(addr as CUdeviceptr);
    let result = real.call();
    match (result, handle.get().zip(held)) {
        (Ok(()), Some((handle, id))) => book.lock().name(handle, id),
        _ => held.into_iter().for_each(|id| account::let_go(process, id)),
    }
    result
}

/// Forwards `cuMemMap`.
pub fn map(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    ptr: CUdeviceptr,
    bytes: usize,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    let book = &process.memory.physical;
    let bytes = bytes as u64;
    let held = book.hold(handle);
    let entered = held.filter(|id| book.lock().map(ptr, bytes, *id));
    let result = code::forward(&real);
    match (result, held) {
        (Ok(()), Some(id)) if entered.is_none() => book.lock().map_anew(ptr, bytes, id),
        (Ok(()), Some(_)) => {}
        (Err(_), Some(id)) => {
            // A thread that unmaps there may have taken it out for the moment.
            let _turn = book.turn();
            entered
                .into_iter()
                .for_each(|id| book.lock().unmap(ptr, id));
            account::let_go(process, id);
        }
        (Ok(()), None) => {
            if let Some(account) = account::of_current_device() {
                let record = account.enter(bytes, Kind::Shared);
                book.lock().enter_mapping(ptr, bytes, record);
            }
        }
        (Err(_), None) => {}
    }
    result
}

/// Forwards `cuMemUnmap`, which removes every mapping in the range.
pub fn unmap(
    real: Real<'_, impl FnOnce() -> CUresult>,
    ptr: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    let book = &process.memory.physical;
    let _turn = book.turn();
    let taken = book.lock().take_mappings(ptr, bytes as u64);
    let result = real.call();
    match result {
        Ok(()) => taken
            .into_iter()
            .for_each(|(_, (_, id))| account::let_go(process, id)),
        Err(_) => book.lock().put_back(taken),
    }
    result
}

/// Forwards `cuMemExportToShareableHandle`.
pub fn export(
    real: Real<'_, impl FnOnce() -> CUresult>,
    shareable: Out<FabricHandle>,
    handle: CUmemGenericAllocationHandle,
    kind: u32,
) -> CUresult {
    if let Some(process) = managed_process::current() {
        process.memory.shown.store(true, Relaxed);
    }
    real.call()?;
    if kind == CU_MEM_HANDLE_TYPE_FABRIC
        && let (Some(process), Some(fabric)) = (managed_process::current(), shareable.get())
    {
        process.memory.physical.lock().export(handle, fabric);
    }
    Ok(())
}

/// Forwards `cuMemImportFromShareableHandle`.
pub fn import(
    real: Real<'_, impl FnOnce() -> CUresult>,
    handle: Out<CUmemGenericAllocationHandle>,
    shareable: In<FabricHandle>,
    kind: u32,
) -> CUresult {
    real.call()?;
    if let (Some(process), Some(handle)) = (managed_process::current(), handle.get()) {
        process.memory.taken.store(true, Relaxed);
        let named = kind == CU_MEM_HANDLE_TYPE_FABRIC;
        let fabric = named.then(|| shareable.get()).flatten();
        process.memory.physical.lock().import(handle, fabric);
    }
    Ok(())
}
