//! The record of a thread: its counters, the gate that it checks, and whether it is inside a call.
//!
//! The launch path reaches the record by two loads (an initial-exec TLS slot) and touches no word that another thread
//! writes. The keeper reads the counters and `inside` of all records, and removes the streams of a device whose gate
//! it has closed. Records are never freed: a thread that ends leaves its record with its counters to the next one
//! that starts. The attachment of the process begins a new `generation`: records made before it are not used any
//! more.
//!
//! This file has the list of all records, the tally of a thread on a device (plain counters with one writer), and the
//! thread-local slot, eight bytes of initial-exec TLS.
//!
//! `thread_local!` would call `__tls_get_addr`. The slot's symbol is also read by the assembly of
//! `face::fast`.
#![allow(unsafe_code, reason = "the list of records; reads and writes the slot")]

mod record;

pub use record::{ASKING, Thread, UNMANAGED, Used, offset, stream_key};

use std::{
    arch::{asm, global_asm},
    cell::Cell,
    ffi::c_void,
    ptr::null_mut,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*},
    },
};

use crate::{
    driver::{self, library},
    gate::{self, CLOSED, Gate, OUTSIDE},
    sys::{
        caller_state::{Errno, ErrnoPlace, Uncancelled},
        own_thread,
        thread_start::{self, Start},
    },
};
use record::{ELSEWHERE, NO_STREAM, Tracing};

/// True if calls of functions without a hook are seen as well. Their stubs exist only for x86-64.
pub const SEES_ALL: bool = cfg!(target_arch = "x86_64");

/// The suspension of calls ([`gate`]); the assembly of `face::passthrough` reads it.
pub static SUSPENSION: AtomicU32 = AtomicU32::new(gate::RUNNING);

/// Returns true if a thread that is marked as inside must not call the driver.
#[inline(always)]
pub fn is_suspended() -> bool {
    !gate::is_running(&SUSPENSION)
}

static ALWAYS_CLOSED: Gate = Gate(AtomicU32::new(CLOSED));

/// Returns the gate of a thread whose device is unknown.
pub fn always_closed() -> &'static Gate {
    &ALWAYS_CLOSED
}

/// The list of all records ever made. Those of another generation are kept only for leak checkers, which search from
/// statics.
static THREADS: AtomicPtr<Thread> = AtomicPtr::new(null_mut());
static EXIT_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Returns the calling thread's record, or `None` if it has none.
#[inline(always)]
pub fn current() -> Option<&'static Thread> {
    // SAFETY: the slot is NULL or a record, and records are never freed.
    unsafe { slot().as_ref() }
}

/// Returns the calling thread's record, made if necessary.
#[inline(always)]
pub fn attached() -> &'static Thread {
    match current() {
        Some(thread) if thread.is_current() => thread,
        _ => attach(),
    }
}

/// Returns every record of this process, whether its thread still runs or not.
pub fn all() -> impl Iterator<Item = &'static Thread> {
    every().filter(|thread| thread.is_current())
}

/// Returns the number of kernels that the process launched on a device.
pub fn launches(ordinal: u8) -> u64 {
    all().fold(0, |sum, thread| sum.wrapping_add(thread.launches(ordinal)))
}

fn every() -> impl Iterator<Item = &'static Thread> {
    // ORDER: Acquire pairs with the Release push in `make`; the record is complete.
    let first = THREADS.load(Acquire);
    // SAFETY: the list holds records only, and records are never freed.
    std::iter::successors(unsafe { first.as_ref() }, |thread| {
        // SAFETY: as above.
        unsafe { thread.next.load(Relaxed).as_ref() }
    })
}

/// Begins a new generation when the process attaches: earlier records are not used any more, not even to pass a gate.
pub fn begin_anew() {
    record::begin();
    every().for_each(Thread::invalidate_from_outside);
}

/// Sets whether launches may have to be repeated, and so keep their arguments. It is set again at intervals.
pub fn set_repeats_launches(repeats: bool) {
    driver::set_repeats_launches(repeats);
    if repeats {
        all().for_each(Thread::forget_last);
    }
}

/// Returns the place on the stack of the function that this is inlined into.
#[inline(always)]
pub fn place() -> usize {
    let place: usize;
    // SAFETY: copies a register.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("mov {}, rsp", out(reg) place, options(nomem, nostack, preserves_flags))
    };
    // SAFETY: copies a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("mov {}, sp", out(reg) place, options(nomem, nostack, preserves_flags))
    };
    place
}

