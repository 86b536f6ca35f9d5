//! Hooks for linear device memory: plain, pitched and managed allocations, and their free.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gpushare_abi::{Amount, Out, errors::CUresult, types::CUdeviceptr};

use super::{
    account::{self, Account},
    allocate::{allocate, granted},
    swappable,
};
use crate::{
    driver_query::memory as ask, hooks::Real, managed_process::ManagedProcess,
    tracking::record::Kind,
};

/// The unit to which the driver rounds a pitch, as last observed; 512 bytes on every known device.
static PITCH_UNIT: AtomicU64 = AtomicU64::new(512);

/// Smallest swappable allocation, in bytes: smaller ones share blocks of the driver.
const LEAST: u64 = 2 << 20;

/// Forwards `cuMemAlloc`, charged to the current device. In a swappable process the shim maps large allocations
/// itself.
#[inline(always)]
pub fn alloc(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    dptr: Out<impl Amount>,
    bytes: impl Amount,
) -> CUresult {
    let Some(account) = account::of_caller(&real) else {
        return account::unaccounted(real);
    };
    let bytes = bytes.wide();
    if is_swappable(account, dptr, bytes) {
        real.moves(bytes);
        if let Some(made) = swappable::alloc(bytes, real.symbol()) {
            real.answered(made.map(|_| ()));
            return made.map(|start| dptr.set(Amount::narrow(start)));
        }
    }
    let key = || Some(dptr.get()?.wide());
    allocate(real, Some(account), Some(bytes), Kind::Linear, key)
}

/// Returns true if an allocation is to be made swappable.
#[inline(always)]
fn is_swappable<A: Amount>(account: Account, out: Out<A>, bytes: u64) -> bool {
    account.process().environment.swappable
        && bytes >= LEAST
        && size_of::<A>() == size_of::<CUdeviceptr>()
        && may_be_swappable(account.process(), out.is_null())
}

#[cold]
#[inline(never)]
fn may_be_swappable(process: &ManagedProcess, no_place: bool) -> bool {
    !no_place && !process.memory.swappable.is_refused() && !process.memory.captures.is_any()
}

/// Forwards `cuMemAllocManaged`, charged to the current device, where the memory is first placed.
pub fn alloc_managed(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    dptr: Out<CUdeviceptr>,
    bytes: usize,
) -> CUresult {
    let account = account::of_caller(&real);
    let bytes = Some(bytes as u64);
    allocate(real, account, bytes, Kind::Managed, || dptr.get())?;
    if let Some(account) = account {
        account.process().memory.managed.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Forwards `cuMemAllocPitch`. The driver chooses the pitch, which is known only afterwards.
///
/// The last observed rounding is reserved first, and the difference to the actual pitch is released or reserved. If
/// the difference is denied, the allocation is freed and the call returns out of memory.
pub fn alloc_pitch(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    dptr: Out<impl Amount>,
    pitch: Out<impl Amount>,
    width: impl Amount,
    height: impl Amount,
) -> CUresult {
    let Some(account) = account::of_current_device() else {
        return account::unaccounted(real);
    };
    let symbol = real.symbol();
    let rows = height.wide();
    let place = || dptr.get().map(Amount::wide);
    let expected = width
        .wide()
        .checked_next_multiple_of(PITCH_UNIT.load(Relaxed))
        .and_then(|pitch| pitch.checked_mul(rows))
        .unwrap_or(u64::MAX);
    real.moves(width.wide().saturating_mul(rows));
    let charged = granted(account, &real, expected)?;
    let pitch = pitch.get().map_or(0, Amount::wide);
    let Some(bytes) = pitch.checked_mul(rows).filter(|bytes| *bytes != expected) else {
        account.keep(place().unwrap_or(0), charged, Kind::Linear);
        return Ok(());
    };
    PITCH_UNIT.store(1 << pitch.trailing_zeros().min(20), Relaxed);
    if bytes < expected {
        account.ledger().release(charged - bytes);
    } else {
        let rest = account.reserve(bytes - expected, symbol).inspect_err(|_| {
            let _ = place().map(ask::free);
            account.ledger().release(charged);
        })?;
        rest.commit();
    }
    account.keep(place().unwrap_or(0), bytes, Kind::Linear);
    Ok(())
}

/// Forwards `cuMemFree`, also of stream-ordered memory, whose pool may be on the host or belong to another process.
#[inline(always)]
pub fn free(real: Real<'_, impl FnOnce() -> CUresult>, dptr: impl Amount) -> CUresult {
    account::free_linear(real, dptr.wide(), |_, _| || {})
}
