//! The thread sanitizer, in a program that was made with it.
//!
//! It sees the C library's functions that we call (`memcpy`, `free`), and none of the plain words by which our threads agree, so
//! it would report races that are none, and end the program with an error. It offers a way to be told that a stretch of code
//! is not to be watched.
#![allow(unsafe_code, reason = "calls the sanitizer's functions by address")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    ptr::null_mut,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use super::libc_dl;

const BEGINS: [&CStr; 2] = [c"AnnotateIgnoreReadsBegin", c"AnnotateIgnoreWritesBegin"];
const ENDS: [&CStr; 2] = [c"AnnotateIgnoreReadsEnd", c"AnnotateIgnoreWritesEnd"];

static FUNCTIONS: [[AtomicPtr<c_void>; 2]; 2] =
    [const { [const { AtomicPtr::new(null_mut()) }; 2] }; 2];
static PRESENT: AtomicBool = AtomicBool::new(false);

/// Looks whether it is there. It is all there or nothing is.
pub fn find() {
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
