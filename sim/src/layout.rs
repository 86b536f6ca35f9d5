//! The layout of a world in shared memory. Every word is an atomic, and all-zero is a valid initial state.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Maximum number of compute units of a world (GPUs without MIG, or MIG instances).
pub const MAX_DEVICES: usize = 16;

/// Maximum number of processes in a world.
pub const MAX_PROCESSES: usize = 512;

/// `GPUSIM` and the version of this layout; the last word that is written when a world is made.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"GPUSIM\0\x0b");

pub(crate) const SCENARIO_WORDS: usize = 2048;

/// Number of tickets in a device's ring.
pub(crate) const TICKETS: usize = 4096;

/// Maximum number of kernels of MPS clients that run or wait on a device.
pub(crate) const CONCURRENT: usize = 128;

/// Number of busy-time buckets per process and device.
pub(crate) const BUCKETS: usize = 16;

/// Unit of [`Ticket::ready`], in nanoseconds.
pub(crate) const READY_STEP: u64 = 16;

/// A world. It is made under the world's lock file; all its processes read and write it.
#[repr(C)]
pub(crate) struct Layout {
    /// [`MAGIC`] once the rest is valid.
    pub magic: AtomicU64,
    /// Bytes of scenario text.
    pub scenario_bytes: AtomicU64,
    /// The scenario, eight bytes per word.
    pub scenario: [AtomicU64; SCENARIO_WORDS],
    /// One more than the highest process slot ever used.
    pub processes_high: AtomicU32,
    pub _reserved: AtomicU32,
    pub devices: [Timeline; MAX_DEVICES],
    /// Times at which each device's link is free again, by [`crate::link::Direction`].
    pub links: [[AtomicU64; 2]; MAX_DEVICES],
    pub processes: [Process; MAX_PROCESSES],
}

/// A device's engine: a ring of tickets ([`crate::engine`]).
#[repr(C)]
pub(crate) struct Timeline {
    /// The oldest ticket that has not ended.
    pub head: AtomicU64,
    /// A hint: every ticket below is taken.
    pub tail: AtomicU64,
    /// Faults of its kernels: how many (32 bits), the driver's number of the last (32 bits).
    pub xids: AtomicU64,
    pub tickets: [Ticket; TICKETS],
    /// Kernels of MPS clients, which run concurrently ([`crate::concurrency`]).
    pub concurrent: [ConcurrentKernel; CONCURRENT],
}

/// A kernel's turn on the engine.
#[repr(C)]
pub(crate) struct Ticket {
    /// lap (14 bits) · process slot (10 bits) · duration in nanoseconds (40 bits).
    pub claim: AtomicU64,
    /// lap (14 bits) · time from which it could run, in steps of [`READY_STEP`] nanoseconds (50 bits).
    pub ready: AtomicU64,
    /// Start time; valid for this lap if it is not before the end of the previous ticket.
    pub start: AtomicU64,
    /// End time; valid for this lap if it is after `start`.
    pub end: AtomicU64,
    /// The owner's pid, for the log.
    pub pid: AtomicU64,
}

/// A kernel of an MPS client that runs or waits ([`crate::concurrency`]). Written by the process that owns the entry.
#[repr(C)]
pub(crate) struct ConcurrentKernel {
    /// Slot of the process + 1; 0 is free.
    pub owner: AtomicU64,
    /// Time from which the kernel could run.
    pub arrived: AtomicU64,
    /// The multiprocessors that the kernel can use (32 bits), the client's priority (8), the flag for waves (1).
    pub wants: AtomicU64,
    /// Time at which it first had multiprocessors; 0 before.
    pub began: AtomicU64,
    /// Number of multiprocessors that it has.
    pub has: AtomicU64,
    /// Time at which its process last read the table.
    pub looked: AtomicU64,
    /// Time at which it ends at the current rate; `u64::MAX` while it has no multiprocessors.
    pub until: AtomicU64,
}

/// A process's slot. Claimed and freed under the world's lock file.
#[repr(C)]
pub(crate) struct Process {
    /// epoch (56 bits) · [`crate::slots`] state (8 bits).
    pub state: AtomicU64,
    pub pid: AtomicU64,
    /// Inode of the pid namespace to which `pid` belongs.
    pub pid_namespace: AtomicU64,
    /// Start time in clock ticks, from `/proc/PID/stat`.
    pub start_time: AtomicU64,
    /// State of a checkpoint ([`crate::checkpoint`]); written by the process that takes a step.
    pub checkpoint: AtomicU32,
    /// Number of threads inside a call.
    pub inside: AtomicU32,
    /// Number of queued pieces of work that are not done.
    pub queued: AtomicU64,
    /// Number of managed allocations.
    pub managed: AtomicU64,
    /// Number of mapped allocations of other processes.
    pub imported: AtomicU64,
    /// The thread that restores the process after a checkpoint; zero for a process without that thread.
    pub restorer: AtomicU64,
    /// The MPS server and the options of an MPS client ([`crate::mps::Client`]); zero for other processes.
    pub mps: AtomicU64,
    pub devices: [ProcessDevice; MAX_DEVICES],
}

/// The state of one process on one device; written by that process unless a word says otherwise.
#[repr(C)]
pub(crate) struct ProcessDevice {
    /// Bytes it holds.
    pub used: AtomicU64,
    /// Bytes it is about to hold.
    pub trying: AtomicU64,
    /// Bytes that a checkpoint moved away; written by the process that takes its steps.
    pub away: AtomicU64,
    /// Live contexts.
    pub contexts: AtomicU64,
    /// Time since which the current turn has no kernel ([`crate::client`]); 0 while one runs.
    pub idle: AtomicU64,
    /// The error that ended its context; written by the process whose kernel caused it.
    pub fault: AtomicU64,
    /// Length of its turns in nanoseconds; 0 for the device's ([`crate::client`]).
    pub slice: AtomicU64,
    /// Engine time in nanoseconds; added by the process that notices the end of a kernel.
    pub busy: AtomicU64,
    /// Engine time per 0.1 s: index (32 bits) · nanoseconds (32 bits).
    pub buckets: [AtomicU64; BUCKETS],
}
