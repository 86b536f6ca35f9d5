//! The symbol look-up of applications, which returns the shim's exports instead of the driver's functions.
//!
//! `dlsym`, `dlvsym` and `dlopen` are exported as trampolines. For every other name they *jump* to libc's function,
//! so RTLD_NEXT, RTLD_DEFAULT and `$ORIGIN` see the original caller. For a name of the table, `answer` calls libc's
//! `dlsym` itself. A function that the driver lacks stays NULL, with libc's own `dlerror`. The first definition of a
//! name is wrapped. A second, different one passes through, and so does a symbol that the program itself exports by
//! that name.
#![allow(unsafe_code, reason = "calls libc's own look-ups")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    panic::catch_unwind,
    ptr::without_provenance,
};

use super::exports::export;

use crate::{
    driver::{self, Symbol, library},
    face::passthrough,
    sys::{caller_state::Errno, libc_dl},
};

/// The instruction to a trampoline: return `value` if `answered`, else jump to libc with `value` as the second
/// argument.
#[repr(C)]
pub struct Answer {
    value: *mut c_void,
    answered: usize,
}

fn found(value: *mut c_void) -> Answer {
    Answer { value, answered: 1 }
}

/// Returns the instruction to jump to libc, with this second argument.
fn jump(second: *const c_char) -> Answer {
    Answer {
        value: second.cast_mut().cast(),
        answered: 0,
    }
}

/// Answers `dlsym(handle, name)` called from `caller`.
pub extern "C" fn answer(
    handle: *mut c_void,
    name: *const c_char,
    _third: usize,
    caller: usize,
) -> Answer {
    libc_dl::prepare();
    let Some(symbol) = hooked(name) else {
        return through_the_door(handle, name, caller);
    };
    let _errno = Errno::keep();
    let looked = catch_unwind(|| look_up(handle, symbol, caller));
    looked.ok().flatten().map_or_else(|| jump(name), found)
}

/// Answers the look-up of a driver function without a hook with its stub. Any other name goes to libc.
fn through_the_door(handle: *mut c_void, name: *const c_char, caller: usize) -> Answer {
    if name.is_null() || !begins_with(name, b"cu") {
        return jump(name);
    }
    // SAFETY: the caller of dlsym promises a C string.
    let named = unsafe { CStr::from_ptr(name) };
    if !passthrough::is_drivers(named) {
        return jump(name);
    }
    let _errno = Errno::keep();
    let export = passthrough::export_of(named);
    if export.is_null() && is_pseudo(handle) {
        return jump(name);
    }
    let looked = catch_unwind(|| find(handle, named, export, caller));
    match looked.ok().flatten() {
        // Jumps to libc, so that `dlerror` is libc's own.
        Some(real) if real.is_null() && export.is_null() => jump(name),
        Some(real) if real.is_null() => found(real),
        Some(real) => found(passthrough::stub_of(named, real)),
        None => jump(name),
    }
}

/// Answers `dlvsym(handle, name, version)`. The driver has no versions, but a caller may ask for one.
pub extern "C" fn answer_versioned(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> Answer {
    libc_dl::prepare();
    let Some(symbol) = hooked(name) else {
        return jump(name);
    };
    if is_pseudo(handle) {
        return jump(name);
    }
    let _errno = Errno::keep();
    let real = libc_dl::dlvsym(handle, name, version);
    found(ours_or(symbol, real))
}

/// Answers `dlopen(path, flags)`: RTLD_DEEPBIND is removed, because a library opened with it would bypass the shim.
pub extern "C" fn answer_flags(_path: *const c_char, flags: c_int) -> Answer {
    libc_dl::prepare();
    let flags = flags & !libc::RTLD_DEEPBIND;
    jump(without_provenance(flags as usize))
}

/// Returns true if a C string that is not NULL begins with these letters.
fn begins_with(name: *const c_char, letters: &[u8]) -> bool {
    letters.iter().enumerate().all(|(at, letter)| {
        // SAFETY: the letters before this one matched, so the string has not ended.
        let ours = unsafe { *name.wrapping_add(at) };
        ours as u8 == *letter
    })
}

/// Returns the hooked symbol of a name. Most other names return `None` after a few letters.
fn hooked(name: *const c_char) -> Option<Symbol> {
    if name.is_null() {
        return None;
    }
    // Most names are not the driver's; not even their length is computed.
    if !(begins_with(name, b"cu") || begins_with(name, b"nvml")) {
        return None;
    }
    // SAFETY: the caller of dlsym promises a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    Symbol::by_name(name)
}

fn is_pseudo(handle: *mut c_void) -> bool {
    handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT
}

/// Returns the address for the caller; `None` if libc's own answer is right.
fn look_up(handle: *mut c_void, symbol: Symbol, caller: usize) -> Option<*mut c_void> {
    let real = find(handle, library::c_name(symbol), export(symbol), caller)?;
    Some(ours_or(symbol, real))
}

/// Returns the definition that the caller would find without the shim's export; `None` if libc's own answer is right.
fn find(
    handle: *mut c_void,
    name: &CStr,
    export: *mut c_void,
    caller: usize,
) -> Option<*mut c_void> {
    if handle == libc::RTLD_NEXT && library::is_behind_us(caller) {
        return None;
    }
    if handle == libc::RTLD_NEXT {
        return Some(behind_us(name, caller, false));
    }
    let first = libc_dl::dlsym(handle, name);
    Some(match first == export && !export.is_null() {
        true => behind_us(name, caller, handle == libc::RTLD_DEFAULT),
        false => first,
    })
}

/// Returns the definition behind the shim's export: in the global scope, or, for RTLD_DEFAULT, in the libraries that
/// the caller was linked with (a plugin opened RTLD_LOCAL).
fn behind_us(name: &CStr, caller: usize, in_callers_scope: bool) -> *mut c_void {
    let real = libc_dl::dlsym(libc::RTLD_NEXT, name);
    if !real.is_null() || !in_callers_scope {
        return real;
    }
    let local = library::in_scope_of(caller, name);
    if local.is_null() {
        // Called again, so that `dlerror` reports the look-up and not the calls in between.
        return libc_dl::dlsym(libc::RTLD_NEXT, name);
    }
    local
}

/// Returns the shim's export if `real` is the wrapped definition, else `real`, which may be NULL. A symbol of this
/// name that the program or a library loaded before the shim exports is not the driver's, and may not even be a
/// function.
fn ours_or(symbol: Symbol, real: *mut c_void) -> *mut c_void {
    let wrapped = driver::known(symbol) == real
        || !library::is_before_us(real as usize) && driver::adopt(symbol, real);
    if !real.is_null() && wrapped {
        export(symbol)
    } else {
        real
    }
}
