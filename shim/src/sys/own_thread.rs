//! Threads of the shim: a small stack, and none of the program's signals.
#![allow(unsafe_code, reason = "starts the thread by libc's own call")]

use std::{
    ffi::{CStr, c_void},
    mem::transmute,
};

use super::{libc_dl, signals::Blocked};

use crate::sys::caller_state::Unwatched;

/// Stack size of a thread in bytes, besides libc's own part.
const STACK: usize = 256 * 1024;
const LARGE_STACK: usize = 8 << 20;

/// The function of a thread.
pub type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a thread that takes no signals; `body` gets the address of `argument`. Returns false if it cannot be
/// started.
pub fn start<T: Sync>(argument: &'static T, body: Body) -> bool {
    start_for_id(argument, body).is_some()
}

/// Starts a thread like [`start`] and returns libc's number of it.
pub fn start_for_id<T: Sync>(argument: &'static T, body: Body) -> Option<libc::pthread_t> {
    start_with(argument, body, STACK)
}

/// Starts a thread like [`start`], with an ordinary thread's stack for calls of other libraries.
pub fn start_large<T: Sync>(argument: &'static T, body: Body) -> bool {
    start_with(argument, body, LARGE_STACK).is_some()
}

fn start_with<T: Sync>(argument: &'static T, body: Body, stack: usize) -> Option<libc::pthread_t> {
    // The new thread inherits the full mask, so none of the process's signals run there.
    let _blocked = Blocked::every();
    spawn(address(argument), body, stack)
}

/// Returns the argument that the function of a thread gets.
pub fn address<T>(argument: &'static T) -> *mut c_void {
    std::ptr::from_ref(argument).cast_mut().cast()
}

fn spawn(argument: *mut c_void, body: Body, stack: usize) -> Option<libc::pthread_t> {
    // SAFETY: all-zero is a valid attribute to be initialised.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: the attribute is a local variable.
    unsafe { libc::pthread_attr_init(&mut attributes) };
    let stack = stack.saturating_add(libcs_part_of_a_stack(&attributes));
    // SAFETY: initialised above. A refusal leaves the default stack.
    unsafe { libc::pthread_attr_setstacksize(&mut attributes, stack) };
    // SAFETY: initialised above.
    unsafe { libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED) };
    // SAFETY: all-zero is a valid pthread_t to be overwritten.
    let mut id: libc::pthread_t = unsafe { std::mem::zeroed() };
    // SAFETY: the argument is never freed; `body` takes its address.
    let error = unsafe { libc::pthread_create(&mut id, &attributes, body, argument) };
    // SAFETY: initialised above, and not used any more.
    unsafe { libc::pthread_attr_destroy(&mut attributes) };
    (error == 0).then_some(id)
}

/// Returns the bytes that libc uses of a thread's stack: the static TLS of every loaded module, its own record and
/// the guard page. In a program with much `__thread` data a small stack would have no room left. Only glibc reports
/// it (by a name without a public version, so it is looked up); musl adds the room itself.
fn libcs_part_of_a_stack(attributes: &libc::pthread_attr_t) -> usize {
    type MinStack = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    let found = libc_dl::of_libc(c"__pthread_get_minstack");
    if found.is_null() {
        return 0;
    }
    // SAFETY: glibc's function of this name has this type.
    let min_stack = unsafe { transmute::<*mut c_void, MinStack>(found) };
    // SAFETY: the attributes are initialised.
    unsafe { min_stack(attributes) }
}

/// Names the calling thread, in less than 16 bytes. The thread must keep the result until it ends.
pub fn begin(name: &'static CStr) -> Unwatched {
    // SAFETY: a C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    Unwatched::enter()
}

/// Returns the kernel's ID of the calling thread; 0 if it is not available.
pub fn id() -> u32 {
    // SAFETY: no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(tid).unwrap_or(0)
}
