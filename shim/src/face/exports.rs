//! The exported functions that replace the driver's: one for each row of the table.
//!
//! A call passes the re-entrancy guard, the panic boundary and the hook, and then goes to the driver exactly once. A
//! call from within a hook (the driver calling itself through its own exports) goes directly to the driver.
#![allow(unsafe_code, reason = "exports the driver's C functions")]

use std::{
    cell::Cell,
    ffi::{c_char, c_void},
};

use super::proc_address;
use gpushare_abi::{In, Out, Query, errors::CUresult, types::*};

use crate::{
    driver::{self, Symbol},
    eviction,
    hooks::{
        self, Real, checkpoint, context, copy,
        launch::{self, Submission},
        loss, memory, multi_device, stream, transfer,
    },
    managed_process,
    sys::caller_state::{Uncancelled, Unwatched, catch},
    thread, trace,
};

/// Passes the function that finds the shim's exports to the hook that returns them.
mod lookup {
    use super::*;

    pub fn proc_address(
        real: Real<'_, impl FnOnce() -> CUresult>,
        name: *const c_char,
        pfn: Out<*mut c_void>,
        version: i32,
        flags: u64,
    ) -> CUresult {
        proc_address::answer(real, name, pfn, version, flags, export)
    }
}

/// Runs a hook within the panic boundary. `answer` gets the driver's result.
#[inline(always)]
fn guarded<F, H>(
    symbol: Symbol,
    inside: thread::Inside,
    forward: F,
    answer: &Cell<Option<CUresult>>,
    hook: H,
) -> CUresult
where
    F: FnOnce() -> CUresult + Copy,
    H: FnOnce(Real<'_, F>) -> CUresult,
{
    let _unwatched = Unwatched::enter();
    let _uncancelled = (!symbol.may_be_cancelled()).then(Uncancelled::enter);
    if symbol.needs_the_device() {
        if !symbol.is_query() {
            inside.thread().count_request();
        }
        if thread::is_suspended() {
            match symbol.is_query() {
                true => _ = eviction::pass_query(inside.thread(), Query::Answers, 0)?,
                false => eviction::wait_until_resumed(inside.thread())?,
            }
        }
        if symbol.is_query() {
            inside.thread().mark_asking();
        }
    }
    let (_inside, here) = hooks::current(inside);
    let began = trace::begin();
    let bytes = Cell::new(0);
    let result = hook(Real::new(symbol, here, forward, answer, &bytes));
    if began != 0 {
        trace::end(symbol, began, bytes.get());
    }
    if let Err(error) = result {
        loss::check(symbol, error);
    }
    result
}

/// Returns the driver's result after a panic in a hook. Calls the driver if the hook has not.
#[cold]
#[inline(never)]
fn after_a_panic(answer: Option<CUresult>, forward: impl FnOnce() -> CUresult) -> CUresult {
    managed_process::fault();
    answer.unwrap_or_else(|| {
        let _inside = thread::Inside::enter();
        forward()
    })
}

macro_rules! export {
    (query $($row:tt)*) => {
        export!(call $($row)*);
    };
    (call $hook:path, ($($given:ident),*), fn $name:ident ($($arg:ident: $type:ty),* $(,)?)) => {
        #[doc = concat!("`", stringify!($name), "` as applications reach it.")]
        ///
        /// # Safety
        ///
        /// The requirements of the driver's documentation.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own signature")]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> CUresult {
            let place = thread::place();
            // The arguments are in memory for the case of a panic, so that no register has to keep them.
            let call = &(($($arg,)*), Cell::new(None));
            let result = catch(|| {
                let (($($arg,)*), answer) = (call.0, &call.1);
                // SAFETY: the arguments are the caller's own, for this function.
                let driver = move || unsafe { driver::call::$name($($arg),*) };
                let Some(inside) = thread::Inside::enter_from(place) else {
                    return driver();
                };
                let errno = &inside.thread().keep_errno();
                let forward = move || errno.around(driver);
                guarded(Symbol::$name, inside, forward, answer, move |real| $hook(real $(, $given)*))
            });
            result.unwrap_or_else(|_| {
                let ($($arg,)*) = call.0;
                // SAFETY: as above.
                after_a_panic(call.1.get(), move || unsafe { driver::call::$name($($arg),*) })
            })
        }
    };
    (submit $hook:path, ($($given:ident),*), fn $name:ident ($($arg:ident: $type:ty),* $(,)?)) => {
        #[doc = concat!("`", stringify!($name), "` as applications reach it.")]
        ///
        /// # Safety
        ///
        /// The requirements of the driver's documentation.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own signature")]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> CUresult {
            // SAFETY: the arguments are the caller's own, for this function.
            let forward = move || unsafe { driver::call::$name($($arg),*) };
            $hook(Submission::new(Symbol::$name, forward) $(, $given)*)
        }
    };
}

