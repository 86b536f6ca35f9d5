//! Holds back what takes memory that is in no account, such as a context, while memory of another process comes back to the device.
//!
//! A restore that finds its room taken loses the memory. Where the device has no room for both, the call waits until the other
//! process is back, for ten seconds at most; then the driver decides.

use std::time::Duration;

use gpushare_abi::types::CUdevice;
use shm_layout::clock;

use crate::{
    eviction::{self, A_CONTEXT},
    managed_process::{self, Device},
    sys::futex,
    thread::{self, Thread},
};

/// A pool takes memory of a device in pieces of at least this size, however little is allocated from it.
pub const A_POOLS_PIECE: u64 = 32 << 20;
/// The longest wait.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Between two looks.
const NAP: Duration = Duration::from_millis(10);

/// Before a context is made on a device.
pub fn wait_before_a_context(ordinal: CUdevice) {
    let thread = thread::current();
    if let Some((process, thread)) = managed_process::current().zip(thread)
        && let Some(device) = process.device(ordinal)
    {
        wait(device, thread, A_CONTEXT);
    }
}

/// Before so much is taken that is in no account.
pub fn wait(device: &Device, thread: &Thread, bytes: u64) {
    let ledger = &device.ledger;
    if ledger.leaves_room_for_returns(bytes) || thread.see_who_started_it() {
        return;
    }
    let until = clock::now().saturating_add(PATIENCE_NS);
    while !ledger.leaves_room_for_returns(bytes) && clock::now() < until {
        thread.outside(|| futex::nap(NAP));
        // An error that it gives is given by the call itself too.
        if thread::is_suspended() && eviction::wait_until_resumed(thread).is_err() {
            return;
        }
    }
}