/// A scope inside a hook: calls that the driver itself makes in it go directly to the driver.
pub struct Inside(&'static Thread);

impl Inside {
    /// Enters a hook. Returns `None` if the thread is already in one.
    #[inline(always)]
    pub fn enter() -> Option<Self> {
        Self::enter_from(place())
    }

    /// Does the same for a call whose [`place`] is known more exactly.
    #[inline(always)]
    pub fn enter_from(place: usize) -> Option<Self> {
        let thread = attached();
        if !thread.comes_from(place) {
            return None;
        }
        thread.inside.store(ELSEWHERE, Relaxed);
        Some(Self(thread))
    }

    /// Enters a hook for a thread of the shim.
    pub fn enter_as_ours() -> Option<Self> {
        let inside = Self::enter()?;
        inside.thread().ours.store(true, Relaxed);
        inside.thread().set_answered(false);
        Some(inside)
    }
}

impl Inside {
    /// Returns the thread's record.
    #[inline(always)]
    pub fn thread(&self) -> &'static Thread {
        self.0
    }

    /// Moves the mark to the thread's new record, one of [`all`], after the process has attached within this call.
    pub fn renewed(self) -> Self {
        let now = attached();
        now.entered.store(self.0.entered.load(Relaxed), Relaxed);
        now.inside.store(ELSEWHERE, Relaxed);
        if std::ptr::eq(self.0, now) {
            return self;
        }
        Self(now)
    }

    /// Runs `wait` while the thread counts as outside. `wait` must not call the driver.
    pub fn outside<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.thread().outside(wait)
    }
}

impl Thread {
    /// Runs `wait` while the thread counts as outside, if it is inside a call that submits nothing. `wait` must not
    /// call the driver.
    pub fn outside<T>(&self, wait: impl FnOnce() -> T) -> T {
        let before = self.inside.load(Relaxed);
        if before != ELSEWHERE {
            return wait();
        }
        let place = self.entered.load(Relaxed);
        // ORDER: Release pairs with the Acquire in `is_inside_anything`; earlier driver calls have returned.
        self.inside.store(OUTSIDE, Release);
        let waited = wait();
        // A signal handler may have made a call in the meantime.
        self.entered.store(place, Relaxed);
        self.inside.store(ELSEWHERE, Relaxed);
        waited
    }
}

impl Thread {
    /// Returns true if the driver started the calling thread, whose record this is: its first function is the
    /// driver's. This includes threads on which the driver runs callbacks, although they have the program's name. If
    /// the C library does not report the function, the name decides.
    pub fn see_who_started_it(&self) -> bool {
        let drivers = match thread_start::of_caller() {
            Start::At(function) => library::is_drivers(function),
            Start::Unknown => thread_start::has_a_name_of_the_drivers(),
            // The first threads of the shim begin within the first `cuInit`, before the driver calls anything.
            Start::NotLearned => false,
        };
        self.drivers.store(drivers, Relaxed);
        drivers
    }

    /// Returns true if the driver may have started the thread: it was first seen during a suspension, and its
    /// function is unknown.
    pub fn may_be_the_drivers(&self) -> bool {
        self.first_seen_suspended.load(Relaxed) && thread_start::of_caller() == Start::Unknown
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        // After a fork within the call the child has a new record, and only its own is left.
        // ORDER: Release pairs with the Acquire in `is_inside_anything`; the call has been made.
        self.thread().inside.store(OUTSIDE, Release);
    }
}

#[cold]
#[inline(never)]
fn attach() -> &'static Thread {
    let _errno = Errno::keep();
    let _uncancelled = Uncancelled::enter();
    let thread = all()
        .find(|thread| {
            // ORDER: Acquire pairs with the Release in `detach`; the record is as its last thread left it.
            thread
                .in_use
                .compare_exchange(false, true, Acquire, Relaxed)
                .is_ok()
        })
        .unwrap_or_else(make);
    thread.invalidate();
    thread.forget_recent();
    thread.take_allotment();
    thread.first_seen_suspended.store(is_suspended(), Relaxed);
    thread.ours.store(false, Relaxed);
    thread.see_who_started_it();
    thread.errno.set(ErrnoPlace::of_this_thread());
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
        gate: AtomicPtr::new(std::ptr::from_ref(always_closed()).cast_mut()),
        inside: AtomicU32::new(OUTSIDE),
        bound_device: AtomicU32::new(0),
        last: [const { AtomicUsize::new(NO_STREAM) }; 2],
        tally: AtomicPtr::new(null_mut()),
        return_address: Cell::new(0),
        saved_register: Cell::new(0),
        entered: AtomicUsize::new(0),
        launched: AtomicU64::new(0),
        recent: Default::default(),
        allotted: Cell::new(0),
        allotted_key: Cell::new(NO_STREAM),
        allotted_ordinal: Cell::new(UNMANAGED),
        context: Cell::new(0),
        home_context: Cell::new(0),
        errno: Cell::new(ErrnoPlace::of_this_thread()),
        streams: Mutex::new(Vec::new()),
        requests: AtomicU64::new(0),
        first_seen_suspended: AtomicBool::new(false),
        ours: AtomicBool::new(false),
        answered: AtomicBool::new(false),
        drivers: AtomicBool::new(false),
        tid: AtomicU32::new(0),
        waits_for_quota: AtomicBool::new(false),
        tracing: Tracing::default(),
        in_use: AtomicBool::new(true),
        generation: record::now(),
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
        // ORDER: Release pairs with the Acquire load in `every` and publishes the record.
        match THREADS.compare_exchange_weak(first, record, Release, Relaxed) {
            Ok(_) => return thread,
            Err(now) => first = now,
        }
    }
}

