//! Detection of a lost context: the driver returned an error after which no call works.
//!
//! A kernel of the process, or under MPS a kernel of another client of the same server, did something illegal. The
//! first such error is published with the call that returned it, so that the tools can show which process caused it.
//! A launch by the fast path publishes nothing: a program that launches also waits, copies or allocates.

use std::sync::atomic::Ordering::Relaxed;

use gpushare_abi::{errors::CUerror, types::CUdevice};
use shm_layout::clock;

use crate::{
    driver::Symbol,
    managed_process::{self, Device, ManagedProcess},
    sys::caller_state::{Errno, Uncancelled},
    thread,
};

/// Returns true if an error code means that the context is lost.
fn is_final(code: u32) -> bool {
    // The errors after which, according to the driver's manual, the process must end: memory and link errors, errors
    // of kernels, and errors that MPS returns to the clients of a failed server.
    matches!(
        code,
        214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 806 | 810
    )
}

/// Publishes the loss of the context if the error means that.
#[cold]
#[inline(never)]
pub fn check(symbol: Symbol, error: CUerror) {
    let code = error.code();
    if !is_final(code) {
        return;
    }
    let _errno = Errno::keep();
    let _uncancelled = Uncancelled::enter();
    let Some(process) = managed_process::current() else {
        return;
    };
    let bound = thread::current().and_then(|thread| thread.bound());
    let ordinal = match bound {
        Some((_, ordinal)) => Some(ordinal.into()),
        None => ordinal_here(process),
    };
    // The device may be uncertain, but the loss is not.
    let device = ordinal.and_then(|ordinal| process.device(ordinal));
    if let Some(device) = device.or(process.devices.first()) {
        let call = Some(symbol.code());
        let idle_ms = idle_ms(process, device);
        let registration = process.registration;
        registration.lose(device.entry, code as u16, call, idle_ms);
    }
}

/// Returns the ordinal of the calling thread's device, if the driver may be queried. The failed call may have left
/// the driver.
fn ordinal_here(process: &ManagedProcess) -> Option<CUdevice> {
    let thread = thread::attached();
    if thread.is_in_a_hook() {
        return process.current_ordinal();
    }
    let ordinal = thread.enter_ungated().then(|| process.current_ordinal());
    thread.end();
    ordinal.flatten()
}

/// Returns the time since the last submission to a device, in milliseconds. Under MPS all clients get the same error;
/// those without recent work did not cause it.
fn idle_ms(process: &ManagedProcess, device: &Device) -> u32 {
    let counters = process.registration.count(device.entry);
    if thread::launches(device.ordinal) != counters.launches.load(Relaxed) {
        return 0; // since the keeper's last poll
    }
    let last = counters.last_submit_ns.load(Relaxed);
    let idle_ns = clock::now().saturating_sub(last);
    u32::try_from(idle_ns / 1_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::is_final;

    #[test]
    fn errors_that_a_program_can_go_on_after_are_not_final() {
        for code in [1, 2, 201, 400, 600, 701, 720, 801, 805, 807, 808, 809, 900] {
            assert!(!is_final(code), "{code}");
        }
        for code in [700, 719, 806, 810] {
            assert!(is_final(code), "{code}");
        }
    }
}
