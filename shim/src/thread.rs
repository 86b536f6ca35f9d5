//! One thread's own record: what it counts, which gate it looks at, whether it is inside a call.
//!
//! The launch path reaches the record by two loads (an initial-exec TLS slot) and touches nothing that
//! another thread writes. The keeper reads the counters and `inside` of all records, and forgets the
//! streams of a device whose gate it has closed. Records are never freed: a thread that ends leaves its
//! record, counters and all, to the next one that starts. The arrival of the process begins a new
//! `generation`: records made before it are out of use.
//!
//! All threads' records: how a thread gets one, and leaves it to the next.
//!
//! What a thread did on one device: plain counters with one writer.
//!
//! The thread-local slot: eight bytes of initial-exec TLS, reached in two loads.
//!
//! `thread_local!` would go through `__tls_get_addr`. The slot's symbol is also read by the assembly of
//! [`fast`](crate::face::fast).
#![allow(unsafe_code, reason = "the list of records; reads and writes the slot")]

mod record;

pub use record::{Thread, UNMANAGED, Used, offset, stream_key};

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
    driver::library,
    gate::{CLOSED, Gate, OUTSIDE},
    suspend,
    sys::{
        own_thread,
        thread_start::{self, Start},
    },
};
use record::{ELSEWHERE, NO_STREAM, Tracing};

/// Whether calls of functions that we do not hook are seen as well: their stubs are written for one processor.
pub const SEES_ALL: bool = cfg!(target_arch = "x86_64");

/// Whether calls may go to the driver ([`suspend`]); the assembly of `face::passthrough` reads it.
pub static SUSPENSION: AtomicU32 = AtomicU32::new(suspend::RUNNING);

/// Whether a thread that has stepped inside may not go on to the driver.
#[inline(always)]
pub fn is_suspended() -> bool {
    !suspend::is_running(&SUSPENSION)
}

static ALWAYS_CLOSED: Gate = Gate(AtomicU32::new(CLOSED));

/// The gate of a thread whose device is not known.
pub fn always_closed() -> &'static Gate {
    &ALWAYS_CLOSED
}

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
    record::begin();
    every().for_each(Thread::invalidate_from_outside);
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
        inside.thread().set_answered(false);
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
        self.first_seen_suspended.load(Relaxed) && thread_start::of_caller() == Start::Unknown
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
    thread.invalidate();
    thread.forget_recent();
    thread.first_seen_suspended.store(is_suspended(), Relaxed);
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
        gate: AtomicPtr::new(std::ptr::from_ref(always_closed()).cast_mut()),
        inside: AtomicU32::new(OUTSIDE),
        bound_device: AtomicU32::new(0),
        last: [const { AtomicUsize::new(NO_STREAM) }; 2],
        tally: AtomicPtr::new(null_mut()),
        return_address: Cell::new(0),
        saved_register: Cell::new(0),
        launched: AtomicU64::new(0),
        recent: Default::default(),
        context: Cell::new(0),
        home_context: Cell::new(0),
        streams: Mutex::new(Vec::new()),
        calls: AtomicU64::new(0),
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

/// What a thread did on one device. Only that thread writes; the keeper adds up all threads' tallies.
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

/// Adds without a locked instruction: the word has one writer.
#[inline(always)]
pub fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

/// What is submitted, for the counters.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// A kernel.
    Kernel,
    /// A graph.
    Graph,
    /// An asynchronous copy of so many bytes.
    Copy(usize),
    /// Several copies at once, and the bytes of all.
    Copies(usize, usize),
    /// A memset.
    Memset,
}

impl Work {
    /// The same in plain numbers, which a caller keeps in registers: its kind, copies and bytes.
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

    /// What [`to_parts`](Self::to_parts) was made from.
    pub fn from_parts((kind, copies, bytes): (u8, usize, usize)) -> Self {
        match kind {
            0 => Self::Kernel,
            1 => Self::Graph,
            2 => Self::Memset,
            3 => Self::Copy(bytes),
            _ => Self::Copies(copies, bytes),
        }
    }

    /// The bytes it moves.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Copy(bytes) | Self::Copies(_, bytes) => bytes as u64,
            Self::Kernel | Self::Graph | Self::Memset => 0,
        }
    }

    /// Counts it.
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

/// The calling thread\'s record, or NULL.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn slot() -> *mut Thread {
    let record;
    // SAFETY: reads this thread's own slot, at the offset the dynamic linker put into the GOT.
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

/// Makes a record the calling thread\'s.
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

/// The calling thread\'s record, or NULL.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn slot() -> *mut Thread {
    let record;
    // SAFETY: reads this thread's own slot, at the offset the dynamic linker put into the GOT.
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

/// Makes a record the calling thread\'s.
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
