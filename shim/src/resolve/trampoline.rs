//! `dlsym`, `dlvsym` and `dlopen` as the rest of the process sees them.
//!
//! Each asks one of our functions with the caller's own arguments and either returns its answer or jumps
//! to libc with every register and the return address as the caller left them: libc then sees the caller,
//! not us.
#![allow(unsafe_code, reason = "naked functions")]

use std::{
    arch::naked_asm,
    ffi::{c_char, c_int, c_void},
};

use super::{answer, answer_versioned, open_flags, real};

/// `dlsym`: ours for a hooked name, libc's for all else.
///
/// # Safety
///
/// What libc's asks of a caller.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdx, qword ptr [rsp + 24]",
        "call {answer}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rdx, rdx",
        "jne 2f",
        "jmp qword ptr [rip + {libc}]",
        "2:",
        "ret",
        ".cfi_endproc",
        answer = sym answer,
        libc = sym real::DLSYM,
    )
}

/// `dlvsym`: ours for a hooked name on a handle, libc's for all else.
///
/// # Safety
///
/// What libc's asks of a caller.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "call {answer}",
        "mov rcx, rdx",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rcx, rcx",
        "jne 2f",
        "jmp qword ptr [rip + {libc}]",
        "2:",
        "ret",
        ".cfi_endproc",
        answer = sym answer_versioned,
        libc = sym real::DLVSYM,
    )
}

/// `dlopen`: libc's, without RTLD_DEEPBIND.
///
/// # Safety
///
/// What libc's asks of a caller.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "mov edi, esi",
        "call {flags}",
        "mov esi, eax",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp qword ptr [rip + {libc}]",
        ".cfi_endproc",
        flags = sym open_flags,
        libc = sym real::DLOPEN,
    )
}

/// `dlsym`: ours for a hooked name, libc's for all else.
///
/// # Safety
///
/// What libc's asks of a caller.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "hint #34", // bti c
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30",
        "bl {answer}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "cbnz x17, 2f",
        "adrp x16, {libc}",
        "ldr x16, [x16, :lo12:{libc}]",
        "br x16",
        "2:",
        "mov x0, x16",
        "ret",
        ".cfi_endproc",
        answer = sym answer,
        libc = sym real::DLSYM,
    )
}

/// `dlvsym`: ours for a hooked name on a handle, libc's for all else.
///
/// # Safety
///
/// What libc's asks of a caller.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "hint #34", // bti c
        "stp x29, x30, [sp, #-48]!",
        ".cfi_def_cfa_offset 48",
        ".cfi_offset x29, -48",
        ".cfi_offset x30, -40",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "bl {answer}",
        "mov x16, x0",
        "mov x17, x1",
        "ldr x2, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "cbnz x17, 2f",
        "adrp x16, {libc}",
        "ldr x16, [x16, :lo12:{libc}]",
        "br x16",
        "2:",
        "mov x0, x16",
        "ret",
        ".cfi_endproc",
        answer = sym answer_versioned,
        libc = sym real::DLVSYM,
    )
}

/// `dlopen`: libc's, without RTLD_DEEPBIND.
///
/// # Safety
///
/// What libc's asks of a caller.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "hint #34", // bti c
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "str x0, [sp, #16]",
        "mov w0, w1",
        "bl {flags}",
        "mov w1, w0",
        "ldr x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "adrp x16, {libc}",
        "ldr x16, [x16, :lo12:{libc}]",
        "br x16",
        ".cfi_endproc",
        flags = sym open_flags,
        libc = sym real::DLOPEN,
    )
}
