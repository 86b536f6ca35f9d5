//! libc's own `dlsym`, `dlvsym` and `dlopen`, behind our exports of the same names, and their companions.
#![allow(unsafe_code, reason = "calls libc's own look-ups by address")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    ptr::null_mut,
    sync::atomic::{
        AtomicBool, AtomicPtr,
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

/// libc's `dlclose` and `dlerror`; only we use them.
static DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DLERROR: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// All of them are what libc has. Before glibc 2.34 they come with libdl, which may be loaded later.
static FOUND: AtomicBool = AtomicBool::new(false);

/// Finds them all, once; races find the same. Must come before any of them is used.
#[inline]
pub fn prepare() {
    // ORDER: pairs with the Release in `find_all`; the words are there.
    if !FOUND.load(Acquire) {
        find_all();
    }
}

#[cold]
fn find_all() {
    let mut all = true;
    let mut put = |word: &AtomicPtr<c_void>, name, otherwise| {
        let found = find(name);
        all &= found.is_some();
        word.store(found.unwrap_or(otherwise), Relaxed);
    };
    put(&DLSYM, c"dlsym", nothing_sym as *mut c_void);
    put(&DLVSYM, c"dlvsym", nothing_sym as *mut c_void);
    put(&DLOPEN, c"dlopen", nothing_open as *mut c_void);
    put(&DLCLOSE, c"dlclose", nothing_close as *mut c_void);
    put(&DLERROR, c"dlerror", nothing_error as *mut c_void);
    // ORDER: publishes them all.
    FOUND.store(all, Release);
}

/// The definition in libc, else (glibc before 2.34) in libdl or libpthread, else in whatever we were linked
/// with that has `dl_iterate_phdr` (musl's libc has no name).
pub fn find(name: &CStr) -> Option<*mut c_void> {
    let named = |soname: &CStr| {
        elf::visit(|object| match object.is_called(soname) {
            true => object.function(name),
            false => None,
        })
    };
    let ours = libc::dl_iterate_phdr as *const () as usize;
    [c"libc.so.6", c"libdl.so.2", c"libpthread.so.0"]
        .into_iter()
        .find_map(named)
        .or_else(|| {
            elf::visit(|object| {
                if object.contains(ours) {
                    object.function(name)
                } else {
                    None
                }
            })
        })
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

extern "C" fn nothing_close(_handle: *mut c_void) -> c_int {
    0
}

extern "C" fn nothing_error() -> *mut c_char {
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

/// libc's `dlclose`.
pub fn dlclose(handle: *mut c_void) {
    prepare();
    // SAFETY: the word holds the address of a function of this type.
    let real = unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(DLCLOSE.load(Relaxed))
    };
    // SAFETY: a handle of libc's, closed once.
    unsafe { real(handle) };
}

/// Throws away libc's error text, if we caused one.
pub fn clear_error() {
    prepare();
    // SAFETY: the word holds the address of a function of this type.
    let real = unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_char>(DLERROR.load(Relaxed))
    };
    // SAFETY: no arguments.
    unsafe { real() };
}

/// Whether any library, or the program, has a function of this name.
pub fn is_there(name: &CStr) -> bool {
    let found = dlsym(libc::RTLD_DEFAULT, name);
    if found.is_null() {
        clear_error();
    }
    !found.is_null()
}

/// A function of libc's by name, whichever of its libraries has it; NULL while none is loaded that does. A library that
/// stands in front of libc (a sanitizer) is found first, as by any caller.
pub fn of_libc(name: &CStr) -> *mut c_void {
    let found = dlsym(libc::RTLD_DEFAULT, name);
    if !found.is_null() {
        return found;
    }
    clear_error();
    find(name).unwrap_or(null_mut())
}
