//! The buffer's types, and a mapped buffer's bytes as them. The file's maker writes the head's first line and the process that it
//! is for; the traced process writes all else.

#![expect(
    unsafe_code,
    reason = "the two casts from mapped bytes to the buffer's types"
)]

use memmap2::MmapRaw;

use crate::{
    layout::shared,
    protocol::primitive::{AtomicU32, AtomicU64},
    trace::{CALLS, size},
    value::DEVICES_PER_PROCESS,
};

/// The file's first eight bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"gpushtrc");
/// Words of an executable's path and of a label, as in the identity.
pub(crate) const EXE_WORDS: usize = 32;
pub(crate) const LABEL_WORDS: usize = 8;

shared! {
    /// The first bytes of a trace buffer.
    pub(crate) struct Head: 1024 align 64 {
        /// `MAGIC`.
        0 magic: AtomicU64,
        /// `VERSION`; written last by the maker.
        8 version: AtomicU32,
        /// Records there is room for.
        12 capacity: AtomicU32,
        /// The file's size.
        16 size: AtomicU64,
        /// The boot it belongs to.
        24 boot: [AtomicU64; 2],
        /// Slot and epoch, as `SlotId::to_word`.
        40 who: AtomicU64,
        48 pid: AtomicU32,
        52 uid: AtomicU32,
        /// The process's start time in clock ticks.
        56 start_time: AtomicU64,
        /// The segments' clock and the wall clock at one moment.
        64 boottime_ns: AtomicU64,
        72 realtime_ns: AtomicU64,
        /// Times when the process began to write and stopped; 0 is not yet.
        80 started_ns: AtomicU64,
        88 stopped_ns: AtomicU64,
        /// Time when the keeper last looked.
        96 seen_ns: AtomicU64,
        /// Devices and calls that are named.
        104 devices_named: AtomicU32,
        108 calls_named: AtomicU32,
        112 _reserved0: [AtomicU64; 2],
        /// The next record's place. All threads of the process add; may run past the capacity.
        128 next: AtomicU64,
        136 _reserved1: [AtomicU64; 7],
        /// Records that found no place. All threads of the process add.
        192 dropped: AtomicU64,
        200 _reserved2: [AtomicU64; 7],
        /// The devices' UUIDs, by the process's own ordinals.
        256 devices: [[AtomicU64; 2]; DEVICES_PER_PROCESS],
        512 exe: [AtomicU64; EXE_WORDS],
        768 label: [AtomicU64; LABEL_WORDS],
        832 _reserved: [AtomicU64; 24],
    }
}

shared! {
    /// The exported name behind a call code.
    pub(crate) struct Name: 64 align 64 {
        0 text: [AtomicU64; 8],
    }
}

shared! {
    /// Totals of one call. All threads of the process add to them.
    pub(crate) struct Row: 64 align 64 {
        0 count: AtomicU64,
        8 total_ns: AtomicU64,
        16 longest_ns: AtomicU64,
        24 bytes: AtomicU64,
        /// The part of the total spent waiting for the lock.
        32 waited_ns: AtomicU64,
        40 _reserved: [AtomicU64; 3],
    }
}

shared! {
    /// One record. The thread that drew its place writes it, once.
    pub(crate) struct Line: 32 align 32 {
        0 start_ns: AtomicU64,
        8 duration_ns: AtomicU64,
        16 argument: AtomicU64,
        /// Thread, call, device, kind (`record`); zero until the rest is written.
        24 what: AtomicU64,
    }
}

shared! {
    /// All that stands before the records.
    pub(crate) struct Tables: 132096 align 64 {
        0 head: Head,
        1024 names: [Name; CALLS],
        66560 rows: [Row; CALLS],
    }
}

/// The tables and the lines behind them.
pub(super) struct Mapped {
    map: MmapRaw,
    records: u32,
}

impl Mapped {
    /// Makes the view; `None` where the mapping is too short for `records`.
    pub(super) fn new(map: MmapRaw, records: u32) -> Option<Mapped> {
        (map.len() as u64 >= size(records)).then_some(Mapped { map, records })
    }

    pub(super) fn tables(&self) -> &Tables {
        // SAFETY: `new` checked the length, a mapping is page-aligned and lives as long as `self`, and Tables is
        // Shared: atomics only, any bytes valid.
        unsafe { &*self.map.as_ptr().cast::<Tables>() }
    }

    pub(super) fn lines(&self) -> &[Line] {
        let first = self.map.as_ptr().wrapping_add(size_of::<Tables>()).cast();
        // SAFETY: as for the tables; they end at a multiple of a line's alignment.
        unsafe { std::slice::from_raw_parts(first, self.records as usize) }
    }
}

const _: () = assert!(size_of::<Tables>().is_multiple_of(align_of::<Line>()));
