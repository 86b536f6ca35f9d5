//! Hooks for large allocations that can be evicted without the driver's checkpoint (`gpushare run --swappable`).
//!
//! The program sees the same as after `cuMemAlloc`, with these differences:
//!
//! | case | difference |
//! |---|---|
//! | its size on the device | rounded up to the driver's granularity, 2 MiB, as for large allocations of `cuMemAlloc`; the requested bytes are charged |
//! | `cuIpcGetMemHandle` | refused by the driver; one line says why |
//! | a descriptor of it (`cuMemGetHandleForAddressRange`) | keeps the allocation on the device for good |
//! | `cuMemRetainAllocationHandle` | refused, as for memory from `cuMemAlloc` |
//! | allocated while a capture is under way | plain memory: the driver decides about such calls |
//! | freed while a capture is under way | freed after the capture, if the driver allows a free |
//! | the driver cannot make it | plain memory, and one line says so |

use std::sync::atomic::Ordering::Relaxed;

use super::{account, allocate::granted_by, backing, import};
use gpushare_abi::{
    In, Out,
    errors::{
        CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_SUPPORTED,
        CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult,
    },
    types::{CUcontext, CUdeviceptr},
};

use crate::{
    driver::Symbol,
    hooks::Real,
    managed_process::{self, ManagedProcess},
    notice,
    sys::caller_state::Uncancelled,
    tracking::{record::Kind, swappable::Block},
};

/// Makes a swappable allocation for `cuMemAlloc`. Returns its address, or `None` if plain memory must be used.
#[cold]
#[inline(never)]
pub fn alloc(bytes: u64, symbol: Symbol) -> Option<Result<CUdeviceptr, CUerror>> {
    let _uncancelled = Uncancelled::enter();
    let account = account::of_current_device()?;
    let process = account.process();
    free_late(process);
    let mut start = 0;
    let made = granted_by(account, symbol, bytes, || {
        start = backing::make(process, account.ordinal(), account.context(), bytes)?;
        Ok(())
    });
    match made {
        Ok(charged) => {
            account.keep(start, charged, Kind::Swappable);
            Some(Ok(start))
        }
        Err(CUDA_ERROR_OUT_OF_MEMORY) => Some(Err(CUDA_ERROR_OUT_OF_MEMORY)),
        // For any other error the driver is called for plain memory.
        Err(error) => {
            if matches!(
                error,
                CUDA_ERROR_NOT_SUPPORTED | CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_NOT_FOUND
            ) {
                process.memory.swappable.refuse();
                notice::once(
                    notice::Cause::Swappable,
                    format_args!(
                        "--swappable has no effect: the driver does not map memory here (error {}); eviction is by checkpoint",
                        error.code()
                    ),
                );
            }
            None
        }
    }
}

/// Frees the allocations whose free a capture has delayed.
pub fn free_late(process: &ManagedProcess) {
    let late = &process.memory.swappable;
    if !process.environment.swappable {
        return;
    }
    let Some(_held_off) = process.memory.captures.hold_off() else {
        return;
    };
    for (start, record) in late.take_late() {
        match backing::unmake(process, start) {
            Ok(()) => account::release_record(process, &record),
            // Tried again at the next call.
            Err(_) => late.put_off(start, record),
        }
    }
}

/// Returns the swappable allocation that contains an address.
fn at(address: CUdeviceptr) -> Option<(&'static ManagedProcess, Block)> {
    let process = managed_process::current().filter(|process| process.environment.swappable)?;
    Some((process, process.memory.swappable.at(address)?))
}

/// Returns true if an address is in swappable memory.
pub fn has(address: CUdeviceptr) -> bool {
    at(address).is_some()
}

/// Forwards `cuMemGetAddressRange`, and corrects the range to the requested bytes.
pub fn range(
    real: Real<'_, impl FnOnce() -> CUresult>,
    base: Out<CUdeviceptr>,
    size: Out<usize>,
    address: CUdeviceptr,
) -> CUresult {
    real.call()?;
    if let Some((_, block)) = at(address) {
        base.set(block.start);
        size.set(block.bytes as usize);
    }
    Ok(())
}

/// Returns the value of a pointer attribute as for memory from `cuMemAlloc`.
fn said(block: &Block, attribute: u32) -> Option<u64> {
    const CONTEXT: u32 = 1;
    const RANGE_START: u32 = 11;
    const RANGE_SIZE: u32 = 12;
    match attribute {
        CONTEXT => Some(block.context as u64),
        RANGE_START => Some(block.start),
        RANGE_SIZE => Some(block.bytes),
        _ => None,
    }
}

/// Forwards `cuPointerGetAttribute`.
pub fn attribute(
    real: Real<'_, impl FnOnce() -> CUresult>,
    data: Out<u64>,
    attribute: u32,
    address: CUdeviceptr,
) -> CUresult {
    let known = at(address).and_then(|(_, block)| said(&block, attribute));
    let Some(known) = known.filter(|_| !data.is_null()) else {
        return real.call();
    };
    // A driver reports an error for some attributes of such memory.
    let result = real.call();
    data.set(known);
    match result {
        Err(CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_NOT_SUPPORTED) => Ok(()),
        other => other,
    }
}

/// Forwards `cuPointerGetAttributes`.
pub fn attributes(
    real: Real<'_, impl FnOnce() -> CUresult>,
    count: u32,
    attributes: In<u32>,
    data: In<Out<u64>>,
    address: CUdeviceptr,
) -> CUresult {
    real.call()?;
    if let Some((_, block)) = at(address) {
        for index in 0..count as usize {
            let which = attributes.nth(index).and_then(|which| said(&block, which));
            if let (Some(value), Some(place)) = (which, data.nth(index)) {
                place.set(value);
            }
        }
    }
    Ok(())
}

/// Forwards `cuCtxEnablePeerAccess`, after which the current device can access the peer's memory.
pub fn enable_peer(real: Real<'_, impl FnOnce() -> CUresult>, peer: CUcontext) -> CUresult {
    let (process, thread) = (real.process(), real.thread());
    real.call()?;
    if let Some(process) = process.filter(|process| process.environment.swappable)
        && let Some((_, here)) = process.home_of_thread(thread)
        && let Some(there) = process.ordinal_of(peer)
        && let Ok(there) = u8::try_from(there)
    {
        backing::let_reach(process, here, there);
    }
    Ok(())
}

/// Forwards `cuIpcGetMemHandle`.
pub fn show(real: Real<'_, impl FnOnce() -> CUresult>, address: CUdeviceptr) -> CUresult {
    if !has(address) {
        return import::shown(real);
    }
    notice::once(
        notice::Cause::Shown,
        format_args!(
            "cuIpcGetMemHandle cannot share memory that is swappable; start the program without --swappable"
        ),
    );
    real.call()
}

/// Forwards `cuMemGetHandleForAddressRange`. The owner of the descriptor, a network card for instance, uses the physical memory
/// itself, so it must stay, and no checkpoint takes it either.
pub fn show_range(real: Real<'_, impl FnOnce() -> CUresult>, address: CUdeviceptr) -> CUresult {
    let process = real.process();
    real.call()?;
    if let Some(process) = process {
        process.memory.shown.store(true, Relaxed);
    }
    if let Some((process, _)) = at(address) {
        process.memory.swappable.fix(address);
    }
    Ok(())
}
