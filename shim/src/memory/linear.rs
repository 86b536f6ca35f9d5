//! Linear device memory: plain, pitched, managed, and its free.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gpushare_abi::Out;
use gpushare_abi::errors::CUresult;
use gpushare_abi::types::CUdeviceptr;

use crate::real::Real;

use super::account;
use super::ask;
use super::record::Kind;

/// What the driver rounds a pitch up to, as last seen; 512 on every device so far.
static PITCH_UNIT: AtomicU64 = AtomicU64::new(512);

/// `cuMemAlloc`.
pub fn alloc(
    real: Real<'_, impl FnOnce() -> CUresult>,
    dptr: Out<CUdeviceptr>,
    bytes: usize,
) -> CUresult {
    account::allocate(
        real,
        account::here(),
        Some(bytes as u64),
        Kind::Linear,
        || dptr.get(),
    )
}

/// `cuMemAllocManaged`. Charged to the current device, where it is first at home.
pub fn alloc_managed(
    real: Real<'_, impl FnOnce() -> CUresult>,
    dptr: Out<CUdeviceptr>,
    bytes: usize,
    _flags: u32,
) -> CUresult {
    account::allocate(
        real,
        account::here(),
        Some(bytes as u64),
        Kind::Linear,
        || dptr.get(),
    )
}

/// `cuMemAllocPitch`: rows of the driver's own pitch, which is known only afterwards.
///
/// What the last pitch was rounded to is set aside; the difference to the pitch that comes is given back or set aside as
/// well. If that is denied, the allocation goes back to the driver and the answer is out of memory.
pub fn alloc_pitch(
    real: Real<'_, impl FnOnce() -> CUresult>,
    dptr: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    _element: u32,
) -> CUresult {
    let Some(account) = account::here() else {
        return real.call();
    };
    let symbol = real.symbol();
    let rows = height as u64;
    let expected = (width as u64)
        .checked_next_multiple_of(PITCH_UNIT.load(Relaxed))
        .and_then(|pitch| pitch.checked_mul(rows))
        .unwrap_or(u64::MAX);
    let reservation = account.reserve(expected, symbol)?;
    real.call()?;
    let pitch = pitch.get().map_or(0, |pitch| pitch as u64);
    let Some(bytes) = pitch.checked_mul(rows).filter(|bytes| *bytes != expected) else {
        account.keep(dptr.get().unwrap_or(0), reservation.commit(), Kind::Linear);
        return Ok(());
    };
    PITCH_UNIT.store(1 << pitch.trailing_zeros().min(20), Relaxed);
    if bytes < expected {
        account.ledger().release(reservation.commit() - bytes);
    } else {
        let rest = account.reserve(bytes - expected, symbol).inspect_err(|_| {
            let _ = dptr.get().map(ask::free);
        })?;
        rest.commit();
        reservation.commit();
    }
    account.keep(dptr.get().unwrap_or(0), bytes, Kind::Linear);
    Ok(())
}

/// `cuMemFree`: also of stream-ordered memory, whose pool may be on the host.
pub fn free(real: Real<'_, impl FnOnce() -> CUresult>, dptr: CUdeviceptr) -> CUresult {
    account::free_either(real, dptr, Kind::Linear, Kind::Host)
}
