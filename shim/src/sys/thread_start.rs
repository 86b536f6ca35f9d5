//! The function with which a thread was started. It shows who started the thread; the thread's name does not, because
//! it may be inherited or chosen freely.
//!
//! The C library keeps that function in the thread's descriptor and has no call for it. The function of a thread of the
//! shim is known, so the descriptor is searched for it.
#![allow(unsafe_code, reason = "reads threads' descriptors")]

use std::{
    ffi::c_void,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::own_thread::{self, Body};

/// The function with which a thread was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The function at this address; 0 for the program's first thread.
    At(usize),
    /// No descriptor was searched yet.
    NotLearned,
    /// The C library does not keep it, or a library such as a sanitizer starts threads with a function of its own.
    Unknown,
}

/// Bytes of a thread's descriptor that are searched. glibc's is longer on every supported processor and version; it
/// keeps the function at 0x638 or 0x640 (x86-64).
const DESCRIPTOR: usize = 0x6c0;
const WORD: usize = size_of::<usize>();
/// Value of [`START_AT`] before a search, and after one that found nothing.
const NOT_LEARNED: usize = 0;
const UNKNOWN: usize = usize::MAX;
/// Offset of the function in a thread's descriptor.
static START_AT: AtomicUsize = AtomicUsize::new(NOT_LEARNED);

/// Starts a thread of the shim that lasts as long as the process, and learns from it where the C library keeps a thread's
/// function. Returns false if it cannot be started.
pub fn start<T: Sync>(argument: &'static T, body: Body) -> bool {
    let started = own_thread::start_for_id(argument, body);
    if let Some(thread) = started {
        learn(thread, body, own_thread::address(argument));
    }
    started.is_some()
}

/// Searches a thread's descriptor for its function. The thread was started with `body` and `argument`, and must not end
/// before this returns. It need not have run yet: the C library writes both before it starts the thread. So a callback
/// that comes before the shim's first thread runs is recognised too.
fn learn(thread: libc::pthread_t, body: Body, argument: *mut c_void) {
    let here = thread as usize;
    let mine = [body as usize, argument as usize];
    let at = (WORD..readable(here).saturating_sub(WORD))
        .step_by(WORD)
        .find(|at| [word(here + at), word(here + at + WORD)] == mine);
    START_AT.store(at.unwrap_or(UNKNOWN), Relaxed);
}

/// Returns the function with which the calling thread was started.
pub fn of_caller() -> Start {
    match START_AT.load(Relaxed) {
        NOT_LEARNED => Start::NotLearned,
        UNKNOWN => Start::Unknown,
        at => Start::At(word(descriptor() + at)),
    }
}

fn descriptor() -> usize {
    // SAFETY: no arguments.
    unsafe { libc::pthread_self() as usize }
}

/// Returns how many of the searched bytes after a thread's descriptor are mapped.
fn readable(descriptor: usize) -> usize {
    // SAFETY: the argument is a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(DESCRIPTOR);
    let first = descriptor / page * page;
    let end = descriptor + DESCRIPTOR;
    let mut resident = [0_u8; 2];
    // SAFETY: the kernel writes a byte for each of at most two pages; a page that is not mapped is an error.
    let mapped = unsafe { libc::mincore(first as *mut c_void, end - first, resident.as_mut_ptr()) };
    if mapped == 0 {
        DESCRIPTOR
    } else {
        DESCRIPTOR.min(first + page - descriptor)
    }
}

fn word(address: usize) -> usize {
    // SAFETY: an aligned word of the descriptor of a thread that lives, or after it in memory that `readable` has found
    // mapped.
    unsafe { std::ptr::read_volatile(address as *const usize) }
}

/// Returns true if the calling thread has a name that the driver gives its own threads: `cuda-EvtHandlr`, or `cuda`
/// and eleven hexadecimal digits. The program's first thread is never one of them.
pub fn has_a_name_of_the_drivers() -> bool {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    own_thread::id() != std::process::id() && is_a_name_of_the_drivers(&name)
}

/// Returns true if a name, padded with zeroes, is one of a driver's thread.
fn is_a_name_of_the_drivers(name: &[u8; 16]) -> bool {
    let digits = |rest: &[u8]| rest.len() == 11 && rest.iter().all(u8::is_ascii_hexdigit);
    let name = name.split(|byte| *byte == 0).next().unwrap_or(name);
    name == b"cuda-EvtHandlr" || name.strip_prefix(b"cuda").is_some_and(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_drivers_is_known_by_its_exact_form() {
        for (name, is) in [
            ("cuda-EvtHandlr", true),
            ("cuda00001400006", true),
            ("cuda00001c0000a", true),
            ("cuda-train", false),
            ("cuda-EvtHandler", false),
            ("cuda-EvtHandl", false),
            ("cuda0", false),
            ("cuda12-worker", false),
            ("cuda0000140000x", false),
            ("cuda", false),
            ("", false),
        ] {
            let mut bytes = [0; 16];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            assert_eq!(is_a_name_of_the_drivers(&bytes), is, "{name}");
        }
    }

    #[test]
    fn a_thread_knows_what_it_was_started_with_once_one_of_ours_has_looked() {
        extern "C" fn body(argument: *mut c_void) -> *mut c_void {
            // SAFETY: no arguments.
            learn(unsafe { libc::pthread_self() }, body, argument);
            assert_eq!(of_caller(), Start::At(body as *const () as usize));
            argument
        }
        static ARGUMENT: u8 = 0;
        // SAFETY: all-zero is a valid pthread_t to be overwritten.
        let mut id: libc::pthread_t = unsafe { std::mem::zeroed() };
        let argument = (&raw const ARGUMENT).cast_mut().cast();
        // SAFETY: the argument is a static's address, which the body returns.
        let error = unsafe { libc::pthread_create(&mut id, std::ptr::null(), body, argument) };
        assert_eq!(error, 0);
        // SAFETY: a thread of this test, joined once.
        unsafe { libc::pthread_join(id, std::ptr::null_mut()) };
        let other = std::thread::spawn(of_caller).join().expect("no panic");
        assert!(
            matches!(other, Start::At(start) if start != 0 && start != body as *const () as usize)
        );
    }

    #[test]
    fn a_threads_function_is_found_before_the_thread_has_run() {
        static GATE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        extern "C" fn body(argument: *mut c_void) -> *mut c_void {
            drop(GATE.lock());
            argument
        }
        let gate = GATE.lock().expect("no panic");
        assert!(start(&GATE, body));
        let other = std::thread::spawn(of_caller).join().expect("no panic");
        assert!(
            matches!(other, Start::At(start) if start != 0 && start != body as *const () as usize)
        );
        drop(gate);
    }
}
