//! What the driver says of a device's memory, brought into agreement with the quota.
//!
//! Nothing is changed where no limit holds. Where one does, the total is the quota (under a limit that is shared with other
//! processes, what this one holds and what is left), the free memory what quota and device both leave: free + used ≤ total, and 0 free for a process over its quota. A result the caller does not want (NULL)
//! stays untouched.

use super::account;
use gpushare_abi::{Amount, Out, errors::CUresult, types::CUdevice};
use shm_layout::Ledger;

use crate::hooks::Real;

/// `cuMemGetInfo`.
#[inline(always)]
pub fn info(
    real: Real<'_, impl FnOnce() -> CUresult>,
    free: Out<impl Width>,
    total: Out<impl Width>,
) -> CUresult {
    let account = account::of_caller(&real);
    real.call()?;
    if let Some(outlook) = account.and_then(|account| account.ledger().outlook()) {
        lower(free, outlook.room);
        lower(total, outlook.whole);
    }
    Ok(())
}

/// `cuDeviceTotalMem`.
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

/// The most a process may believe to be free.
pub fn room(ledger: Ledger<'_>) -> u64 {
    ledger.room().unwrap_or(u64::MAX)
}

/// The most a process may believe its device to have.
pub fn whole(ledger: Ledger<'_>) -> u64 {
    ledger.outlook().map_or(u64::MAX, |outlook| outlook.whole)
}

/// A number of bytes as a call gives it: as many as fit.
pub trait Width: Amount {
    /// The number, or the largest that fits.
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
