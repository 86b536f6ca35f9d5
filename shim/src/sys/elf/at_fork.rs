//! A fork that waits until no thread visits the loaded objects or registers the process.
//!
//! glibc (2.36) locks the linker's list for a visit, and does not unlock it in the child of a fork. A child whose
//! parent forked during a visit of another thread would then wait for ever in its first own one.
#![allow(unsafe_code, reason = "registers handlers of forks")]

use std::{
    ffi::{c_int, c_void},
    mem::transmute,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::*},
    time::Duration,
};

use super::link_map;
use crate::sys::futex;

/// The threads that visit, and in the upper half the threads that fork.
static THREADS: AtomicU64 = AtomicU64::new(0);
const VISITING: u64 = 1;
const FORKING: u64 = 1 << 32;

/// A fork within a visit, or a visit within another, would wait for itself. Then it goes on after this time.
const PATIENCE: Duration = Duration::from_millis(100);
const STEP: Duration = Duration::from_micros(50);

type Handler = unsafe extern "C" fn();
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const c_void) -> c_int;

unsafe extern "C" {
    /// The mark of this library, by which glibc forgets its handlers if it is unloaded.
    #[link_name = "__dso_handle"]
    static THIS_LIBRARY: *const c_void;
}

/// Makes each fork of this process and of its children wait for the visits of other threads. Does nothing where glibc's function,
/// of which `pthread_atfork` is made, does not exist: musl itself takes the linker's lock for a fork.
pub fn wait_for_visits() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if REGISTERED.swap(true, Relaxed) {
        return;
    }
    let Some(register) = link_map::find(c"libc.so.6", c"__register_atfork") else {
        return;
    };
    // SAFETY: glibc's function of this name has this type.
    let register = unsafe { transmute::<*mut c_void, Register>(register) };
    // SAFETY: the handlers are functions of this library.
    unsafe { register(before, after, in_child, (&raw const THIS_LIBRARY).cast()) };
}

unsafe extern "C" fn before() {
    // ORDER: Acquire and Release: a visit of another thread is seen here, or it sees this fork.
    THREADS.fetch_add(FORKING, AcqRel);
    wait_while(|threads| threads % FORKING != 0);
}

unsafe extern "C" fn after() {
    // ORDER: Release, so that what the fork did is before what a visit does.
    THREADS.fetch_sub(FORKING, Release);
}

unsafe extern "C" fn in_child() {
    THREADS.store(0, Relaxed);
}

/// Waits while the threads are such, and returns what they are then.
fn wait_while(such: impl Fn(u64) -> bool) -> u64 {
    let mut left = PATIENCE;
    loop {
        // ORDER: Acquire pairs with the Release of a visit's or a fork's end.
        let threads = THREADS.load(Acquire);
        if !such(threads) || left.is_zero() {
            return threads;
        }
        futex::nap(STEP);
        left = left.saturating_sub(STEP);
    }
}

/// A visit of the calling thread, or a registration.
pub struct Visit;

impl Visit {
    /// Begins when no thread forks.
    pub fn begin() -> Self {
        loop {
            let threads = wait_while(|threads| threads >= FORKING);
            // ORDER: as in `before`.
            if THREADS
                .compare_exchange(threads, threads + VISITING, AcqRel, Relaxed)
                .is_ok()
            {
                return Self;
            }
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // The child of a signal handler's fork begins at zero, also within a visit.
        // ORDER: Release pairs with the Acquire of a fork that waits.
        let _ = THREADS.fetch_update(Release, Relaxed, |threads| threads.checked_sub(VISITING));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, mpsc},
        thread,
        time::Instant,
    };

    use super::*;
    use crate::sys::elf;

    /// Each test has the process's only count of visits for itself.
    static TURN: Mutex<()> = Mutex::new(());

    /// Returns true if the child ends by itself.
    fn ends(child: libc::pid_t) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            let mut status = 0;
            // SAFETY: the result is a local variable.
            if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
                return status == 0;
            }
            futex::nap(Duration::from_millis(1));
        }
        // SAFETY: the child is this test's own.
        unsafe { libc::kill(child, libc::SIGKILL) };
        false
    }

    #[test]
    fn the_child_of_a_fork_during_a_visit_can_visit() {
        let _turn = TURN.lock();
        wait_for_visits();
        let (begun, begins) = mpsc::channel();
        let visitor = thread::spawn(move || {
            elf::visit(|_| {
                let _ = begun.send(());
                futex::nap(Duration::from_millis(20));
                Some(())
            })
        });
        begins.recv().expect("the visit begins");
        // SAFETY: the child calls nothing but the visit, and leaves without handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let found = elf::visit(|_| Some(()));
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(found.is_none())) };
        }
        assert!(
            ends(child),
            "the child waits for the visit of a thread that it does not have"
        );
        assert_eq!(visitor.join().expect("the visitor ends"), Some(()));
    }

    #[test]
    fn a_fork_waits_for_a_visit_but_not_for_ever() {
        let _turn = TURN.lock();
        wait_for_visits();
        let _within = Visit::begin();
        // SAFETY: the child leaves at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        assert!(ends(child));
    }
}
