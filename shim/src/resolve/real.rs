//! libc's own `dlsym`, `dlvsym` and `dlopen`, behind our exports of the same names.
#![allow(unsafe_code, reason = "calls libc's own look-ups by address")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    ptr::null_mut,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use super::elf;

/// libc's `dlsym`. The trampolines read these words.
pub static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// libc's `dlvsym`.
pub static DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// libc's `dlopen`.
pub static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Finds all three, once; races find the same. Must come before any of them is used.
#[inline]
pub fn prepare() {
    // ORDER: pairs with the Release in `find_all`; the other two words are there.
    if DLOPEN.load(Acquire).is_null() {
        find_all();
    }
}

#[cold]
fn find_all() {
    DLSYM.store(find(c"dlsym", nothing_sym as *mut c_void), Relaxed);
    DLVSYM.store(find(c"dlvsym", nothing_sym as *mut c_void), Relaxed);
    let dlopen = find(c"dlopen", nothing_open as *mut c_void);
    // ORDER: publishes all three.
    DLOPEN.store(dlopen, Release);
}

/// The definition in libc, else (glibc before 2.34) in libdl, else in whatever we were linked with that has
/// `dl_iterate_phdr` (musl's libc has no name), else one that finds nothing.
fn find(name: &CStr, otherwise: *mut c_void) -> *mut c_void {
    let named = |soname: &CStr| {
        elf::visit(|object| {
            let ours = object.soname()? == soname;
            if ours { object.function(name) } else { None }
        })
    };
    let ours = libc::dl_iterate_phdr as *const () as usize;
    named(c"libc.so.6")
        .or_else(|| named(c"libdl.so.2"))
        .or_else(|| {
            elf::visit(|object| {
                if object.contains(ours) {
                    object.function(name)
                } else {
                    None
                }
            })
        })
        .unwrap_or(otherwise)
}

extern "C" fn nothing_sym(
    _handle: *mut c_void,
    _name: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    null_mut()
}

extern "C" fn nothing_open(_path: *const c_char, _flags: c_int) -> *mut c_void {
    null_mut()
}

/// libc's `dlsym`, with us as the caller.
pub fn dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    prepare();
    // SAFETY: the word holds the address of a function of this type.
    let real = unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void>(
            DLSYM.load(Relaxed),
        )
    };
    // SAFETY: a handle of libc's and a C string.
    unsafe { real(handle, name.as_ptr()) }
}

/// libc's `dlvsym`.
pub fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    prepare();
    type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    // SAFETY: the word holds the address of a function of this type.
    let real = unsafe { transmute::<*mut c_void, Dlvsym>(DLVSYM.load(Relaxed)) };
    // SAFETY: the caller's own arguments for this very function.
    unsafe { real(handle, name, version) }
}

/// libc's `dlopen`, with us as the caller.
pub fn dlopen(path: &CStr, flags: c_int) -> *mut c_void {
    prepare();
    // SAFETY: the word holds the address of a function of this type.
    let real = unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void>(
            DLOPEN.load(Relaxed),
        )
    };
    // SAFETY: a C string.
    unsafe { real(path.as_ptr(), flags) }
}

/// Throws away libc's error text, if we caused one.
pub fn clear_error() {
    // SAFETY: no arguments.
    unsafe { libc::dlerror() };
}
