//! The panic boundary: a panic of the shim is caught, and the unwinding of the application passes.
//!
//! The driver may call a function of the application on the calling thread: the callback of
//! `cuOccupancyMaxPotentialBlockSize`, a callback for its log, the destructor of a user object. The function may leave by
//! an exception of C++, or end its thread by `pthread_exit`, which unwinds the stack as well. `catch_unwind` alone would end
//! the process there. So a function in assembly stands below it and stops an unwinding that is no panic. All frames
//! of the shim above are then left as usual, their guards are dropped, and the unwinding goes on.
//!
//! ```text
//!   application ─▶ export ─▶ catch ─▶ catch_unwind ─▶ gpushare_pass ─▶ hook ─▶ driver ─▶ callback
//!                     ◀──── goes on ─────┘                  ◀── stopped, the hook's guards are dropped ──┘
//! ```
//!
//! On other architectures than x86-64 such an unwinding ends the process.
#![allow(
    unsafe_code,
    reason = "passes a closure through assembly, and speaks to the unwinder"
)]

#[cfg(target_arch = "x86_64")]
use std::mem::{ManuallyDrop, MaybeUninit};
use std::{
    any::Any,
    ffi::{c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A panic was caught. It is a fault of the shim.
#[derive(Debug)]
pub struct Panicked;

/// Runs `work` and catches a panic. Any other unwinding passes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let mut call = Call {
        work: ManuallyDrop::new(work),
        result: MaybeUninit::uninit(),
    };
    let run = run_of(&call);
    let place = &raw mut call;
    // SAFETY: `run` gets the variable that it expects, which outlives the call.
    let pass = || unsafe { gpushare_pass(place.cast(), run) };
    match catch_unwind(AssertUnwindSafe(pass)) {
        // SAFETY: nothing was stopped, so `run` has returned.
        Ok(exception) if exception.is_null() => Ok(unsafe { call.result.assume_init() }),
        Ok(exception) => go_on(exception),
        Err(payload) => Err(panicked(payload)),
    }
}

/// Runs `work` and catches a panic. Any other unwinding ends the process.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(panicked)
}

#[cold]
#[inline(never)]
fn panicked(_payload: Box<dyn Any + Send>) -> Panicked {
    Panicked
}

/// Prepares the shim's own copy of the unwinder. The application has another copy, which may be the first to stop at a frame of
/// the shim; then the functions of this copy end the process if its tables are empty.
pub fn prepare() {
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            argument: *mut c_void,
        ) -> c_int;
    }
    extern "C" fn ends(_context: *mut c_void, _argument: *mut c_void) -> c_int {
        const NORMAL_STOP: c_int = 4;
        NORMAL_STOP
    }
    // SAFETY: the function ignores its arguments, and ends the walk at the first frame.
    unsafe { _Unwind_Backtrace(ends, std::ptr::null_mut()) };
}

/// A call that passes through assembly: `run` takes the work, and writes the result unless it is stopped.
#[cfg(target_arch = "x86_64")]
struct Call<W, T> {
    work: ManuallyDrop<W>,
    result: MaybeUninit<T>,
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C-unwind" fn run<W: FnOnce() -> T, T>(call: *mut c_void) {
    // SAFETY: `catch` passes its variable and does not use it before this returns.
    let call = unsafe { &mut *call.cast::<Call<W, T>>() };
    // SAFETY: `catch` calls this once.
    let work = unsafe { ManuallyDrop::take(&mut call.work) };
    call.result.write(work());
}

/// Returns the function for a call, whose type has no name.
#[cfg(target_arch = "x86_64")]
fn run_of<W: FnOnce() -> T, T>(_: &Call<W, T>) -> unsafe extern "C-unwind" fn(*mut c_void) {
    run::<W, T>
}

/// Continues an unwinding that was stopped.
#[cfg(target_arch = "x86_64")]
#[cold]
fn go_on(exception: *mut c_void) -> ! {
    // SAFETY: the exception was stopped by `personality` and not deleted.
    unsafe { _Unwind_Resume_or_Rethrow(exception) };
    // No frame of the application handles the exception. Without the shim, the program would end here too.
    std::process::abort()
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C-unwind" {
    fn _Unwind_Resume_or_Rethrow(exception: *mut c_void) -> c_int;
    fn gpushare_pass(
        call: *mut c_void,
        run: unsafe extern "C-unwind" fn(*mut c_void),
    ) -> *mut c_void;
}

/// The unwinder's flags and answers, as every C++ ABI has them.
#[cfg(target_arch = "x86_64")]
mod unwinder {
    use super::*;

    pub const SEARCH: c_int = 1;
    pub const CLEANUP: c_int = 2;
    pub const HANDLER: c_int = 4;
    pub const FORCED: c_int = 8;

    pub const HANDLER_FOUND: c_int = 6;
    pub const INSTALL_CONTEXT: c_int = 7;
    pub const CONTINUE: c_int = 8;

    unsafe extern "C" {
        pub fn _Unwind_SetGR(context: *mut c_void, register: c_int, value: usize);
        pub fn _Unwind_SetIP(context: *mut c_void, address: usize);
    }
}

// Calls `run(call)`. Returns NULL, or the exception that was stopped.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.gpushare_pass,\"ax\",@progbits",
    ".hidden gpushare_pass",
    ".globl gpushare_pass",
    ".type gpushare_pass, @function",
    "gpushare_pass:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {personality}",
    "sub rsp, 8",
    ".cfi_def_cfa_offset 16",
    "call rsi",
    "xor eax, eax",
    ".hidden gpushare_stopped",
    ".globl gpushare_stopped",
    "gpushare_stopped:", // with the exception in rax
    "add rsp, 8",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    ".size gpushare_pass, . - gpushare_pass",
    ".popsection",
    personality = sym personality,
);

/// Stops every unwinding at [`gpushare_pass`] except a panic of the shim, which `catch_unwind` catches.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    use unwinder::*;
    unsafe extern "C" {
        static gpushare_stopped: u8;
    }
    if std::thread::panicking() {
        return CONTINUE;
    }
    if actions & SEARCH != 0 {
        return HANDLER_FOUND;
    }
    if actions & (HANDLER | FORCED) == 0 {
        return CONTINUE;
    }
    // SAFETY: the unwinder passes its own context; register 0 is rax.
    unsafe { _Unwind_SetGR(context, 0, exception as usize) };
    // SAFETY: as above; the address is in the frame of the context.
    unsafe { _Unwind_SetIP(context, &raw const gpushare_stopped as usize) };
    INSTALL_CONTEXT
}

/// Returns true if the unwinder is about to leave the frame whose personality it asks.
#[cfg(target_arch = "x86_64")]
pub fn leaves_frame(actions: c_int) -> bool {
    actions & unwinder::CLEANUP != 0
}

/// The answer of a personality that stops nothing.
#[cfg(target_arch = "x86_64")]
pub const CONTINUE: c_int = unwinder::CONTINUE;
