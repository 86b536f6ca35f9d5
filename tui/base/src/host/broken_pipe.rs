//! An ignored SIGPIPE, with which systemd starts services, is passed on to the programs that this one starts. Rust's runtime ignores the signal in any case
//! and gives a program that it starts the default, so a server that survives its clients would end with the first that goes.
#![allow(
    unsafe_code,
    reason = "asks for a signal's action before main, and sets it before exec"
)]

use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the action is written to a local variable.
    unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeros are an action too.
    let action = unsafe { action.assume_init() };
    WAS_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Relaxed);
}

/// Makes a program ignore SIGPIPE if this one was started so.
pub fn pass_on(command: &mut Command) {
    if WAS_IGNORED.load(Relaxed) {
        let ignore = || {
            // SAFETY: the call is allowed between fork and exec.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            Ok(())
        };
        // SAFETY: it makes that one call.
        unsafe { command.pre_exec(ignore) };
    }
}
