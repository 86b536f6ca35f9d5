//! The answer to the address sanitizer, which asks the program that it is in for options.
#![allow(unsafe_code, reason = "exports a name of the sanitizer's")]

use std::ffi::{CStr, c_char};

/// Answers with the default options. The sanitizer's library refuses to work behind another one in `LD_PRELOAD`, which the shim always is;
/// it needs to come before libc only. A program's own answer, and its ASAN_OPTIONS, stand above this one.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __asan_default_options() -> *const c_char {
    // Called before this library's constructors, perhaps before its relocations.
    const OPTIONS: &CStr = c"verify_asan_link_order=0";
    OPTIONS.as_ptr()
}
