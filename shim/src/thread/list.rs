//! All threads' records: how a thread gets one, and leaves it to the next.
#![allow(unsafe_code, reason = "the list of records")]

use std::{
    cell::Cell,
    ffi::c_void,
    ptr::null_mut,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*},
    },
};

use super::{
    generation,
    record::{ELSEWHERE, NO_STREAM, Thread},
    slot::{set_slot, slot},
    tracing::Tracing,
};
use crate::{
    door,
    driver::library,
    gate,
    protocol::submission::OUTSIDE,
    sys::{
        own_thread,
        thread_start::{self, Start},
    },
};

/// All records that were ever made. Those of another [`generation`] are kept for leak checkers alone, which look for what
/// is in reach of a static.
static THREADS: AtomicPtr<Thread> = AtomicPtr::new(null_mut());
static EXIT_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// The calling thread's record, if it has one.
#[inline(always)]
pub fn current() -> Option<&'static Thread> {
    // SAFETY: the slot is NULL or a record, and records are never freed.
    unsafe { slot().as_ref() }
}

/// The calling thread's record.
#[inline(always)]
pub fn attached() -> &'static Thread {
    match current() {
        Some(thread) if thread.is_current() => thread,
        _ => attach(),
    }
}

/// Every record of this process, whether its thread still runs or not.
pub fn all() -> impl Iterator<Item = &'static Thread> {
    every().filter(|thread| thread.is_current())
}

/// Kernels that the process launched on a device.
pub fn launches(ordinal: u8) -> u64 {
    all().fold(0, |sum, thread| sum.wrapping_add(thread.launches(ordinal)))
}

fn every() -> impl Iterator<Item = &'static Thread> {
    // ORDER: pairs with the Release push in `attach`; the record is whole.
    let first = THREADS.load(Acquire);
    // SAFETY: the list holds records only, and records are never freed.
    std::iter::successors(unsafe { first.as_ref() }, |thread| {
        // SAFETY: as above.
        unsafe { thread.next.load(Relaxed).as_ref() }
    })
}

/// The process arrives: records made before are not used any more, not even to pass a gate.
pub fn begin_anew() {
    generation::begin();
    every().for_each(Thread::unsettle_from_outside);
}

/// In a hook until dropped: calls made meanwhile by the driver itself go straight on.
pub struct Inside(Cell<&'static Thread>);

impl Inside {
    /// Enters, unless the thread is in a hook already.
    #[inline(always)]
    pub fn enter() -> Option<Self> {
        let thread = attached();
        if thread.is_in_a_hook() {
            return None;
        }
        thread.inside.store(ELSEWHERE, Relaxed);
        Some(Self(Cell::new(thread)))
    }

    /// The same for a thread of ours.
    pub fn enter_as_ours() -> Option<Self> {
        let inside = Self::enter()?;
        inside.thread().ours.store(true, Relaxed);
        inside.thread().say_answered(false);
        Some(inside)
    }
}

impl Inside {
    /// The thread that is.
    #[inline(always)]
    pub fn thread(&self) -> &'static Thread {
        self.0.get()
    }

    /// The process has arrived within this call: the thread is inside by its new record, which is one of [`all`].
    pub fn renew(&self) -> &'static Thread {
        let (before, now) = (self.0.get(), attached());
        if !std::ptr::eq(before, now) {
            now.inside.store(ELSEWHERE, Relaxed);
            before.inside.store(OUTSIDE, Relaxed);
            self.0.set(now);
        }
        now
    }

    /// Runs `wait` outside: nothing in there may ask the driver.
    pub fn outside<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.thread().outside(wait)
    }
}

impl Thread {
    /// Runs `wait` outside, if this thread is inside a call that submits nothing: nothing in there may ask the driver.
    pub fn outside<T>(&self, wait: impl FnOnce() -> T) -> T {
        let before = self.inside.load(Relaxed);
        if before != ELSEWHERE {
            return wait();
        }
        // ORDER: pairs with the Acquire in `is_inside_anything`; what was asked until now was answered.
        self.inside.store(OUTSIDE, Release);
        let waited = wait();
        self.inside.store(ELSEWHERE, Relaxed);
        waited
    }
}

impl Thread {
    /// Whether the driver started the calling thread, whose record this is: its first function is the driver's. Threads on which
    /// the driver runs callbacks are among them; they have the program's name. Where the C library does not tell, the name
    /// decides.
    pub fn see_who_started_it(&self) -> bool {
        let drivers = match thread_start::of_caller() {
            Start::At(function) => library::is_drivers(function),
            Start::Unknown => thread_start::has_a_name_of_the_drivers(),
            // The first threads of ours begin within the first `cuInit`, before the driver calls anything.
            Start::NotLearned => false,
        };
        self.drivers.store(drivers, Relaxed);
        drivers
    }