/// Returns the key whose destructor releases records. It is created before the first record.
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
            // SAFETY: the key was created here, and no other thread has it.
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
    // ORDER: Release pairs with the Acquire in `attach`; the next thread continues this record.
    thread.in_use.store(false, Release);
}

/// The counters of a thread on one device. Only that thread writes them; the keeper adds up all threads' tallies.
#[derive(Default)]
#[repr(align(64))]
pub struct Tally {
    /// Kernel launches.
    pub launches: AtomicU64,
    /// Graph launches.
    pub graphs: AtomicU64,
    /// Copies.
    pub copies: AtomicU64,
    /// Bytes copied.
    pub copy_bytes: AtomicU64,
    /// Memsets.
    pub memsets: AtomicU64,
    /// Explicit synchronisations.
    pub syncs: AtomicU64,
    /// Launches recorded into a capture.
    pub captured: AtomicU64,
    /// Calls that found the gate closed.
    pub gate_misses: AtomicU64,
    /// Allocations granted.
    pub allocations: AtomicU64,
    /// Frees.
    pub frees: AtomicU64,
}

/// Adds to a word with one writer, without a locked instruction.
#[inline(always)]
pub fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

/// A kind of submission, for the counters.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// A kernel.
    Kernel,
    /// A graph.
    Graph,
    /// An asynchronous copy of this many bytes.
    Copy(usize),
    /// Several copies at once: their number, and the bytes of all.
    Copies(usize, usize),
    /// A memset.
    Memset,
}

impl Work {
    /// Returns the kind, the copies and the bytes as plain numbers, which a caller keeps in registers.
    #[inline(always)]
    pub fn to_parts(self) -> (u8, usize, usize) {
        match self {
            Self::Kernel => (0, 0, 0),
            Self::Graph => (1, 0, 0),
            Self::Memset => (2, 0, 0),
            Self::Copy(bytes) => (3, 1, bytes),
            Self::Copies(count, bytes) => (4, count, bytes),
        }
    }

    /// Returns the submission from the parts that [`to_parts`](Self::to_parts) returned.
    pub fn from_parts((kind, copies, bytes): (u8, usize, usize)) -> Self {
        match kind {
            0 => Self::Kernel,
            1 => Self::Graph,
            2 => Self::Memset,
            3 => Self::Copy(bytes),
            _ => Self::Copies(copies, bytes),
        }
    }

    /// Returns the bytes that the submission moves.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Copy(bytes) | Self::Copies(_, bytes) => bytes as u64,
            Self::Kernel | Self::Graph | Self::Memset => 0,
        }
    }

    /// Adds the submission to a tally.
    #[inline(always)]
    pub fn count(self, tally: &Tally) {
        match self {
            Self::Kernel => add(&tally.launches, 1),
            Self::Graph => add(&tally.graphs, 1),
            Self::Copy(bytes) => {
                add(&tally.copies, 1);
                add(&tally.copy_bytes, bytes as u64);
            }
            Self::Copies(count, bytes) => {
                add(&tally.copies, count as u64);
                add(&tally.copy_bytes, bytes as u64);
            }
            Self::Memset => add(&tally.memsets, 1),
        }
    }
}

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

/// Returns the calling thread's record, or NULL.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn slot() -> *mut Thread {
    let record;
    // SAFETY: reads this thread's own slot, at the offset that the dynamic linker wrote to the GOT.
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

/// Sets the calling thread's record.
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

/// Returns the calling thread's record, or NULL.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn slot() -> *mut Thread {
    let record;
    // SAFETY: reads this thread's own slot, at the offset that the dynamic linker wrote to the GOT.
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

/// Sets the calling thread's record.
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
