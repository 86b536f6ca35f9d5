//! The export of `ioctl`, which learns the channel groups that the driver makes for this process.
//!
//! Every request goes on to the function that the caller would reach without the shim, with its arguments, its result and its
//! `errno`. Those of other letters than the driver's jump there after one comparison, so libc and libraries behind the shim see the
//! original caller. Of the driver's letter four requests are read once they have succeeded: the check of the driver's version, one
//! that made a channel group, one that set a group's time slice, and one that released objects. Nothing here takes a lock, allocates or uses thread-local data.
#![allow(unsafe_code, reason = "stands in for libc's function")]

use std::{
    arch::naked_asm,
    ffi::{c_int, c_ulong, c_void},
};

use gpushare_abi::resource_manager::LETTER;

use crate::{
    channel_groups::Group,
    managed_process,
    sys::{
        caller_state::Errno,
        next_ioctl::{self, NEXT},
        resource_manager::{self, Answer, File},
    },
};

/// Makes a request of a device.
///
/// # Safety
///
/// The requirements of libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, record: *mut c_void) -> c_int {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "mov r10d, esi",
        "shr r10d, 8",
        "cmp r10b, {letter}",
        "je {drivers}",
        "jmp qword ptr [rip + {next}]",
        ".cfi_endproc",
        letter = const LETTER,
        drivers = sym of_the_driver,
        next = sym NEXT,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        ".cfi_startproc",
        "hint #34", // bti c
        "ubfx w16, w1, #8, #8",
        "cmp w16, #{letter}",
        "b.ne 2f",
        "b {drivers}",
        "2:",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        ".cfi_endproc",
        letter = const LETTER,
        drivers = sym of_the_driver,
        next = sym NEXT,
    );
}

/// Makes a request with the driver's letter.
unsafe extern "C" fn of_the_driver(
    descriptor: c_int,
    request: c_ulong,
    record: *mut c_void,
) -> c_int {
    // SAFETY: the caller's own arguments for this function.
    let done = unsafe { next_ioctl::get()(descriptor, request, record) };
    if done >= 0 {
        // SAFETY: the kernel has read this record and answered.
        if let Some(answer) = unsafe { resource_manager::answer(request, record) } {
            let _errno = Errno::keep();
            learn(descriptor, answer);
        }
    }
    done
}

#[cold]
fn learn(descriptor: c_int, answer: Answer) {
    match answer {
        Answer::Version(branch) => resource_manager::set_branch(branch),
        Answer::Released(object) => {
            if let Some(page) = managed_process::page() {
                page.channel_groups.remove(object);
            }
        }
        Answer::Group { object, parent } => {
            let (Some(file), Some(page)) = (File::of(descriptor), managed_process::make()) else {
                return;
            };
            page.channel_groups.add(Group {
                object,
                parent,
                descriptor,
                file,
                slice_us: 0,
            });
            wake_keeper();
        }
        Answer::Slice { object, us } => {
            if let Some(page) = managed_process::page() {
                page.channel_groups.slice_was_set(object, us);
                wake_keeper();
            }
        }
    }
}

fn wake_keeper() {
    if let Some(process) = managed_process::current() {
        process.ring();
    }
}