    /// Whether it may be one that the driver started though nothing tells: it was first seen while the door was closed.
    pub fn may_be_the_drivers(&self) -> bool {
        self.stranger.load(Relaxed) && thread_start::of_caller() == Start::Unknown
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        // A fork within the call leaves the child with a fresh record; only ours is ours to leave.
        // ORDER: pairs with the Acquire in `is_inside_anything`; the call has been made.
        self.thread().inside.store(OUTSIDE, Release);
    }
}

#[cold]
#[inline(never)]
fn attach() -> &'static Thread {
    let thread = all()
        .find(|thread| {
            // ORDER: pairs with the Release in `detach`; the record is as its last thread left it.
            thread
                .in_use
                .compare_exchange(false, true, Acquire, Relaxed)
                .is_ok()
        })
        .unwrap_or_else(make);
    thread.unsettle();
    thread.forget_recent();
    thread.stranger.store(!door::is_open(), Relaxed);
    thread.ours.store(false, Relaxed);
    thread.see_who_started_it();
    thread.inside.store(OUTSIDE, Relaxed);
    thread.tid.store(own_thread::id(), Relaxed);
    thread.waits_for_quota.store(false, Relaxed);
    thread.tracing.begins();
    let record = std::ptr::from_ref(thread).cast_mut();
    set_slot(record);
    tell_me_when_it_ends(record);
    thread
}

fn make() -> &'static Thread {
    let thread: &'static Thread = Box::leak(Box::new(Thread {
        gate: AtomicPtr::new(std::ptr::from_ref(gate::always_closed()).cast_mut()),
        inside: AtomicU32::new(OUTSIDE),
        here: AtomicU32::new(0),
        last: [const { AtomicUsize::new(NO_STREAM) }; 2],
        tally: AtomicPtr::new(null_mut()),
        return_address: Cell::new(0),
        saved_register: Cell::new(0),
        launched: AtomicU64::new(0),
        recent: Default::default(),
        context: Cell::new(0),
        home: Cell::new(0),
        streams: Mutex::new(Vec::new()),
        calls: AtomicU64::new(0),
        stranger: AtomicBool::new(false),
        ours: AtomicBool::new(false),
        answered: AtomicBool::new(false),
        drivers: AtomicBool::new(false),
        tid: AtomicU32::new(0),
        waits_for_quota: AtomicBool::new(false),
        tracing: Tracing::default(),
        in_use: AtomicBool::new(true),
        generation: generation::now(),
        next: AtomicPtr::new(null_mut()),
        tallies: Default::default(),
    }));
    thread
        .tally
        .store(std::ptr::from_ref(thread.tally(0)).cast_mut(), Relaxed);
    let record = std::ptr::from_ref(thread).cast_mut();
    let mut first = THREADS.load(Relaxed);
    loop {
        thread.next.store(first, Relaxed);
        // ORDER: pairs with the Acquire load in `all`; publishes the record.
        match THREADS.compare_exchange_weak(first, record, Release, Relaxed) {
            Ok(_) => return thread,
            Err(now) => first = now,
        }
    }
}

/// Makes the key whose destructor hands records on. Called once, before the first record.
fn exit_key() -> libc::pthread_key_t {
    let known = EXIT_KEY.load(Relaxed);
    if known != u32::MAX {
        return known;
    }
    let mut key = 0;
    // SAFETY: the destructor is a plain function of this library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(detach)) } != 0 {
        return u32::MAX;
    }
    match EXIT_KEY.compare_exchange(u32::MAX, key, Relaxed, Relaxed) {
        Ok(_) => key,
        Err(other) => {
            // SAFETY: the key is ours and no other thread knows it.
            unsafe { libc::pthread_key_delete(key) };
            other
        }
    }
}

fn tell_me_when_it_ends(record: *mut Thread) {
    let key = exit_key();
    if key != u32::MAX {
        // SAFETY: the key lives as long as the process. A failure leaks one record.
        unsafe { libc::pthread_setspecific(key, record.cast()) };
    }
}

extern "C" fn detach(record: *mut c_void) {
    set_slot(null_mut());
    // SAFETY: the key's value is a record, and records are never freed.
    let thread = unsafe { &*record.cast::<Thread>() };
    thread.inside.store(OUTSIDE, Relaxed);
    // ORDER: pairs with the Acquire in `attach`; the next thread continues this record.
    thread.in_use.store(false, Release);
}
