//! The shape of a world in shared memory. Every word is an atomic and all-zero is a valid start.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Compute units (GPUs without MIG, or MIG instances) a world may have.
pub const MAX_DEVICES: usize = 16;

/// Processes a world may have at once.
pub const MAX_PROCESSES: usize = 512;

/// `GPUSIM` and the version of this layout; written last when a world is made.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"GPUSIM\0\x08");

/// Words of scenario text a world keeps.
pub(crate) const SCENARIO_WORDS: usize = 2048;

/// Tickets a device's timeline remembers.
pub(crate) const TICKETS: usize = 4096;

/// Kernels of MPS's clients that a device runs or has waiting at once.
pub(crate) const BESIDE: usize = 128;

/// Busy-time buckets a process keeps per device.
pub(crate) const BUCKETS: usize = 16;

/// The step of [`Ticket::ready`].
pub(crate) const READY_STEP: u64 = 16;

/// A world. Made under the world's lock file; read and written by all its processes.
#[repr(C)]
pub(crate) struct Layout {
    /// [`MAGIC`] once the rest is valid.
    pub magic: AtomicU64,
    /// Bytes of scenario text.
    pub scenario_bytes: AtomicU64,
    /// The scenario, eight bytes a word.
    pub scenario: [AtomicU64; SCENARIO_WORDS],
    /// One more than the highest process slot ever used.
    pub processes_high: AtomicU32,
    pub _reserved: AtomicU32,
    pub devices: [Timeline; MAX_DEVICES],
    pub processes: [Process; MAX_PROCESSES],
}

/// A device's engine: a ring of tickets. See [`crate::engine`].
#[repr(C)]
pub(crate) struct Timeline {
    /// The oldest ticket that has not ended.
    pub head: AtomicU64,
    /// A hint: no free ticket is below.
    pub tail: AtomicU64,
    pub tickets: [Ticket; TICKETS],
    /// Kernels of MPS's clients, which run side by side. See [`crate::beside`].
    pub beside: [Beside; BESIDE],
}

/// One kernel's turn on the engine.
#[repr(C)]
pub(crate) struct Ticket {
    /// lap (14 bits) · process slot (10 bits) · duration in nanoseconds (40 bits).
    pub claim: AtomicU64,
    /// lap (14 bits) · since when it could run, in steps of [`READY_STEP`] nanoseconds (50 bits).
    pub ready: AtomicU64,
    /// When it started; belongs to this lap if not before the previous ticket's end.
    pub start: AtomicU64,
    /// When it ended; belongs to this lap if after `start`.
    pub end: AtomicU64,
    /// The owner's pid, for the log.
    pub pid: AtomicU64,
}

/// A kernel of a client of MPS that runs or waits. Written by its process, once it has the entry; see [`crate::beside`].
#[repr(C)]
pub(crate) struct Beside {
    /// Its process's slot + 1; 0 is free.
    pub owner: AtomicU64,
    /// When it could begin.
    pub arrived: AtomicU64,
    /// The multiprocessors that it can use (32 bits), the client's priority (8), whether it runs in waves (1).
    pub wants: AtomicU64,
    /// When it was first given some; 0 before.
    pub began: AtomicU64,
    /// How many it has.
    pub has: AtomicU64,
    /// When its process last looked.
    pub looked: AtomicU64,
    /// When it ends if nothing changes; `u64::MAX` while it has nothing.
    pub until: AtomicU64,
}

/// A process's slot. Claimed and freed under the world's lock file.
#[repr(C)]
pub(crate) struct Process {
    /// epoch (56 bits) · [`crate::slots`] state (8 bits).
    pub state: AtomicU64,
    pub pid: AtomicU64,
    /// Inode of the pid namespace that `pid` is a number of.
    pub pid_namespace: AtomicU64,
    /// Start time in clock ticks, from `/proc/PID/stat`.
    pub start_time: AtomicU64,
    /// What [`crate::checkpoint`] has come to; written by the process that takes a step.
    pub checkpoint: AtomicU32,
    /// Threads inside a call.
    pub inside: AtomicU32,
    /// Pieces of work queued and not done.
    pub queued: AtomicU64,
    /// Managed allocations.
    pub managed: AtomicU64,
    /// Allocations of other processes that are mapped here.
    pub imported: AtomicU64,
    /// The MPS server whose client it is, with what it asked for; see [`crate::mps::Client`]. Zero if it is none.
    pub mps: AtomicU64,
    pub devices: [ProcessDevice; MAX_DEVICES],
}

/// What one process has on one device; written by that process, except as said.
#[repr(C)]
pub(crate) struct ProcessDevice {
    /// Bytes it holds.
    pub used: AtomicU64,
    /// Bytes it is about to hold.
    pub trying: AtomicU64,
    /// Bytes that a checkpoint took away; written by the process that takes its steps.
    pub away: AtomicU64,
    /// Live contexts.
    pub contexts: AtomicU64,
    /// Since when it has no kernel in the turn that it has ([`crate::client`]); 0 while it has one.
    pub idle: AtomicU64,
    /// The error that ended its context; written by the process whose kernel did it.
    pub fault: AtomicU64,
    /// Engine time it has had; added by the process that notices the end of a kernel.
    pub busy: AtomicU64,
    /// Engine time per tenth of a second: index (32 bits) · nanoseconds (32 bits).
    pub buckets: [AtomicU64; BUCKETS],
}