/// Defines a submission with arguments on the stack: the assembly of `fast` leaves them in place.
#[cfg(target_arch = "x86_64")]
macro_rules! export_fast {
    ($hook:path, ($($given:ident),*), fn $name:ident ($($arg:ident: $type:ty),* $(,)?)) => {
        #[allow(non_snake_case, reason = "the driver's own name")]
        mod $name {
            use super::*;

            /// Handles the cases that the fast path does not.
            ///
            /// # Safety
            ///
            /// The requirements of the driver's documentation.
            #[allow(clippy::too_many_arguments, reason = "the driver's own signature")]
            pub unsafe extern "C-unwind" fn slow($($arg: $type),*) -> CUresult {
                // SAFETY: the arguments are the caller's own, for this function.
                let forward = move || unsafe { driver::call::$name($($arg),*) };
                $hook(Submission::new(Symbol::$name, forward) $(, $given)*)
            }
        }

        #[doc = concat!("`", stringify!($name), "` as applications reach it.")]
        ///
        /// # Safety
        ///
        /// The requirements of the driver's documentation.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own signature")]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> CUresult {
            super::fast::launch_kernel!($name)
        }
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! export_fast {
    ($hook:path, $given:tt, fn $name:ident $args:tt) => {
        export!(submit $hook, $given, fn $name $args);
    };
}

/// Defines the function of a row, and its per-thread default stream form. A hook that names no arguments gets all.
macro_rules! row {
    ($kind:ident [$hook:path] [] fn $name:ident ($($arg:ident: $type:ty),* $(,)?) $($twin:tt)*) => {
        row!($kind [$hook] [($($arg),*)] fn $name ($($arg: $type),*) $($twin)*);
    };
    (fast [$hook:path] [$given:tt] fn $name:ident $args:tt twin $twin:ident) => {
        export_fast!($hook, $given, fn $name $args);
        export_fast!($hook, $given, fn $twin $args);
    };
    ($kind:ident [$hook:path] [$given:tt] fn $name:ident $args:tt) => {
        export!($kind $hook, $given, fn $name $args);
    };
    ($kind:ident [$hook:path] [$given:tt] fn $name:ident $args:tt twin $twin:ident) => {
        export!($kind $hook, $given, fn $name $args);
        export!($kind $hook, $given, fn $twin $args);
    };
}

macro_rules! exports {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $($used:tt)* }
    ) => {
        $(row!($kind [$($hook)::+] [$(($($given),*))?] fn $name $args $(twin $twin)?);)*

        /// Returns the address of the shim's export of a hooked symbol; NULL for a symbol that is only used.
        pub fn export(symbol: Symbol) -> *mut c_void {
            match symbol {
                $(
                    Symbol::$name => $name as *mut c_void,
                    $(Symbol::$twin => $twin as *mut c_void,)?
                )*
                _ => std::ptr::null_mut(),
            }
        }
    };
}

gpushare_abi::driver_table!(exports);
