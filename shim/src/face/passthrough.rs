//! Stubs for functions of the driver without a hook, so that their calls wait while the process is evicted.
//!
//! Without a stub, a call during an eviction would block in the driver, and the shim would not notice that the
//! application needs its device. So `dlsym` and `cuGetProcAddress` return a stub for a function without a hook. The
//! stub marks the thread as inside, waits while calls are suspended, and calls the driver with all arguments
//! unchanged. There is one stub for each function that was looked up, whatever its name and its signature. If there
//! are no stubs left, the function goes directly to the driver. A stub of a query ([`gpushare_abi::Query`]) does not
//! count the call as use of the device.
//!
//! A program that is linked to the driver looks up no address: the linker binds its calls to the first definition of
//! the name. So the shim also exports the names of driver functions without a hook, and those exports are stubs of
//! the same kind ([`export_of`]).
//!
//! The stub is the assembly of [`fast`](super::fast) without the gate: the return address and one register are in the
//! thread's record during the call, so that arguments on the stack stay in place.
#![allow(unsafe_code, reason = "calls the driver by address, from assembly")]

use std::{
    ffi::{CStr, c_void},
    mem,
    panic::catch_unwind,
    ptr::null_mut,
    sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed},
};

use gpushare_abi::{
    LEFT_OUT, LeftOut, Query,
    errors::{CUerror, CUresult},
    query_of,
};

use crate::{
    driver::library,
    eviction::{self, QueryPass},
    sys::caller_state::Errno,
    thread,
};

/// Number of functions that can have a stub of a request. A driver exports about 500.
const REQUESTS: usize = 1024;
/// Number of functions that can have a stub of a query; these stubs are behind the others.
const QUERIES: usize = 256;
const STUBS: usize = REQUESTS + QUERIES;
#[cfg(target_arch = "x86_64")]
const STUB_BYTES: usize = 16;

/// The target of each stub.
static TARGETS: [AtomicPtr<c_void>; STUBS] = [const { AtomicPtr::new(null_mut()) }; STUBS];

/// The [`Query`] of each stub of a query; 0 for a stub that is not used.
static QUERY_KINDS: [AtomicU8; QUERIES] = [const { AtomicU8::new(0) }; QUERIES];

/// Returns true if a name is one of the driver's; `cuda…`, `cublas…` and `cudbg…` are not.
pub fn is_drivers(name: &CStr) -> bool {
    let name = name.to_bytes();
    let never_waits = |(left_out, why): &(&str, LeftOut)| {
        *why == LeftOut::NeverWaits && left_out.as_bytes() == name
    };
    matches!(name, [b'c', b'u', third, ..] if third.is_ascii_uppercase())
        && !LEFT_OUT.iter().any(never_waits)
}

/// Returns the stub of a driver function without a hook, or `target` itself if it gets none.
pub fn stub_of(name: &CStr, target: *mut c_void) -> *mut c_void {
    if !thread::SEES_ALL || !library::is_drivers(target as usize) {
        return target;
    }
    let query = name.to_str().ok().and_then(query_of);
    let (begin, stubs) = match query {
        Some(_) => (REQUESTS, QUERIES),
        None => (0, REQUESTS),
    };
    let first = (target as usize >> 4).wrapping_mul(0x9e37_79b9) % stubs;
    for step in 0..stubs {
        let at = begin + (first + step) % stubs;
        let place = &TARGETS[at];
        let known = match place.compare_exchange(null_mut(), target, Relaxed, Relaxed) {
            Ok(_) => target,
            Err(known) => known,
        };
        if known == target {
            if let Some(query) = query {
                QUERY_KINDS[at - REQUESTS].store(query as u8, Relaxed);
            }
            return stub(at);
        }
    }
    target
}

#[cfg(target_arch = "x86_64")]
fn stub(at: usize) -> *mut c_void {
    unsafe extern "C" {
        static gpushare_stubs: u8;
    }
    let first = &raw const gpushare_stubs;
    first.wrapping_add(at * STUB_BYTES).cast_mut().cast()
}

#[cfg(not(target_arch = "x86_64"))]
fn stub(at: usize) -> *mut c_void {
    TARGETS[at].load(Relaxed)
}

