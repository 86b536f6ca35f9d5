//! The state segment's types: workloads and tools write them.
//!
//! Every struct is the wire format itself. `Each word has one writer` unless its doc says otherwise: a slot's words
//! are its process's, and a reaper's once the process is dead.

pub(crate) use gpushare_settings::policy::POLICY_WORDS;

use crate::{
    DEVICES_PER_PROCESS, EVENT_RING, MAX_DEVICES, MAX_PROCESSES,
    layout::{
        counters::{Counters, HistogramWords},
        shared,
    },
    protocol::primitive::{AtomicU8, AtomicU32, AtomicU64},
    value::LAUNCH_WORDS,
};

/// Words of the identity record.
pub(crate) const IDENTITY_WORDS: usize = 79;
/// Holders remembered as waited for.
pub(crate) const BLAMED: usize = 12;

shared! {
    /// The first bytes of both segments.
    pub(crate) struct Header: 128 align 64 {
        /// `MAGIC`, or zero before the file is published.
        0 magic: AtomicU64,
        /// [`crate::ABI_VERSION`]; written last.
        8 version: AtomicU32,
        12 _reserved1: AtomicU32,
        /// The file's size.
        16 size: AtomicU64,
        /// The boot it belongs to.
        24 boot: [AtomicU64; 2],
        /// Time when the segment was made.
        40 created_ns: AtomicU64,
        /// The process.
        48 uid: AtomicU32,
        52 _reserved0: AtomicU32,
        /// The instance: a random number that the two files of a pair share.
        56 instance: [AtomicU64; 2],
        72 _reserved: [AtomicU64; 7],
    }
}

shared! {
    /// The state segment: workloads and tools write it.
    pub struct State: 13701440 align 64 {
        0 header: Header,
        /// Processes that found no slot; a broker counts in its registry. Any process adds.
        128 unmanaged: AtomicU64,
        /// Slots given back for the dead. Any process adds.
        136 reaped: AtomicU64,
        /// Time when the last process found no slot. Any process writes it.
        144 unmanaged_ns: AtomicU64,
        152 _reserved: [AtomicU64; 13],
        256 devices: [Device; MAX_DEVICES],
        /// A process is in one group at most, so each finds a place for its own.
        69888 groups: [Group; MAX_PROCESSES],
        86272 slots: [Slot; MAX_PROCESSES],
        10555648 ring: Ring,
    }
}

