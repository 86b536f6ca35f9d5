//! The delay of calls that use memory in no account, such as a new context, while memory of another process returns
//! to the device.
//!
//! A restore that finds its room taken loses the memory. If the device has no room for both, the call waits until the
//! other process is restored, at most ten seconds; then the driver decides.

use std::time::Duration;

use gpushare_abi::types::CUdevice;
use shm_layout::clock;

use crate::{
    driver_query::context,
    eviction::{self, A_CONTEXT},
    managed_process::{self, Device},
    sys::{caller_state::Uncancelled, futex},
    thread::{self, Thread},
};

/// Smallest block in bytes that a pool allocates from a device, however small the allocation.
pub const A_POOLS_PIECE: u64 = 32 << 20;
/// Longest wait, in nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Polling period of the wait.
const NAP: Duration = Duration::from_millis(10);

/// Waits before a context is created on a device.
pub fn wait_before_a_context(ordinal: CUdevice) {
    let thread = thread::current();
    if let Some((process, thread)) = managed_process::current().zip(thread)
        && let Some(device) = process.device(ordinal)
    {
        wait(device, thread, A_CONTEXT);
    }
}

/// Waits before a device's primary context is retained, unless it is active: then the call uses no memory.
pub fn wait_before_a_primary(ordinal: CUdevice) {
    if !context::primary_is_active(ordinal) {
        wait_before_a_context(ordinal);
    }
}

/// Waits before `bytes` are used that are in no account.
pub fn wait(device: &Device, thread: &Thread, bytes: u64) {
    let ledger = &device.ledger;
    if ledger.leaves_room_for_returns(bytes) {
        return;
    }
    let _uncancelled = Uncancelled::enter();
    if thread.see_who_started_it() {
        return;
    }
    let until = clock::now().saturating_add(PATIENCE_NS);
    while !ledger.leaves_room_for_returns(bytes) && clock::now() < until {
        thread.outside(|| futex::nap(NAP));
        // The call itself returns the same error.
        if thread::is_suspended() && eviction::wait_until_resumed(thread).is_err() {
            return;
        }
    }
}
