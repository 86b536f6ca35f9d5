//! The driver's library: it is kept loaded and searched for the functions that the shim needs.
#![allow(unsafe_code, reason = "reaches libc's handles")]

use std::{
    ffi::{CStr, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering::*},
};

use crate::{
    driver::{COUNT, Symbol},
    sys::{elf, libc_dl},
};

/// Handles of the libraries from which the first definitions came: the driver's and NVML's.
static HOMES: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

fn home(symbol: Symbol) -> &'static AtomicPtr<c_void> {
    &HOMES[usize::from(symbol.is_nvml())]
}

/// Keeps the library that defines `address` loaded for good, so that no stored address dangles.
pub fn pin(symbol: Symbol, address: *mut c_void) {
    let home = home(symbol);
    if !home.load(Relaxed).is_null() {
        return;
    }
    let Some(path) = path_of(address as usize) else {
        return;
    };
    if path.is_empty() {
        return; // defined by the main program itself
    }
    let handle = libc_dl::dlopen(
        path,
        libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
    );
    if handle.is_null() {
        libc_dl::clear_error();
        return;
    }
    // If another thread was first, the library has one more reference, which does no harm.
    let _ = home.compare_exchange(null_mut(), handle, Relaxed, Relaxed);
}

/// Returns the driver's own definition of a symbol, or NULL if there is none.
pub fn find(symbol: Symbol) -> *mut c_void {
    find_in(usize::from(symbol.is_nvml()), c_name(symbol))
}

/// Returns the address of a driver function without a hook, or NULL if there is none.
pub fn find_unhooked(name: &CStr) -> *mut c_void {
    find_in(0, name)
}

fn find_in(home: usize, name: &CStr) -> *mut c_void {
    let handle = HOMES[home].load(Relaxed);
    let mut found = null_mut();
    if !handle.is_null() {
        found = libc_dl::dlsym(handle, name);
    } else {
        found = first(found, || libc_dl::dlsym(libc::RTLD_NEXT, name));
        found = first(found, || in_library(home, name));
    }
    if found.is_null() {
        libc_dl::clear_error();
    }
    // The shim's own export is no definition.
    if elf::is_own(found as usize) {
        null_mut()
    } else {
        found
    }
}

fn first(found: *mut c_void, otherwise: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if found.is_null() { otherwise() } else { found }
}

/// Looks a name up in the library with the usual file name, if it is loaded.
fn in_library(home: usize, name: &CStr) -> *mut c_void {
    let usual = [c"libcuda.so.1", c"libnvidia-ml.so.1"][home];
    let handle = libc_dl::dlopen(usual, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
    if handle.is_null() {
        return null_mut();
    }
    let found = libc_dl::dlsym(handle, name);
    libc_dl::dlclose(handle);
    found
}

/// Looks a name up in the caller's own scope: its object and the libraries it was linked with.
pub fn in_scope_of(caller: usize, name: &CStr) -> *mut c_void {
    let Some(path) = path_of(caller).filter(|path| !path.is_empty()) else {
        return null_mut();
    };
    let handle = libc_dl::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
    if handle.is_null() {
        return null_mut();
    }
    let found = libc_dl::dlsym(handle, name);
    libc_dl::dlclose(handle);
    found
}

/// Returns the path of the object that contains an address. The object stays loaded, because the caller runs its code
/// or has just found a function of it. Nothing is allocated during the visit, because the linker's list is locked.
fn path_of(address: usize) -> Option<&'static CStr> {
    let path = elf::visit(|object| object.contains(address).then(|| object.path().as_ptr()))?;
    // SAFETY: the string belongs to the linker and lives as long as the object.
    Some(unsafe { CStr::from_ptr(path) })
}

/// Returns true if an address lies in the driver's library, which is recognised by its file name in any directory and
/// version.
pub fn is_drivers(address: usize) -> bool {
    let Some(path) = path_of(address) else {
        return false;
    };
    let file = path.to_bytes().rsplit(|byte| *byte == b'/').next();
    file.is_some_and(|file| file.starts_with(b"libcuda.so"))
}

/// Returns true if the code at `caller` was loaded after the shim, so that RTLD_NEXT skips the shim anyway.
pub fn is_behind_us(caller: usize) -> bool {
    let ours = is_behind_us as *const () as usize;
    let mut our_index = usize::MAX;
    let found = elf::visit(|object| {
        if object.contains(ours) {
            our_index = object.index;
        }
        object.contains(caller).then_some(object.index)
    });
    found.is_some_and(|index| index > our_index)
}

/// Returns true if an address lies in the program, or in a library that was loaded before the shim.
pub fn is_before_us(address: usize) -> bool {
    let ours = is_behind_us as *const () as usize;
    let before = elf::visit(|object| {
        if object.contains(ours) {
            Some(false)
        } else {
            object.contains(address).then_some(true)
        }
    });
    before == Some(true)
}

/// Returns the symbol's name as a C string.
pub fn c_name(symbol: Symbol) -> &'static CStr {
    C_NAMES[symbol as usize]
}

macro_rules! names {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $(fn $used:ident $used_args:tt;)* }
    ) => {
        static C_NAMES: [&CStr; COUNT] = [
            $(c_str(concat!(stringify!($name), "\0")), $(c_str(concat!(stringify!($twin), "\0")),)?)*
            $(c_str(concat!(stringify!($used), "\0")),)*
        ];
    };
}

const fn c_str(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a function's name has no NUL inside"),
    }
}

gpushare_abi::driver_table!(names);

/// Returns the address of a name in the driver's library, hooked or not.
pub fn find_by_name(name: &CStr) -> *mut c_void {
    let handle = HOMES[0].load(Relaxed);
    if handle.is_null() {
        return null_mut();
    }
    let found = libc_dl::dlsym(handle, name);
    if found.is_null() {
        libc_dl::clear_error();
    }
    found
}
