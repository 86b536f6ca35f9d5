//! The launch path of `cuLaunchKernel` in assembly (x86-64). It does the work of
//! [`launch::submit`](crate::hooks::launch::submit) without copying the eleven arguments.
//!
//! Five of them are on the stack, directly above the return address. So the return address moves into the thread's
//! record for the length of the call, and the driver is called in its place: its arguments are where the caller put
//! them. Afterwards the address is pushed again and an ordinary `ret` uses it, so the processor's return predictor
//! and a shadow stack see a normal call. The unwind tables describe where the address is during the call. `inside` is
//! set before the record is written and cleared after it was read, so a signal handler that launches finds the thread
//! inside, and uses the slow path.
//!
//! If the application leaves the call by unwinding (see [`catch`](caller_state::catch)), the unwinder calls the
//! [`personality`] of the function, which clears `inside`.
//!
//! Every other case (new thread, nested call, closed gate, another stream) goes to the ordinary function, with all
//! arguments unchanged.

#[cfg(target_arch = "x86_64")]
use std::ffi::{c_int, c_void};

#[cfg(target_arch = "x86_64")]
use crate::{sys::caller_state, thread};

/// Calls the driver with the return address in the thread's record (`rax`), so that the arguments on the stack stay
/// in place. The record is in `rbx` afterwards.
#[cfg(target_arch = "x86_64")]
macro_rules! call_in_place {
    ($call:literal) => {
        concat!(
            "pop qword ptr [rax + {return_address}]\n",
            ".cfi_def_cfa_offset 0\n",
            ".cfi_escape 0x10, 16, 2, 0x70, {return_address}\n", // return address at [rax + …]
            "mov qword ptr [rax + {saved_register}], rbx\n",
            "mov rbx, rax\n",
            ".cfi_escape 0x10, 16, 2, 0x73, {return_address}\n", // return address at [rbx + …]
            ".cfi_escape 0x10, 3, 2, 0x73, {saved_register}\n",  // rbx at [rbx + …]
            $call,
        )
    };
}

/// Pushes the return address again and returns to it.
#[cfg(target_arch = "x86_64")]
macro_rules! return_from_place {
    () => {
        concat!(
            "push qword ptr [rbx + {return_address}]\n",
            ".cfi_def_cfa_offset 8\n",
            ".cfi_offset 16, -8\n",
            "mov rdx, rbx\n",
            "mov rbx, qword ptr [rdx + {saved_register}]\n",
            ".cfi_restore 3\n",
            "mov dword ptr [rdx + {inside}], 0\n",
            "ret\n",
        )
    };
}

/// Defines the body of the naked function of this name.
#[cfg(target_arch = "x86_64")]
macro_rules! launch_kernel {
    ($name:ident) => {
        ::std::arch::naked_asm!(
            ".cfi_startproc",
            ".cfi_personality 0x1b, {personality}",
            "mov rax, qword ptr [rip + gpushare_thread@GOTTPOFF]",
            "mov rax, qword ptr fs:[rax]",
            "test rax, rax",
            "je 3f",
            "cmp dword ptr [rax + {inside}], 0",
            "jne 3f",
            "mov qword ptr [rax + {entered}], rsp",
            "mov dword ptr [rax + {inside}], {submitting}",
            "mov r11, qword ptr [rax + {gate}]",
            "mov r10, qword ptr [rsp + 24]", // the stream
            "cmp dword ptr [r11], {open}",
            "jne 2f",
            "cmp r10, qword ptr [rax + {last}]",
            "jne 2f",
            $crate::face::fast::call_in_place!("call qword ptr [rip + {addresses} + {address}]"),
            "inc qword ptr [rbx + {launched}]",
            $crate::face::fast::return_from_place!(),
            "2:",
            "mov dword ptr [rax + {inside}], 0",
            "3:",
            "jmp {slow}",
            ".balign 64", // of the function's section, and so of its beginning: it lies in two cache lines, not three
            ".cfi_endproc",
            personality = sym $crate::face::fast::personality,
            inside = const $crate::thread::offset::INSIDE,
            entered = const $crate::thread::offset::ENTERED,
            submitting = const $crate::gate::SUBMITTING,
            gate = const $crate::thread::offset::GATE,
            last = const $crate::thread::offset::LAST + 8 * Symbol::$name.per_thread() as usize,
            launched = const $crate::thread::offset::LAUNCHED,
            return_address = const $crate::thread::offset::RETURN_ADDRESS,
            saved_register = const $crate::thread::offset::SAVED_REGISTER,
            open = const $crate::gate::OPEN,
            addresses = sym $crate::driver::ADDRESSES,
            address = const 8 * Symbol::$name as usize,
            slow = sym $name::slow,
        )
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) use {call_in_place, launch_kernel, return_from_place};

/// Marks the thread as outside when the unwinder leaves a frame that has called the driver in place.
#[cfg(target_arch = "x86_64")]
pub extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    _exception: *mut c_void,
    _context: *mut c_void,
) -> c_int {
    if caller_state::leaves_frame(actions)
        && let Some(thread) = thread::current()
    {
        thread.end();
    }
    caller_state::CONTINUE
}

// The offsets have one byte each in the unwind tables above.
const _: () = assert!(
    crate::thread::offset::RETURN_ADDRESS < 64 && crate::thread::offset::SAVED_REGISTER < 64
);
