//! What a thread was started with, which tells who started it: its name may be inherited, or be anybody's.
//!
//! The C library keeps that function in the thread's descriptor and has no call for it. A thread of ours knows its own function, and
//! looks where that is.
#![allow(unsafe_code, reason = "reads the calling thread's descriptor")]

use std::{
    ffi::c_void,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::own_thread::{self, Body};

/// The function that a thread was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this address; 0 for the program's first thread.
    At(usize),
    /// No thread of ours has [looked](learn) where the C library keeps it.
    NotLearned,
    /// The C library does not keep it, or something starts threads by a function of its own (a sanitizer).
    Unknown,
}

/// How many bytes of a thread's descriptor are looked at. That of glibc is longer on every processor and in every version that we
/// run on; it keeps the function at 0x638 or 0x640 (x86-64).
const DESCRIPTOR: usize = 0x6c0;
const WORD: usize = size_of::<usize>();
/// [`START_AT`] before a thread of ours has looked, and after it has found nothing.
const NOT_LEARNED: usize = 0;
const UNKNOWN: usize = usize::MAX;
/// Where in its thread's descriptor the function is.
static START_AT: AtomicUsize = AtomicUsize::new(NOT_LEARNED);

/// Finds where the C library keeps the function that a thread was started with. Called by a thread of ours, which knows its own.
pub fn learn(body: Body, argument: *mut c_void) {
    let here = descriptor();
    let mine = [body as usize, argument as usize];
    let at = (WORD..readable(here).saturating_sub(WORD))
        .step_by(WORD)
        .find(|at| [word(here + at), word(here + at + WORD)] == mine);
    START_AT.store(at.unwrap_or(UNKNOWN), Relaxed);
}

/// The function that the calling thread was started with.
pub fn of_caller() -> Start {
    match START_AT.load(Relaxed) {
        NOT_LEARNED => Start::NotLearned,
        UNKNOWN => Start::Unknown,
        at => Start::At(word(descriptor() + at)),
    }
}

fn descriptor() -> usize {
    // SAFETY: takes nothing.
    unsafe { libc::pthread_self() as usize }
}

/// How much is mapped from a thread's descriptor on, as far as it is looked at.
fn readable(descriptor: usize) -> usize {
    // SAFETY: takes a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(DESCRIPTOR);
    let first = descriptor / page * page;
    let end = descriptor + DESCRIPTOR;
    let mut resident = [0_u8; 2];
    // SAFETY: the kernel writes a byte for each page, of which there are two at most; one that is not mapped is an error.
    let mapped = unsafe { libc::mincore(first as *mut c_void, end - first, resident.as_mut_ptr()) };
    if mapped == 0 {
        DESCRIPTOR
    } else {
        DESCRIPTOR.min(first + page - descriptor)
    }
}

fn word(address: usize) -> usize {
    // SAFETY: an aligned word of the calling thread's own descriptor, or behind it of what `readable` has found mapped.
    unsafe { std::ptr::read_volatile(address as *const usize) }
}

/// Whether the calling thread has a name that the driver gives its own: `cuda-EvtHandlr`, or `cuda` and eleven hexadecimal
/// digits. The program's first thread is none of them, whatever its name.
pub fn has_a_name_of_the_drivers() -> bool {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes 16 bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    own_thread::id() != std::process::id() && is_a_name_of_the_drivers(&name)
}

/// The name is the one of a driver's thread, with zeroes behind it.
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
            learn(body, argument);
            assert_eq!(of_caller(), Start::At(body as *const () as usize));
            argument
        }
        static ARGUMENT: u8 = 0;
        // SAFETY: all-zero is a valid pthread_t to be overwritten.
        let mut id: libc::pthread_t = unsafe { std::mem::zeroed() };
        let argument = (&raw const ARGUMENT).cast_mut().cast();
        // SAFETY: the argument is a static's address, which the body hands back.
        let error = unsafe { libc::pthread_create(&mut id, std::ptr::null(), body, argument) };
        assert_eq!(error, 0);
        // SAFETY: a thread of our own, joined once.
        unsafe { libc::pthread_join(id, std::ptr::null_mut()) };
        let other = std::thread::spawn(of_caller).join().expect("no panic");
        assert!(
            matches!(other, Start::At(start) if start != 0 && start != body as *const () as usize)
        );
    }
}
