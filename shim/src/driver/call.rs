//! Typed calls of the driver's own functions, which bypass all hooks.
#![allow(unsafe_code, reason = "calls through the driver's addresses")]
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

use gpushare_abi::{
    In, Out,
    errors::{CUDA_ERROR_NOT_FOUND, CUresult},
    types::*,
};

use crate::driver::{Symbol, address};

/// Returns the error for a function that the driver does not have.
#[cold]
fn missing() -> CUresult {
    Err(CUDA_ERROR_NOT_FOUND)
}

macro_rules! function {
    (fn $name:ident ($($arg:ident: $type:ty),* $(,)?)) => {
        #[inline(always)]
        #[cfg_attr(debug_assertions, track_caller)]
        pub unsafe fn $name($($arg: $type),*) -> CUresult {
            let real = address(Symbol::$name);
            if real.is_null() {
                return missing();
            }
            #[cfg(debug_assertions)]
            super::checked::check(Symbol::$name);
            // SAFETY: the address is the driver's function of this name, and a test compares the table's signature
            // with the driver's header.
            let real = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> CUresult>(real)
            };
            // SAFETY: the caller passes what the driver's documentation requires.
            unsafe { real($($arg),*) }
        }
    };
}

macro_rules! functions {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
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