/// Returns the shim's export of a driver function without a hook, for linked programs; NULL if there is none.
#[cfg(target_arch = "x86_64")]
pub fn export_of(name: &CStr) -> *mut c_void {
    let found = linked::NAMES.binary_search(&name);
    found.map_or(null_mut(), |at| linked::EXPORTS[at] as *mut c_void)
}

/// Returns NULL: this architecture has no such exports.
#[cfg(not(target_arch = "x86_64"))]
pub fn export_of(_name: &CStr) -> *mut c_void {
    null_mut()
}

/// Saves all registers that may hold arguments, and r10 and r11, which the stubs use. The stack is aligned
/// afterwards.
#[cfg(target_arch = "x86_64")]
macro_rules! keep_arguments {
    () => {
        concat!(
            "push rdi\n.cfi_adjust_cfa_offset 8\n",
            "push rsi\n.cfi_adjust_cfa_offset 8\n",
            "push rdx\n.cfi_adjust_cfa_offset 8\n",
            "push rcx\n.cfi_adjust_cfa_offset 8\n",
            "push r8\n.cfi_adjust_cfa_offset 8\n",
            "push r9\n.cfi_adjust_cfa_offset 8\n",
            "push r10\n.cfi_adjust_cfa_offset 8\n",
            "push r11\n.cfi_adjust_cfa_offset 8\n",
            "sub rsp, 72\n.cfi_adjust_cfa_offset 72\n",
            "movups xmmword ptr [rsp], xmm0\n",
            "movups xmmword ptr [rsp + 16], xmm1\n",
            "movups xmmword ptr [rsp + 32], xmm2\n",
            "movups xmmword ptr [rsp + 48], xmm3\n",
        )
    };
}

/// Restores the saved registers.
#[cfg(target_arch = "x86_64")]
macro_rules! restore_arguments {
    () => {
        concat!(
            "movups xmm0, xmmword ptr [rsp]\n",
            "movups xmm1, xmmword ptr [rsp + 16]\n",
            "movups xmm2, xmmword ptr [rsp + 32]\n",
            "movups xmm3, xmmword ptr [rsp + 48]\n",
            "add rsp, 72\n.cfi_adjust_cfa_offset -72\n",
            "pop r11\n.cfi_adjust_cfa_offset -8\n",
            "pop r10\n.cfi_adjust_cfa_offset -8\n",
            "pop r9\n.cfi_adjust_cfa_offset -8\n",
            "pop r8\n.cfi_adjust_cfa_offset -8\n",
            "pop rcx\n.cfi_adjust_cfa_offset -8\n",
            "pop rdx\n.cfi_adjust_cfa_offset -8\n",
            "pop rsi\n.cfi_adjust_cfa_offset -8\n",
            "pop rdi\n.cfi_adjust_cfa_offset -8\n",
        )
    };
}

/// The exports of functions without a hook, for programs linked to the driver: the linker finds them before the
/// driver's.
#[cfg(target_arch = "x86_64")]
mod linked {
    use super::*;

