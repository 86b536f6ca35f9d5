//! Hooks that report a device's memory in agreement with the quota.
//!
//! Without a limit nothing is changed. With a limit, the total is the quota; under a limit shared with other
//! processes, it is the memory that this one holds plus the rest of the limit. The free memory is the lesser of the
//! rest of the limit and the device's free memory, so that free + used ≤ total, and 0 for a process over its quota. A
//! result that the caller does not want (NULL) is not written.
//!
//! Where other processes make room for an allocation (the process is swappable, it waits for memory, or the device is
//! overcommitted), what they hold says nothing about the memory that this one can get. There the view is steady: it is
//! that of a process that is alone, and depends on the limits and on the process's own memory. A program that measures
//! how its own memory grows, as inference servers do when they size their caches, is not misled by others. The view is
//! steady during an eviction by checkpoint too, because the driver answers no such call then.

use std::sync::atomic::Ordering::Relaxed;

use super::account;
use gpushare_abi::{Amount, Out, errors::CUresult, types::CUdevice};
use shm_layout::Outlook;

use crate::{
    eviction::{self, A_CONTEXT},
    hooks::Real,
    managed_process::{Device, ManagedProcess},
};

/// Divisor: a context counts with at most this part of its device in a steady view.
const PART: u64 = 16;

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
    let (process, device) = (account.process(), account.device());
    if eviction::is_checkpointed(process) {
        real.answered(Ok(()));
    } else {
        real.call()?;
    }
    if let Some(alone) = steady(process, device) {
        free.set(Width::at_most(alone.room));
        total.set(Width::at_most(alone.whole));
    } else if let Some(outlook) = account.ledger().outlook() {
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
        let seen = steady(account.process(), account.device());
        if let Some(outlook) = seen.or_else(|| account.ledger().outlook()) {
            lower(bytes, outlook.whole);
        }
    }
    Ok(())
}

/// Returns the view of a process that is alone, if the process sees its device like that.
pub fn steady(process: &ManagedProcess, device: &Device) -> Option<Outlook> {
    let is_steady = device.sees_alone.load(Relaxed) || eviction::is_checkpointed(process);
    is_steady.then(|| {
        let own = eviction::own_bytes(process, device);
        let alone = device.ledger.outlook_alone(own);
        let total = device.total_bytes;
        // The context is in no account; a constant for it is the same for every process and at every time.
        let context = A_CONTEXT.min(total / PART);
        Outlook {
            room: alone
                .room
                .min(total.saturating_sub(context).saturating_sub(own)),
            whole: alone.whole,
        }
    })
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
