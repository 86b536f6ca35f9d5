//! The application's context is lost: the driver gave an answer after which nothing works any more.
//!
//! A kernel of the process did something illegal, or, under MPS, a kernel of another client of the same server. The first
//! such answer is published with the call that got it, so that the tools can say which process began it. A launch by the
//! fast path is not looked at: whoever launches also waits, copies or allocates.

use std::sync::atomic::Ordering::Relaxed;

use gpushare_abi::{errors::CUerror, types::CUdevice};
use shm_layout::clock;

use crate::{
    current_context,
    driver::Symbol,
    managed_process::{self, Device, ManagedProcess},
    sys::caller_state::Errno,
    thread,
};

/// Whether an answer means that the context is lost.
fn is_final(code: u32) -> bool {
    // The codes of which the driver's manual says that the process must end: memory and link errors, what a kernel did,
    // what MPS answers to the clients of a server that failed.
    matches!(
        code,
        214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 806 | 810
    )
}

/// The driver answered this error.
#[cold]
#[inline(never)]
pub fn check(symbol: Symbol, error: CUerror) {
    let code = error.code();
    if !is_final(code) {
        return;
    }
    let _errno = Errno::keep();
    let Some(process) = managed_process::current() else {
        return;
    };
    let bound = thread::current().and_then(|thread| thread.bound());
    let ordinal = match bound {
        Some((_, ordinal)) => Some(ordinal.into()),
        None => ordinal_here(process),
    };
    // Which device it is may be in doubt; that it happened is not.
    let device = ordinal.and_then(|ordinal| process.device(ordinal));
    if let Some(device) = device.or(process.devices.first()) {
        let call = Some(symbol.code());
        let idle_ms = idle_ms(process, device);
        let registration = process.registration;
        registration.lose(device.entry, code as u16, call, idle_ms);
    }
}

/// The device that the calling thread is on, if the driver may be asked: the call that failed may be over.
fn ordinal_here(process: &ManagedProcess) -> Option<CUdevice> {
    let thread = thread::attached();
    if thread.is_in_a_hook() {
        return current_context::current_ordinal(process);
    }
    let ordinal = thread
        .enter_ungated()
        .then(|| current_context::current_ordinal(process));
    thread.end();
    ordinal.flatten()
}

/// For how long nothing was submitted to a device. Under MPS all clients get the same answer: those that had no work there
/// did not cause it.
fn idle_ms(process: &ManagedProcess, device: &Device) -> u32 {
    let counters = process.registration.count(device.entry);
    if thread::launches(device.ordinal) != counters.launches.load(Relaxed) {
        return 0; // since the keeper's last look
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
