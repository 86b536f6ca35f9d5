//! Where the driver's own functions are.
//!
//! An address is learned once, from the first that finds it: the application's `dlsym`, its
//! `cuGetProcAddress`, or our own look-up in the library the first one came from. After that it never
//! changes: the library is pinned, so `dlclose` leaves no address dangling. A second, different
//! definition of a name is not ours to hook (a loader-style libcuda looks up the inner one): it passes through.

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use super::{
    library,
    symbols::{COUNT, Symbol},
};
use crate::sys::errno::Errno;

/// Where each function is, by [`Symbol`]; the assembly of `face::fast` reads it too.
pub static ADDRESSES: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];

/// The address of a driver function, looked up at need; NULL when the driver has no such function.
#[inline(always)]
pub fn address(symbol: Symbol) -> *mut c_void {
    let known = known(symbol);
    if known.is_null() { find(symbol) } else { known }
}

/// The address as far as it is known already.
#[inline(always)]
pub fn known(symbol: Symbol) -> *mut c_void {
    ADDRESSES[symbol as usize].load(Relaxed)
}

/// The first definition of a name becomes the one we wrap. Returns whether `real` is it.
pub fn adopt(symbol: Symbol, real: *mut c_void) -> bool {
    let slot = &ADDRESSES[symbol as usize];
    match slot.compare_exchange(null_mut(), real, Relaxed, Relaxed) {
        Ok(_) => {
            library::pin(symbol, real);
            true
        }
        Err(first) => first == real,
    }
}

#[cold]
fn find(symbol: Symbol) -> *mut c_void {
    let _errno = Errno::keep();
    let real = library::find(symbol);
    if !real.is_null() {
        adopt(symbol, real);
    }
    known(symbol)
}
