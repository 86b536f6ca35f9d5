//! The addresses of libc's own `dlsym`, `dlvsym` and `dlopen`, which the shim's exports hide, and of related
//! functions.
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

/// The address of libc's `dlsym`. The trampolines read these words.
pub static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The address of libc's `dlvsym`.
pub static DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The address of libc's `dlopen`.
pub static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The addresses of libc's `dlclose` and `dlerror`; only the shim uses them.
static DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DLERROR: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Set when all are libc's. Before glibc 2.34 they are in libdl, which may be loaded later.
static FOUND: AtomicBool = AtomicBool::new(false);

/// Finds all of them once; concurrent calls find the same. Must be called before any of them is used.
#[inline]
pub fn prepare() {
    // ORDER: Acquire pairs with the Release in `find_all`; the words are visible.
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
    // ORDER: Release publishes all words.
    FOUND.store(all, Release);
}

/// Returns the definition in libc, else (glibc before 2.34) in libdl or libpthread, else in the object that contains
/// `dl_iterate_phdr` (musl's libc has no soname).
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

/// Returns the definition that a look-up with RTLD_NEXT finds from the object that contains `code`, else libc's. It is safe
/// where `dlsym` is not: before constructors, and in a signal handler.
pub fn find_behind(code: usize, name: &CStr) -> Option<*mut c_void> {
    let mut is_behind = false;
    let found = elf::visit(|object| {
        if is_behind {
            return object.function(name);
        }
        is_behind = object.contains(code);
        None
    });
    found.or_else(|| find(name))
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

/// Calls libc's `dlsym`, with the shim as the caller.
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

/// Calls libc's `dlvsym`.
pub fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    prepare();
    type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    // SAFETY: the word holds the address of a function of this type.
    let real = unsafe { transmute::<*mut c_void, Dlvsym>(DLVSYM.load(Relaxed)) };
    // SAFETY: the caller's own arguments for this function.
    unsafe { real(handle, name, version) }
}

/// Calls libc's `dlopen`, with the shim as the caller.
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

/// Calls libc's `dlclose`.
pub fn dlclose(handle: *mut c_void) {
    prepare();
    // SAFETY: the word holds the address of a function of this type.
    let real = unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(DLCLOSE.load(Relaxed))
    };
    // SAFETY: a handle of libc's, closed once.
    unsafe { real(handle) };
}

/// Discards libc's error text after a look-up that failed.
pub fn clear_error() {
    prepare();
    // SAFETY: the word holds the address of a function of this type.
    let real = unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_char>(DLERROR.load(Relaxed))
    };
    // SAFETY: no arguments.
    unsafe { real() };
}

/// Returns true if a library, or the program, exports a symbol of this name.
pub fn is_there(name: &CStr) -> bool {
    let found = dlsym(libc::RTLD_DEFAULT, name);
    if found.is_null() {
        clear_error();
    }
    !found.is_null()
}

/// Returns a function of libc by name, from any of its libraries; NULL while no loaded one has it. A library before
/// libc (a sanitizer) is found first, as by any caller.
pub fn of_libc(name: &CStr) -> *mut c_void {
    let found = dlsym(libc::RTLD_DEFAULT, name);
    if !found.is_null() {
        return found;
    }
    clear_error();
    find(name).unwrap_or(null_mut())
}