    macro_rules! exports {
        ($($name:ident $(:$query:ident)?)*) => {
            #[allow(non_camel_case_types, reason = "the driver's own names")]
            #[allow(clippy::enum_variant_names, reason = "the driver's own names")]
            enum Number {
                $($name,)*
            }

            /// The names of the exports, sorted.
            pub static NAMES: [&CStr; COUNT] = [
                $(c_str(concat!(stringify!($name), "\0")),)*
            ];
            const COUNT: usize = [$(stringify!($name)),*].len();

            /// The queries among the exports, in the order of their names.
            pub static QUERIES: [Option<Query>; COUNT] = [$(query!($($query)?),)*];

            /// The exports, in the order of their names.
            pub static EXPORTS: [unsafe extern "C" fn(); COUNT] = [$($name,)*];

            $(
                #[doc = concat!("`", stringify!($name), "` as linked programs reach it.")]
                ///
                /// # Safety
                ///
                /// The requirements of the driver's documentation.
                #[cfg_attr(not(test), unsafe(no_mangle))]
                #[allow(non_snake_case, reason = "the driver's own name")]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() {
                    std::arch::naked_asm!(
                        "mov r11d, {number}",
                        entry!($($query)?),
                        number = const Number::$name as u32,
                    )
                }
            )*
        };
    }

    macro_rules! query {
        () => {
            None
        };
        ($query:ident) => {
            Some(Query::$query)
        };
    }

    macro_rules! entry {
        () => {
            "jmp gpushare_linked"
        };
        ($query:ident) => {
            "jmp gpushare_linked_query"
        };
    }

    gpushare_abi::other_functions!(exports);

    const fn c_str(name: &'static str) -> &'static CStr {
        match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a function's name has no NUL inside"),
        }
    }

    /// The target of each export, at first the function that finds the driver's.
    pub static TARGETS: [AtomicPtr<c_void>; COUNT] =
        [const { AtomicPtr::new(find_and_go as *mut c_void) }; COUNT];

    /// Finds the function whose number is in r11, and jumps there with the caller's arguments.
    #[unsafe(naked)]
    unsafe extern "C" fn find_and_go() {
        std::arch::naked_asm!(
            ".cfi_startproc",
            keep_arguments!(),
            "mov edi, r11d",
            "call {find}",
            "mov qword ptr [rsp + 72], rax", // where r11 is kept
            restore_arguments!(),
            "jmp r11",
            ".cfi_endproc",
            find = sym find,
        )
    }

    /// Returns the address of the driver's function with this number.
    extern "C" fn find(number: u32) -> *mut c_void {
        let _errno = Errno::keep();
        let found = catch_unwind(|| library::find_unhooked(NAMES[number as usize]));
        match found {
            Ok(real) if !real.is_null() => {
                TARGETS[number as usize].store(real, Relaxed);
                real
            }
            _ => missing as *mut c_void,
        }
    }

    /// Returns the error for a function that the driver does not have.
    extern "C" fn missing() -> u32 {
        gpushare_abi::errors::CUDA_ERROR_NOT_FOUND.code()
    }
}

/// Results for a stub that are no code to return; codes are above [`RETURN`].
const TRY_AGAIN: u64 = 0;
const GO_STRAIGHT_ON: u64 = u64::MAX;
const RETURN: u64 = 1 << 32;

/// Prepares a call whose stub found no record of the thread, or suspended calls. `first` is the call's first argument,
/// and `number` its target in `targets`. Returns how to continue, or the code to return.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "there are no stubs")
)]
extern "C" fn clear_the_way(first: usize, number: u32, targets: usize) -> u64 {
    let _errno = Errno::keep();
    let cleared = catch_unwind(|| -> Result<u64, CUerror> {
        let Some(inside) = thread::Inside::enter() else {
            return Ok(TRY_AGAIN);
        };
        if !thread::is_suspended() {
            return Ok(TRY_AGAIN);
        }
        let Some(query) = query_at(number as usize, targets) else {
            eviction::wait_until_resumed(inside.thread())?;
            // The mark stays, for the stub continues the call.
            mem::forget(inside);
            return Ok(GO_STRAIGHT_ON);
        };
        Ok(match eviction::pass_query(inside.thread(), query, first)? {
            QueryPass::Driver => {
                mem::forget(inside);
                GO_STRAIGHT_ON
            }
            QueryPass::Answer(answer) => RETURN | u64::from(code(answer)),
        })
    });
    match cleared {
        Ok(Ok(how)) => how,
        Ok(Err(error)) => RETURN | u64::from(error.code()),
        Err(_) => GO_STRAIGHT_ON,
    }
}

fn code(answer: CUresult) -> u32 {
    answer.map_or_else(|error| error.code(), |()| 0)
}

/// Returns the kind of the query with this number; `None` for a request.
fn query_at(number: usize, targets: usize) -> Option<Query> {
    if targets == TARGETS.as_ptr() as usize {
        let at = number.checked_sub(REQUESTS)?;
        let kind = QUERY_KINDS[at].load(Relaxed);
        return Query::ALL.into_iter().find(|query| *query as u8 == kind);
    }
    #[cfg(target_arch = "x86_64")]
    let kind = linked::QUERIES[number];
    // This architecture has no exports for linked programs.
    #[cfg(not(target_arch = "x86_64"))]
    let kind = None;
    kind
}

