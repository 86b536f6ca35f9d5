//! Hooks for calls that need device memory in no account: the code of a module or a kernel, which the driver loads when it
//! is first needed, and its own data for streams, events and mappings.
//!
//! On a full device the driver refuses such a call, and programs end, because only allocations are expected to fail. So
//! the call waits like an allocation, and is made again: see [`InNoAccount`].

use gpushare_abi::errors::CUresult;

use super::allocate::InNoAccount;
use crate::hooks::Real;

/// Forwards a call that may load code, or needs other memory that is in no account.
pub fn load(real: Real<'_, impl FnOnce() -> CUresult + Copy>) -> CUresult {
    forward(&real)
}

/// Calls the driver, again once a full device has room.
#[inline(always)]
pub fn forward(real: &Real<'_, impl FnOnce() -> CUresult + Copy>) -> CUresult {
    InNoAccount::code(real.symbol()).call(|| real.again())
}
