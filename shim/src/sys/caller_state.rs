//! The state of the caller that a call leaves as it was: `errno`, cancellation, the thread sanitizer, and the unwinding of its stack.
//!
//! An [`Errno`] keeps the caller's `errno` as the caller, or the driver, left it.
//!
//! An [`Uncancelled`] keeps the thread from being cancelled, and from being watched by a sanitizer. `pthread_cancel`
//! ends a thread at its next blocking libc call by unwinding its stack, which may be in the middle of the shim's work.
//! So during the shim's waits and most calls of the driver the cancellation waits too; it takes effect at the next
//! cancellation point of the program. A few hooks are quicker than that and need no such scope
//! ([`Symbol::may_be_cancelled`](crate::driver::Symbol::may_be_cancelled)): [`catch`] lets every unwinding pass
//! that begins in the driver.
//!
//! An [`Unwatched`] hides the shim from the thread sanitizer of a program built with it. The sanitizer sees the C
//! library's functions that the shim calls (`memcpy`, `free`), but not the atomics by which its threads synchronise.
//! It would report races that do not exist, and end the program with an error. It has functions that mark code as not
//! to be watched.
//!
//! [`catch`] is the panic boundary: a panic of the shim is caught, and the unwinding of the application passes. The driver
//! may call a function of the application on the calling thread: the callback of
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
    reason = "libc keeps the number and the state; calls the sanitizer's functions by address, and a closure through assembly"
)]

#[cfg(target_arch = "x86_64")]
use std::mem::{ManuallyDrop, MaybeUninit};
use std::{
    any::Any,
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::null_mut,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::sys::libc_dl;

/// The place of a thread's `errno`, for that thread.
#[derive(Clone, Copy)]
pub struct ErrnoPlace(*mut c_int);

impl ErrnoPlace {
    /// Returns the calling thread's.
    #[inline(always)]
    pub fn of_this_thread() -> Self {
        // SAFETY: no arguments; the number exists as long as the thread.
        Self(unsafe { libc::__errno_location() })
    }

    /// Keeps the present value.
    #[inline(always)]
    pub fn keep(self) -> Errno {
        // SAFETY: the number belongs to this thread.
        let value = unsafe { *self.0 };
        Errno {
            place: self.0,
            value: Cell::new(value),
        }
    }
}

/// The value of `errno`, which is restored when this is dropped.
pub struct Errno {
    place: *mut c_int,
    value: Cell<c_int>,
}

impl Errno {
    /// Keeps the present value of this thread's `errno`.
    #[inline(always)]
    pub fn keep() -> Self {
        ErrnoPlace::of_this_thread().keep()
    }

    /// Calls the driver with the caller's `errno`, and keeps the value that the driver leaves.
    #[inline(always)]
    pub fn around<T>(&self, driver: impl FnOnce() -> T) -> T {
        self.put_back();
        let answer = driver();
        // SAFETY: the number belongs to this thread; a call of the driver ends in the thread it began in.
        self.value.set(unsafe { *self.place });
        answer
    }

    #[inline(always)]
    fn put_back(&self) {
        // SAFETY: the number belongs to this thread.
        unsafe { *self.place = self.value.get() };
    }
}

impl Drop for Errno {
    #[inline(always)]
    fn drop(&mut self) {
        self.put_back();
    }
}

const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// A scope in which the thread is neither cancelled nor watched.
pub struct Uncancelled {
    before: c_int,
    _unwatched: Unwatched,
}

impl Uncancelled {
    /// Begins the scope, which ends when the result is dropped.
    pub fn enter() -> Self {
        let mut before = 0;
        // SAFETY: the result is a local variable.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self {
            before,
            _unwatched: Unwatched::enter(),
        }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = 0;
        // SAFETY: the result is a local variable; the state is the previous one.
        unsafe { pthread_setcancelstate(self.before, &mut ours) };
    }
}

const BEGINS: [&CStr; 2] = [c"AnnotateIgnoreReadsBegin", c"AnnotateIgnoreWritesBegin"];
const ENDS: [&CStr; 2] = [c"AnnotateIgnoreReadsEnd", c"AnnotateIgnoreWritesEnd"];

static FUNCTIONS: [[AtomicPtr<c_void>; 2]; 2] =
    [const { [const { AtomicPtr::new(null_mut()) }; 2] }; 2];
static PRESENT: AtomicBool = AtomicBool::new(false);

/// Looks for the sanitizer's functions; uses them only if all are present.
pub fn find_sanitizer() {
    if !libc_dl::is_there(c"__tsan_init") {
        return;
    }
    for (words, names) in FUNCTIONS.iter().zip([BEGINS, ENDS]) {
        for (word, name) in words.iter().zip(names) {
            if !libc_dl::is_there(name) {
                return;
            }
            word.store(libc_dl::of_libc(name), Relaxed);
        }
    }
    // ORDER: Release publishes the addresses.
    PRESENT.store(true, Release);
}

/// A scope in which the sanitizer does not watch the calling thread.
pub struct Unwatched {
    is_told: bool,
}

impl Unwatched {
    /// Begins the scope, which ends when the result is dropped.
    #[inline(always)]
    pub fn enter() -> Self {
        // ORDER: Acquire pairs with the Release in `find_sanitizer`; the addresses are visible.
        let is_told = PRESENT.load(Acquire);
        if is_told {
            tell(0);
        }
        Self { is_told }
    }
}

impl Drop for Unwatched {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_told {
            tell(1);
        }
    }
}

#[cold]
fn tell(which: usize) {
    type Annotate = unsafe extern "C" fn(*const c_char, c_int);
    for word in &FUNCTIONS[which] {
        // SAFETY: the sanitizer's functions of these names have this type.
        let annotate = unsafe { transmute::<*mut c_void, Annotate>(word.load(Relaxed)) };
        // SAFETY: a file's name and a line, which are not used.
        unsafe { annotate(c"gpushare".as_ptr(), 0) };
    }
}

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
pub fn prepare_unwinder() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn set(value: c_int) {
        let errno = Errno::keep();
        errno.value.set(value);
    }

    fn now() -> c_int {
        Errno::keep().value.get()
    }

    #[test]
    fn our_own_work_leaves_it_and_the_drivers_shows() {
        set(7);
        {
            let errno = Errno::keep();
            set(1);
            errno.around(|| {
                assert_eq!(now(), 7);
                set(9);
            });
            set(2);
        }
        assert_eq!(now(), 9);
        {
            let _errno = Errno::keep();
            set(3);
        }
        assert_eq!(now(), 9);
    }
}
