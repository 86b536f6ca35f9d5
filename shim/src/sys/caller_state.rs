//! The caller's `errno`: our own work leaves it as the caller, or the driver, left it.
//!
//! A stretch of our code in which the process's thread is not cancelled, and not watched by a [sanitizer](super::sanitizer).
//!
//! `pthread_cancel` ends a thread at its next blocking libc call by unwinding its stack. That may be the driver's call,
//! or ours: an unwinding that passes through Rust's frames ends the process, or leaves a lock taken. So where
//! we wait, or wait for the driver, the cancellation waits too; it comes true at the process's own next chance.
//!
//! The thread sanitizer, in a program that was made with it.
//!
//! It sees the C library's functions that we call (`memcpy`, `free`), and none of the plain words by which our threads agree, so
//! it would report races that are none, and end the program with an error. It offers a way to be told that a stretch of code
//! is not to be watched.
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

/// What `errno` was; it is that again when this is dropped.
pub struct Errno {
    place: *mut c_int,
    value: Cell<c_int>,
}

impl Errno {
    /// As it is now, in this thread.
    #[inline(always)]
    pub fn keep() -> Self {
        // SAFETY: takes nothing; the place is this thread's as long as the thread lives.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: this thread's own number.
        let value = unsafe { *place };
        Self {
            place,
            value: Cell::new(value),
        }
    }

    /// Calls the driver: it finds `errno` as the caller left it, and what it leaves is what is kept from here on.
    #[inline(always)]
    pub fn around<T>(&self, driver: impl FnOnce() -> T) -> T {
        self.put_back();
        let answer = driver();
        // SAFETY: this thread's own number; a call of the driver ends in the thread it began in.
        self.value.set(unsafe { *self.place });
        answer
    }

    #[inline(always)]
    fn put_back(&self) {
        // SAFETY: this thread's own number.
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

/// Until it is dropped.
pub struct Uncancelled {
    before: c_int,
    _unwatched: Unwatched,
}

impl Uncancelled {
    /// From here on.
    pub fn enter() -> Self {
        let mut before = 0;
        // SAFETY: the place is ours.
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
        // SAFETY: the place is ours; the state is what it was.
        unsafe { pthread_setcancelstate(self.before, &mut ours) };
    }
}

const BEGINS: [&CStr; 2] = [c"AnnotateIgnoreReadsBegin", c"AnnotateIgnoreWritesBegin"];
const ENDS: [&CStr; 2] = [c"AnnotateIgnoreReadsEnd", c"AnnotateIgnoreWritesEnd"];

static FUNCTIONS: [[AtomicPtr<c_void>; 2]; 2] =
    [const { [const { AtomicPtr::new(null_mut()) }; 2] }; 2];
static PRESENT: AtomicBool = AtomicBool::new(false);

/// Looks whether it is there. It is all there or nothing is.
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
    // ORDER: publishes the addresses.
    PRESENT.store(true, Release);
}

/// A stretch in which the calling thread is not watched.
pub struct Unwatched {
    is_told: bool,
}

impl Unwatched {
    /// From here on, until it is dropped.
    #[inline(always)]
    pub fn enter() -> Self {
        // ORDER: pairs with the Release in `find`; the addresses are there.
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
        // SAFETY: a file's name and a line, of which nothing is asked.
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
