//! A replacement of the glibc function `_dl_find_object` for libgcc's unwinder, so that it runs on older glibc and on
//! musl.
//!
//! libgcc_eh of GCC 12 and later finds an object's unwind tables by `_dl_find_object`, which glibc has only since
//! 2.35. This one does the same by `dl_iterate_phdr`. It is hidden: no other library sees it.
#![allow(unsafe_code, reason = "fills the caller's record")]

use std::ffi::{c_int, c_void};

use super::{elf, old_libc::hidden};

/// The glibc type `struct dl_find_object`, on the supported architectures.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: *const c_void,
    map_end: *const c_void,
    link_map: *const c_void,
    eh_frame: *const c_void,
    _reserved: [u64; 7],
}

extern "C" fn find_object(address: *const c_void, found: *mut Found) -> c_int {
    let object = elf::visit(|object| {
        if !object.contains(address as usize) {
            return None;
        }
        Some((object.span(), object.unwind_table()?))
    });
    let Some(((start, end), table)) = object else {
        return -1;
    };
    let answer = Found {
        flags: 0,
        map_start: start as *const c_void,
        map_end: end as *const c_void,
        link_map: std::ptr::null(),
        eh_frame: table as *const c_void,
        _reserved: [0; 7],
    };
    // SAFETY: the unwinder passes its own record.
    unsafe { found.write(answer) };
    0
}

hidden! {
    "_dl_find_object" => find_object;
}
