//! The `ioctl` behind the shim's own export: that of another preloaded library, or libc's.
#![allow(unsafe_code, reason = "calls libc's function by address")]

use std::{
    ffi::{c_int, c_ulong, c_void},
    mem::transmute,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use super::libc_dl;

/// A function with the arguments of `ioctl`.
pub type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// Its address; before the first request that of a function that finds it. The export jumps there.
pub static NEXT: AtomicPtr<c_void> = AtomicPtr::new(find as *mut c_void);

/// Returns the function.
pub fn get() -> Ioctl {
    // SAFETY: the word holds the address of a function of this type.
    unsafe { transmute::<*mut c_void, Ioctl>(NEXT.load(Relaxed)) }
}

/// Makes the first request: finds the function and calls it.
unsafe extern "C" fn find(descriptor: c_int, request: c_ulong, record: *mut c_void) -> c_int {
    let ours = find as *const () as usize;
    let found = libc_dl::find_behind(ours, c"ioctl").unwrap_or(by_system_call as *mut c_void);
    NEXT.store(found, Relaxed);
    // SAFETY: the caller's own arguments for this function.
    unsafe { get()(descriptor, request, record) }
}

/// Does without libc's function.
unsafe extern "C" fn by_system_call(
    descriptor: c_int,
    request: c_ulong,
    record: *mut c_void,
) -> c_int {
    // SAFETY: the caller's own arguments for this call.
    unsafe { libc::syscall(libc::SYS_ioctl, descriptor, request, record) as c_int }
}