shared! {
    /// A device that a process has entered. Never removed: a device keeps its index.
    pub(crate) struct Device: 1088 align 64 {
        /// Hash of the UUID, swapped in from zero by the first process. Every process with that UUID writes the same words
        /// below.
        0 key: AtomicU64,
        8 uuid: [AtomicU64; 2],
        24 total_bytes: AtomicU64,
        32 flags: AtomicU32,
        /// 1 when the words above are written.
        36 ready: AtomicU32,
        40 name: [AtomicU64; 8],
        /// Slots with an entry here. Each process sets its own bit.
        104 members: [AtomicU64; 4],
        /// Processes with work on the device, or that had some a moment ago, under `overlap` (`lock::overlap`). Each process
        /// sets its own bit.
        136 active: [AtomicU64; 4],
        /// Changes when one of them stops (`protocol::bell`); a futex word. A process that stops adds; one that is held back
        /// sets the mark.
        168 activity: AtomicU32,
        172 _reserved3: AtomicU32,
        /// The process for which the others hold back while it measures its work alone, and since when, under `overlap`
        /// (`lock::overlap`).
        176 measurer: AtomicU64,
        184 measured_since: AtomicU64,
        /// The owner of the present turn (`protocol::turn`).
        192 owner: AtomicU64,
        /// Time when the turn began; written by the process that gave the turn, then by the owner.
        200 owner_since: AtomicU64,
        208 waiters: [AtomicU64; 4],
        /// The turns that were last taken up and last taken away; they prove that there is never a second owner.
        240 inside: AtomicU64,
        248 evicted: AtomicU64,
        /// Counts arrivals in the queue (`protocol::bell`); a futex word. A process that arrives adds; one that listens sets
        /// the mark.
        256 arrivals: AtomicU32,
        260 _reserved2: AtomicU32,
        /// The virtual time a newcomer starts at: the least of the active.
        264 floor: AtomicU64,
        /// Time when a holder last passed its turn on; 0 when a waiter took the free lock.
        272 passed_ns: AtomicU64,
        280 last_handoff_ns: AtomicU64,
        288 handoffs: AtomicU64,
        296 forced: AtomicU64,
        304 takeovers: AtomicU64,
        /// Times a process entered while another was inside: always 0.
        312 violations: AtomicU64,
        /// Deadlines of `gpushare pick` claims; tools write.
        320 picks: [AtomicU64; 8],
        /// Hand-offs by length, from the release to its waiter running; the new owner adds.
        384 handoff_times: HistogramWords,
        /// Slots that wait for memory (`line`). Each process sets its own bit.
        904 line: [AtomicU64; 4],
        /// Changes when memory is given back (`protocol::bell`); a futex word. A process that gives back adds; one that waits
        /// sets the mark.
        936 line_bell: AtomicU32,
        940 _reserved4: AtomicU32,
        /// Counter of tickets in the memory queue. Each process that enqueues adds 1.
        944 line_tickets: AtomicU64,
        /// Bytes of the device that are in no account, as the driver last reported to a process, and the time of the report.
        952 outside: AtomicU64,
        960 outside_ns: AtomicU64,
        /// Slots with bytes in their account that the driver has not given yet (`Ledger::promise`). Each process sets its own
        /// bit.
        968 promises: [AtomicU64; 4],
        /// Time when a process last asked for memory and found only processes whose memory had just returned
        /// (`memory::queue::overcommit`).
        1000 crowded_ns: AtomicU64,
        /// Number of processes with a reserve here, or more: while it is not 0, allocations ask what is reserved. A process adds before it
        /// reserves; it or its reaper subtracts.
        1008 reserves: AtomicU64,
        1016 _reserved: [AtomicU64; 9],
    }
}

shared! {
    /// A group that a process has named. The process that joins writes it and holds the table's byte. An entry that no slot
    /// refers to may be overwritten.
    pub(crate) struct Group: 64 align 64 {
        0 _reserved1: AtomicU64,
        8 name: [AtomicU64; 4],
        /// 1 while the name is whole.
        40 ready: AtomicU32,
        44 _reserved0: AtomicU32,
        48 _reserved: [AtomicU64; 2],
    }
}

