//! Typed calls of the driver's own functions, which bypass all hooks.
//!
//! While a process is evicted, the driver blocks a call until the restore, or crashes on it (`cuEventQuery`,
//! 580.159.04). So the shim calls the driver inside a call of the application, in the evictor, or in a thread that
//! holds [`asking`](crate::eviction::state::EvictionState::asking). A call made elsewhere nearly always returns, and
//! no test would notice it; a debug build checks each call and ends the process. The rule needs items of higher
//! layers, which pass it down as a function.
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

use std::{
    ffi::{c_char, c_void},
    panic::Location,
    sync::OnceLock,
};

use gpushare_abi::{
    In, Out,
    errors::{CUDA_ERROR_NOT_FOUND, CUresult},
    types::*,
};

use crate::driver::{Symbol, address};

static IS_ANSWERED: OnceLock<fn(Symbol) -> bool> = OnceLock::new();

/// Sets the function that decides whether the driver returns to the calling thread.
pub fn check_by(is_answered: fn(Symbol) -> bool) {
    let _ = IS_ANSWERED.set(is_answered);
}

/// Checks a call of the driver that the calling thread is about to make.
#[track_caller]
fn check(symbol: Symbol) {
    if IS_ANSWERED
        .get()
        .is_some_and(|is_answered| !is_answered(symbol))
    {
        fail(symbol, Location::caller());
    }
}

/// Ends the process. A panic would only be a counted fault, which no test notices.
#[cold]
fn fail(symbol: Symbol, place: &Location<'_>) -> ! {
    eprintln!(
        "gpushare: {} is called at {place} from where the driver may not answer; see driver/call.rs",
        symbol.info().name
    );
    std::process::abort();
}

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
            check(Symbol::$name);
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