/// The way of a call through its stub or its export: the target is at `[r10 + 8*r11]`. `$mark` marks the thread as inside, and
/// `$count` counts the call.
#[cfg(target_arch = "x86_64")]
macro_rules! through {
    ($stub:literal, $linked:literal, $through:literal, $mark:literal, $count:literal) => {
        concat!(
            ".balign 64\n",
            ".cfi_startproc\n",
            ".cfi_personality 0x1b, {personality}\n",
            ".hidden ",
            $linked,
            "\n.globl ",
            $linked,
            "\n.type ",
            $linked,
            ", @function\n",
            $linked,
            ":\n", // from an export: its number is in r11
            "lea r10, [rip + {linked}]\n",
            "jmp ",
            $through,
            "\n",
            $stub,
            ":\n",
            "lea r10, [rip + {targets}]\n",
            $through,
            ":\n",
            "mov rax, qword ptr [rip + gpushare_thread@GOTTPOFF]\n",
            "mov rax, qword ptr fs:[rax]\n",
            "test rax, rax\n",
            "je 3f\n",
            "cmp dword ptr [rax + {inside}], 0\n",
            "jne 4f\n", // within a call already: straight on
            "mov qword ptr [rax + {entered}], rsp\n",
            "mov dword ptr [rax + {inside}], ",
            $mark,
            "\n",
            "cmp dword ptr [rip + {suspension}], 0\n",
            "jne 2f\n",
            "5:\n",
            $count,
            super::fast::call_in_place!("call qword ptr [r10 + 8*r11]\n"),
            super::fast::return_from_place!(),
            "4:\n",
            "jmp qword ptr [r10 + 8*r11]\n",
            "2:\n",
            "mov dword ptr [rax + {inside}], 0\n",
            "3:\n",
            keep_arguments!(),
            "mov esi, r11d\n",
            "mov rdx, r10\n",
            "call {clear_the_way}\n",
            restore_arguments!(),
            "test rax, rax\n",
            "je ",
            $through,
            "\n",
            "cmp rax, {straight_on}\n",
            "jne 6f\n",
            "mov rax, qword ptr [rip + gpushare_thread@GOTTPOFF]\n",
            "mov rax, qword ptr fs:[rax]\n",
            "test rax, rax\n",
            "je 4b\n",
            "mov qword ptr [rax + {entered}], rsp\n",
            "mov dword ptr [rax + {inside}], ",
            $mark,
            "\n",
            "jmp 5b\n",
            "6:\n",
            "ret\n",
            ".cfi_endproc\n",
        )
    };
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.gpushare_stubs,\"ax\",@progbits",
    ".balign 64",
    ".hidden gpushare_stubs",
    ".globl gpushare_stubs",
    ".type gpushare_stubs, @function",
    "gpushare_stubs:",
    ".set .Lgpushare_stub, 0",
    ".rept {stubs}",
    "mov r11d, .Lgpushare_stub",
    ".if .Lgpushare_stub < {requests}",
    "jmp .Lgpushare_request",
    ".else",
    "jmp .Lgpushare_query",
    ".endif",
    ".balign 16",
    ".set .Lgpushare_stub, .Lgpushare_stub + 1",
    ".endr",
    through!(
        ".Lgpushare_request",
        "gpushare_linked",
        ".Lgpushare_request_through",
        "{elsewhere}",
        "inc qword ptr [rax + {count}]\n"
    ),
    through!(
        ".Lgpushare_query",
        "gpushare_linked_query",
        ".Lgpushare_query_through",
        "{asking}",
        ""
    ),
    ".popsection",
    personality = sym super::fast::personality,
    stubs = const STUBS,
    requests = const REQUESTS,
    targets = sym TARGETS,
    linked = sym linked::TARGETS,
    suspension = sym crate::thread::SUSPENSION,
    clear_the_way = sym clear_the_way,
    inside = const thread::offset::INSIDE,
    entered = const thread::offset::ENTERED,
    elsewhere = const u32::MAX,
    asking = const thread::ASKING,
    straight_on = const -1,
    count = const thread::offset::REQUESTS,
    return_address = const thread::offset::RETURN_ADDRESS,
    saved_register = const thread::offset::SAVED_REGISTER,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_driver_is_told_from_those_of_its_libraries() {
        for (name, is) in [
            (c"cuEventQuery", true),
            (c"cuNoSuch", true),
            (c"cuDriverGetVersion", false),
            (c"cudaMalloc", false),
            (c"cublasCreate_v2", false),
            (c"cu", false),
        ] {
            assert_eq!(is_drivers(name), is, "{name:?}");
        }
    }
}
