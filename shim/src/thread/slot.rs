//! The thread-local slot: eight bytes of initial-exec TLS, reached in two loads.
//!
//! `thread_local!` would go through `__tls_get_addr`. The slot's symbol is also read by the assembly of
//! [`fast`](crate::face::fast).
#![allow(unsafe_code, reason = "reads and writes the slot")]

use std::arch::{asm, global_asm};

use super::record::Thread;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .tbss.gpushare_thread,\"awT\",@nobits",
    ".balign 8",
    ".hidden gpushare_thread",
    ".globl gpushare_thread",
    ".type gpushare_thread, @tls_object",
    ".size gpushare_thread, 8",
    "gpushare_thread:",
    ".zero 8",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .tbss.gpushare_thread,\"awT\",%nobits",
    ".balign 8",
    ".hidden gpushare_thread",
    ".globl gpushare_thread",
    ".type gpushare_thread, %tls_object",
    ".size gpushare_thread, 8",
    "gpushare_thread:",
    ".zero 8",
    ".popsection",
);

/// The calling thread\'s record, or NULL.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn slot() -> *mut Thread {
    let record;
    // SAFETY: reads this thread's own slot, at the offset the dynamic linker put into the GOT.
    unsafe {
        asm!(
            "mov {record}, qword ptr [rip + gpushare_thread@GOTTPOFF]",
            "mov {record}, qword ptr fs:[{record}]",
            record = out(reg) record,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    record
}

/// Makes a record the calling thread\'s.
#[cfg(target_arch = "x86_64")]
pub fn set_slot(record: *mut Thread) {
    // SAFETY: writes this thread's own slot.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + gpushare_thread@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {record}",
            offset = out(reg) _,
            record = in(reg) record,
            options(nostack, preserves_flags),
        );
    }
}

/// The calling thread\'s record, or NULL.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn slot() -> *mut Thread {
    let record;
    // SAFETY: reads this thread's own slot, at the offset the dynamic linker put into the GOT.
    unsafe {
        asm!(
            "mrs {base}, tpidr_el0",
            "adrp {record}, :gottprel:gpushare_thread",
            "ldr {record}, [{record}, :gottprel_lo12:gpushare_thread]",
            "ldr {record}, [{base}, {record}]",
            base = out(reg) _,
            record = out(reg) record,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    record
}

/// Makes a record the calling thread\'s.
#[cfg(target_arch = "aarch64")]
pub fn set_slot(record: *mut Thread) {
    // SAFETY: writes this thread's own slot.
    unsafe {
        asm!(
            "mrs {base}, tpidr_el0",
            "adrp {offset}, :gottprel:gpushare_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:gpushare_thread]",
            "str {record}, [{base}, {offset}]",
            base = out(reg) _,
            offset = out(reg) _,
            record = in(reg) record,
            options(nostack, preserves_flags),
        );
    }
}
