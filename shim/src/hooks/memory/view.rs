//! Hooks that report a device's memory in agreement with the quota.
//!
//! Without a limit nothing is changed. With a limit, the total is the quota; under a limit shared with other
//! processes, it is the memory that this one holds plus the rest of the limit. The free memory is the lesser of the
//! rest of the limit and the device's free memory, so that free + used ≤ total, and 0 for a process over its quota. A
//! result that the caller does not want (NULL) is not written.

use super::account;
use gpushare_abi::{Amount, Out, errors::CUresult, types::CUdevice};
use shm_layout::Ledger;

use crate::hooks::Real;

/// Forwards `cuMemGetInfo`.
#[inline(always)]
pub fn info(
    real: Real<'_, impl FnOnce() -> CUresult>,
    free: Out<impl Width>,
    total: Out<impl Width>,
) -> CUresult {
    let Some(account) = account::of_caller(&real) else {
        return real.call();
    };
    real.call()?;
    if let Some(outlook) = account.ledger().outlook() {
        lower(free, outlook.room);
        lower(total, outlook.whole);
    }
    Ok(())
}

/// Forwards `cuDeviceTotalMem`.
pub fn device_total(
    real: Real<'_, impl FnOnce() -> CUresult>,
    bytes: Out<impl Width>,
    device: CUdevice,
) -> CUresult {
    real.call()?;
    if let Some(account) = account::of_device(device) {
        lower(bytes, whole(account.ledger()));
    }
    Ok(())
}

/// Returns the most bytes to report as free.
pub fn room(ledger: &Ledger<'_>) -> u64 {
    ledger.room().unwrap_or(u64::MAX)
}

/// Returns the most bytes to report as the device's total.
pub fn whole(ledger: &Ledger<'_>) -> u64 {
    ledger.outlook().map_or(u64::MAX, |outlook| outlook.whole)
}

/// The type in which a call returns a number of bytes.
pub trait Width: Amount {
    /// Returns `bytes`, or the largest value of the type.
    fn at_most(bytes: u64) -> Self;
}

impl Width for usize {
    fn at_most(bytes: u64) -> Self {
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl Width for u32 {
    fn at_most(bytes: u64) -> Self {
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

fn lower<W: Width>(place: Out<W>, most: u64) {
    if place.get().is_some_and(|value| value.wide() > most) {
        place.set(W::at_most(most));
    }
}