shared! {
    /// A process.
    pub(crate) struct Slot: 40896 align 64 {
        /// Epoch and phase (`protocol::claim`).
        0 claim: AtomicU64,
        /// The robust futex word: the keeper thread's id, and the kernel's mark when it dies.
        8 keeper: AtomicU32,
        /// 1: a launch variable had a bad value.
        12 invalid: AtomicU32,
        16 heartbeat_ns: AtomicU64,
        /// The last control generation it applied.
        24 acked: AtomicU64,
        32 registered_ns: AtomicU64,
        /// Index of the process's group, + 1.
        40 group: AtomicU32,
        /// Futex word: changes when another process asks this one to evict its memory. The asking process adds.
        44 evict_bell: AtomicU32,
        /// Weight and cap as launched, with their presence (`settings::LaunchShare`).
        48 launch_share: AtomicU64,
        /// Priority and source as launched.
        56 launch_priority: AtomicU64,
        /// Index + 1 of the process's entry on each device of the segment.
        64 entry_of_device: [AtomicU8; MAX_DEVICES],
        /// The process's lock policy, as launched.
        128 launch_policy: [AtomicU64; POLICY_WORDS],
        176 launch_policy_source: AtomicU64,
        /// The job it belongs to, whose members have their turns together (`lock::gang`); 0 for none.
        184 gang: AtomicU64,
        /// A seqlock over the identity.
        192 identity_seq: AtomicU64,
        200 identity: [AtomicU64; IDENTITY_WORDS],
        /// State of the process's trace (`trace::progress`), and how far it has come.
        832 trace_state: AtomicU64,
        840 trace_records: AtomicU64,
        848 trace_dropped: AtomicU64,
        /// After which idle time it is evicted, as launched (`codec::evict_after_word`).
        856 launch_evict_after: AtomicU64,
        /// Action of the process when memory is refused, as launched (`codec::on_full_word`).
        864 launch_on_full: AtomicU64,
        /// Residence of the process's memory, the reason, the driver's code and the method (`register::eviction`); then the time
        /// of the last change.
        872 residence: AtomicU64,
        880 residence_since: AtomicU64,
        /// Expected duration of the step under way.
        888 residence_expected: AtomicU64,
        /// Bytes of the host that its copy takes, or will take.
        896 host_bytes: AtomicU64,
        /// Time of the application's last submission, as its keeper saw it.
        904 used_ns: AtomicU64,
        /// Another process asks it to give its memory up: when. That process writes; its own keeper clears.
        912 evict_asked: AtomicU64,
        /// Duration of the last eviction and restore together.
        920 swap_ns: AtomicU64,
        928 _reserved: [AtomicU64; 4],
        960 entries: [DeviceEntry; DEVICES_PER_PROCESS],
    }
}

