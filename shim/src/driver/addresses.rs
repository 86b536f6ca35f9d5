//! The driver's own functions: where they are, and typed calls of them.
//!
//! An address is learned once, from whoever finds it first: the application's `dlsym`, its
//! `cuGetProcAddress`, or our own look-up in the library the first one came from. After that it never
//! changes: the library is pinned, so `dlclose` leaves no address dangling. A second, different
//! definition of a name is somebody else's business (a loader-style libcuda looks up the inner one) and
//! passes through unhooked.
#![allow(unsafe_code, reason = "calls through the driver's addresses")]

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use gpushare_abi::errors::{CUDA_ERROR_NOT_FOUND, CUresult};

use crate::{
    resolve,
    symbols::{COUNT, Symbol},
};

/// Where each function is, by [`Symbol`]; the assembly of [`fast`](crate::fast) reads it too.
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
            resolve::library::pin(symbol, real);
            true
        }
        Err(first) => first == real,
    }
}

#[cold]
fn find(symbol: Symbol) -> *mut c_void {
    let real = resolve::library::find(symbol);
    if !real.is_null() {
        adopt(symbol, real);
    }
    known(symbol)
}

/// What a call answers that the driver does not have. Without any driver there is nothing better to say.
#[cold]
fn missing() -> CUresult {
    Err(CUDA_ERROR_NOT_FOUND)
}

/// Typed calls of the driver's own functions, past all hooks.
pub mod call {
    #![allow(
        clippy::missing_safety_doc,
        reason = "each is the driver's function: its documentation tells"
    )]
    #![allow(
        clippy::too_many_arguments,
        non_snake_case,
        reason = "the driver's own signatures"
    )]
    #![allow(missing_docs, reason = "the driver's own names")]
    #![allow(dead_code, reason = "the table gives every function a call")]

    use std::ffi::{c_char, c_void};

    use gpushare_abi::{In, Out, errors::CUresult, types::*};

    use super::{Symbol, address, missing};

    macro_rules! function {
        (fn $name:ident ($($arg:ident: $type:ty),* $(,)?)) => {
            #[inline(always)]
            pub unsafe fn $name($($arg: $type),*) -> CUresult {
                let real = address(Symbol::$name);
                if real.is_null() {
                    return missing();
                }
                // SAFETY: the address is the driver's function of this name, and a test compares the table's
                // signature with the driver's header.
                let real = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> CUresult>(real)
                };
                // SAFETY: the caller passes what the driver's documentation asks for.
                unsafe { real($($arg),*) }
            }
        };
    }

    macro_rules! functions {
        (
            hooked { $($base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
            used { $(fn $used:ident $used_args:tt;)* }
        ) => {
            $(
                function!(fn $name $args);
                $(function!(fn $twin $args);)?
            )*
            $(function!(fn $used $used_args);)*
        };
    }

    gpushare_abi::driver_table!(functions);
}
