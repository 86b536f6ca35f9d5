//! The caller's state that the shim must not change: `errno`, cancellation and the thread sanitizer.
//!
//! An [`Errno`] keeps the caller's `errno` as the caller, or the driver, left it.
//!
//! An [`Uncancelled`] keeps the thread from being cancelled, and from being watched by a sanitizer. `pthread_cancel`
//! ends a thread at its next blocking libc call by unwinding its stack, which may be in the middle of the shim's work.
//! So during the shim's waits and most calls of the driver the cancellation waits too; it takes effect at the next
//! cancellation point of the program. A few hooks are quicker than that and need no such scope
//! ([`Symbol::may_be_cancelled`](crate::driver::Symbol::may_be_cancelled)): [`boundary`](super::boundary) lets every
//! unwinding pass that begins in the driver.
//!
//! An [`Unwatched`] hides the shim from the thread sanitizer of a program built with it. The sanitizer sees the C
//! library's functions that the shim calls (`memcpy`, `free`), but not the atomics by which its threads synchronise.
//! It would report races that do not exist, and end the program with an error. It has functions that mark code as not
//! to be watched.
#![allow(
    unsafe_code,
    reason = "libc keeps the number; libc keeps the state; calls the sanitizer's functions by address"
)]

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
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
