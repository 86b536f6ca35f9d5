//! The exports of `dlsym`, `dlvsym` and `dlopen`.
//!
//! Each calls a function of the shim with the caller's arguments and return address. It then either returns the
//! [answer](super::dlsym::Answer), or jumps to libc with every argument (the second as in the answer), the stack and
//! the return address as the caller left them. So libc sees the caller and not the shim.
#![allow(unsafe_code, reason = "naked functions")]

use std::{
    arch::naked_asm,
    ffi::{c_char, c_int, c_void},
};

use super::dlsym::{answer, answer_flags, answer_versioned};
use crate::sys::libc_dl;

/// Defines the body of a function with at most three arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! ask {
    ($ours:path, else $libcs:path) => {
        naked_asm!(
            ".cfi_startproc",
            "endbr64",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "mov rcx, qword ptr [rsp + 24]",
            "call {ours}",
            "mov rcx, rdx",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "test rcx, rcx",
            "jne 2f",
            "mov rsi, rax",
            "jmp qword ptr [rip + {libcs}]",
            "2:",
            "ret",
            ".cfi_endproc",
            ours = sym $ours,
            libcs = sym $libcs,
        )
    };
}

/// Defines the body of a function with at most three arguments.
#[cfg(target_arch = "aarch64")]
macro_rules! ask {
    ($ours:path, else $libcs:path) => {
        naked_asm!(
            ".cfi_startproc",
            "hint #34", // bti c
            "stp x29, x30, [sp, #-48]!",
            ".cfi_def_cfa_offset 48",
            ".cfi_offset x29, -48",
            ".cfi_offset x30, -40",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x3, x30",
            "bl {ours}",
            "mov x16, x0",
            "mov x17, x1",
            "ldr x2, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #48",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "cbnz x17, 2f",
            "mov x1, x16",
            "adrp x16, {libcs}",
            "ldr x16, [x16, :lo12:{libcs}]",
            "br x16",
            "2:",
            "mov x0, x16",
            "ret",
            ".cfi_endproc",
            ours = sym $ours,
            libcs = sym $libcs,
        )
    };
}

/// Finds a symbol: the shim's export for a hooked name, libc's result for any other.
///
/// # Safety
///
/// The requirements of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    ask!(answer, else libc_dl::DLSYM)
}

/// Finds a versioned symbol: the shim's export for a hooked name on a handle, libc's result for any other.
///
/// # Safety
///
/// The requirements of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    ask!(answer_versioned, else libc_dl::DLVSYM)
}

/// Opens a library with libc's function, without RTLD_DEEPBIND.
///
/// # Safety
///
/// The requirements of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    ask!(answer_flags, else libc_dl::DLOPEN)
}