shared! {
    /// A process on a device.
    pub(crate) struct DeviceEntry: 2496 align 64 {
        /// The device's index + 1; written last.
        0 device: AtomicU32,
        /// The process's own ordinal of it.
        4 ordinal: AtomicU32,
        /// Bytes held (`protocol::account`).
        8 used: AtomicU64,
        /// Bytes of attempts under way.
        16 trying: AtomicU64,
        24 peak: AtomicU64,
        /// The quota as launched: kind and source.
        32 launch_quota: AtomicU64,
        40 launch_bytes: AtomicU64,
        /// State of MPS for the process's contexts, as the driver reports it: 0 unknown, 1 no MPS, 2 MPS, 3 MPS with a client
        /// priority below normal.
        48 mps: AtomicU32,
        /// Under `overlap`: 1 if the process had work queued when it was last held back and has not seen it done.
        52 queued: AtomicU32,
        /// Bytes that are its own and not on the device: evicted.
        56 evicted: AtomicU64,
        /// Futex word: changes when a turn is given to this process, or it has to look again. The giver adds, and the operator.
        64 grant: AtomicU32,
        /// 0 idle, 1 waits, 2 holds, 3 is active, 4 is held back.
        68 lock_state: AtomicU32,
        /// Since when it does.
        72 lock_since: AtomicU64,
        /// Nanoseconds held, over weight (`lock::choose`). Its holder adds to it, or the process that forces its release.
        80 vtime: AtomicU64,
        /// Time until which the process's cap is used up (`lock::cap`).
        88 cap_until: AtomicU64,
        96 held_ns: AtomicU64,
        104 waited_ns: AtomicU64,
        112 acquisitions: AtomicU64,
        120 forced: AtomicU64,
        128 releases: [AtomicU64; 16],
        /// Holds and waits by length.
        256 holds: HistogramWords,
        776 waits: HistogramWords,
        /// The processes it waited for: slot word and nanoseconds.
        1296 blamed: [[AtomicU64; 2]; BLAMED],
        /// Bytes that no other process can take, and a mark while they are not granted (`protocol::account::ATTEMPT`).
        1488 reserve: AtomicU64,
        /// In the first entry of a process: the time at which its context leaves the devices too, or 0 for never, and the expected
        /// extra duration of a restore after that.
        1496 deep_at: AtomicU64,
        1504 deep_ns: AtomicU64,
        /// Mean time of a submission while no other process used the device; 0 while not measured. Its keeper writes.
        1512 submission_ns: AtomicU64,
        /// Mean time for which it was active under `overlap`, before the present one. Its keeper writes.
        1520 activity_ns: AtomicU64,
        1528 _reserved: AtomicU64,
        1536 counters: Counters,
        /// Time when the process's waiting thread last polled. A waiter that has not polled for long is not chosen.
        1792 pulse_ns: AtomicU64,
        /// Time of the last release, and how far behind the least virtual time of the active the process may begin if it waits
        /// again at once.
        1800 left_ns: AtomicU64,
        1808 slack_ns: AtomicU64,
        /// The part of the present hold that is not charged yet: see `DeviceLock::overslept`. The holder writes it.
        1816 late_ns: AtomicU64,
        /// Under `overlap`: until then its activity is in its account. Its keeper writes.
        1824 charged_ns: AtomicU64,
        /// Time when the process lost its context, and the error code and the call. The first of its threads to see the loss
        /// writes them.
        1832 lost_ns: AtomicU64,
        1840 lost: AtomicU64,
        /// Progress of the process's turn towards its end, published for its gang (`lock::gang::Ending`).
        1848 ending: AtomicU64,
        /// The process's place in the device's memory queue (`memory::queue`): bytes wanted, ticket number, time of entry,
        /// deadline (0: none), and time of the last poll.
        1856 line_bytes: AtomicU64,
        1864 line_ticket: AtomicU64,
        1872 line_since: AtomicU64,
        1880 line_until: AtomicU64,
        1888 line_pulse: AtomicU64,
        /// The limit that blocks the process: a quota, or the device itself (`memory::queue`).
        1896 line_limit: AtomicU32,
        /// Its time slice from the card (`CardSlice`). Its keeper writes.
        1900 card_slice: AtomicU32,
        /// Mean time without a request between two phases of use, with the present one. Its keeper writes.
        1904 gap_ns: AtomicU64,
        /// Under `overlap`: how much work others may queue ahead of this process (`lock::overlap::Tolerance`). The process
        /// writes it.
        1912 tolerance: AtomicU64,
        /// Its steps, which end with a wait for the device, by the time for which the device kept the process waiting in them. Its
        /// threads count; of two that count at once, one may be lost.
        1920 steps: HistogramWords,
        /// `waited_ns` at the end of the last step, less what has delayed the present one besides.
        2440 step_waited_ns: AtomicU64,
        /// Bytes that have to stay free beside those that it wants (`memory::queue`).
        2448 line_margin: AtomicU64,
        2456 _reserved3: [AtomicU64; 5],
    }
}

shared! {
    /// The event ring.
    pub(crate) struct Ring: 3145792 align 64 {
        /// The next event's number. Any process adds.
        0 head: AtomicU64,
        8 _reserved: [AtomicU64; 7],
        64 cells: [Cell; EVENT_RING],
    }
}

shared! {
    /// One event of the ring.
    pub(crate) struct Cell: 48 align 8 {
        /// Twice its number + 1 while it is written, + 2 when it is.
        0 stamp: AtomicU64,
        8 time_ns: AtomicU64,
        /// Slot, epoch.
        16 who: AtomicU64,
        /// Kind, reason, device, call.
        24 what: AtomicU64,
        32 arg0: AtomicU64,
        40 arg1: AtomicU64,
    }
}

impl Slot {
    /// The words of a launch, in the order of the table of settings. The last ones are for settings to come.
    pub(crate) fn launch_words(&self) -> [&AtomicU64; LAUNCH_WORDS] {
        let [a, b, c, d] = &self._reserved;
        [
            &self.launch_share,
            &self.launch_priority,
            &self.launch_on_full,
            &self.launch_evict_after,
            a,
            b,
            c,
            d,
        ]
    }
}
