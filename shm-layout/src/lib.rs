//! The shared memory that gpushare is made of: two segments, and the protocols on them.
//!
//! Workloads publish their use of a GPU and apply the operator's settings; the tools read and edit. Both sides meet only in
//! these files. There is no daemon: living processes clean up after dead ones. A machine of many users has one ([`broker`]),
//! with a third segment, the registry of the processes' identities.
//!
//! ```text
//!                  state (workloads write)                    control (only the operator writes)
//!   ┌────────┬────────────┬───────────────┬────────┐    ┌────────┬─────────┬─────────┬────────┬───────┐
//!   │ header │ 64 devices │ 256 slots     │ events │    │ header │ journal │ devices │ groups │ slots │
//!   │        │ lock words │ × 16 entries  │ 64 Ki  │    │        │         │ policy  │ quotas │ quotas│
//!   └────────┴────────────┴───────────────┴────────┘    └────────┴─────────┴─────────┴────────┴───────┘
//! ```
//!
//! | you are | you do |
//! |---|---|
//! | a workload | [`locate()`], [`Segments::open_workload`], [`register`](fn@register); then [`Registration::ledger`] around each allocation, [`Registration::lock`] around work, a keeper thread with [`Registration::attach_keeper`] |
//! | a viewer | [`Segments::open_viewer`], then [`snapshot`](fn@snapshot) and [`State::events`] as often as you like |
//! | the operator | [`Operator::open`], then [`Operator::edit`] |
//!
//! # Guarantees
//!
//! * **Layout.** Every offset and size is stated ([`map`](fn@map)) and the build fails when one moves. A segment is only
//!   ever a `&T`; every byte that changes is inside an atomic; all zero is a valid beginning.
//! * **Any bytes.** Readers check every index, length and enum. A writer killed halfway leaves an odd sequence, and
//!   readers give up on it after a bound.
//! * **Death.** A process may die between any two instructions. `liveness` detects that, `reap` gives back what the process
//!   held, and `tests/crash.rs` kills one at every step.
//! * **Quotas.** No interleaving of any number of processes exceeds one by a byte ([`memory::ledger`], [`protocol::account`]).
//! * **The queue.** Requests for memory that is full wait in order, and a waiting process notices every free
//!   ([`memory::queue`], [`protocol::memory_queue`]).
//! * **The lock.** Never two holders, direct hand-off, takeover from the dead within microseconds ([`lock`],
//!   [`protocol::turn`]).
//! * **Traces.** The calls of a process, on one timeline with its waits, holds and denials, while a trace is requested
//!   ([`trace`]).
//! * **The directory.** It is opened without following a link in its last component, belongs to the effective user or to root,
//!   and only its owner may write it. Everything in it is opened relative to that descriptor and must be a regular file of the
//!   directory's owner ([`dir`]). Other files are refused and left alone ([`OpenError::not_permitted`]). `GPUSHARE_DIR` names
//!   another directory and does not weaken the rule.
//! * **One pair.** `state` and `control` carry one random instance id. A `control` of another instance is set aside, so that
//!   no old edit reaches a new process. Whether an installation is one user's or the machine's follows from the directory
//!   and the socket in it, never from bytes that a workload may write.
//! * **Harmless to its host.** A fresh segment changes nothing. Nothing here panics in a workload, prints, installs signal
//!   handlers, or keeps a file descriptor.
//!
//! # No guarantees
//!
//! * **A file that shrinks in use.** A user who may write `state` and truncates it takes the pages from every process that
//!   has it mapped, and the kernel ends them with SIGBUS; we install no signal handlers, so nothing here can prevent
//!   that; a broker's state is sealed. We never truncate. To start anew, end the programs and remove the file.
//! * **The contents of `state`.** Every workload of the installation may write all of it. Tools and workloads survive any bytes
//!   in it. A workload whose slot is no longer its own (`Registration::is_ours`) reports that and runs on unmanaged. In one
//!   user's directory an overwritten header is refused, with a sentence, until the file is removed. Where there is a broker,
//!   the header of `state` is not read at all. `gpushare doctor` names slots that were overwritten.
//!
//! # Why not the `shared_memory` crate
//!
//! The simulator's world uses `shared_memory` 0.12; the product's segments do not. Measured: when a forked child drops
//! its handle, the live name is unlinked; the mode is fixed at 0600; it cannot map read-only, and workloads must not be
//! able to write their own quota; opening while another process creates fails; and it knows names, not files, so it cannot
//! live in a directory that is bind-mounted into a container. A plain file through rustix and memmap2 does all of it.
//!
//! # Layers
//!
//! ```text
//! broker     broker                         what a machine's broker writes and hands out
//! faces      edit, snapshot, layout::map    what the tools call
//! process    register                       a process's slot: claimed, published, given back
//! memory     memory                         accounts of a device's memory, and waiting for it
//! use        lock, trace                    what a process does with its slot
//! cache      cached_settings                what it knows of its settings
//! segments   segment                        the mapped segments, and the tables in them
//! socket     broker::socket                 the way to the broker, for both sides
//! wire       broker::wire                   the messages on it
//! files      files                          the directory, and the files in it
//! kernel     os
//! layout     layout                         the types that lie in the segments
//! protocol   protocol                       the steps alone, tried by loom
//! values     value
//! ```
//!
//! # How it is proved
//!
//! `tests/loom.rs` tries every interleaving of the protocols; `lock/tests/schedule.rs` holds shares, caps and orders to their
//! numbers in simulated time; `tests/crash.rs` kills a process at every named step; `tests/chaos.rs` kills, stops and
//! edits at random (`--test chaos -- --seconds 600` for longer); `tests/views.rs` fills both files with random bytes.
//! `cargo bench -p shm-layout` prints one table of costs, beside a raw futex, SysV semaphores, flock and a daemon.
//!
//! # Where `unsafe` is
//!
//! `segment.rs`, `segment/account_map.rs` and `trace/layout.rs` (the casts from mapped bytes); `os/futex.rs`, `os/liveness.rs`,
//! `os/footprint.rs`, `files/create.rs`, `broker/peer.rs` and `broker/readonly.rs` (system calls). All
//! other files are written as if it did not exist.

pub mod broker;
mod cached_settings;
pub mod edit;
pub mod files;
mod layout;
pub mod lock;
pub mod memory;
mod os;
pub mod protocol;
pub mod register;
pub mod segment;
pub mod snapshot;
pub mod trace;
pub mod value;

pub use gpushare_settings::{SETTINGS, environment, policy, row, table, text, variables};

pub use broker::{peer, socket, wire};
pub use cached_settings::{Entry, control_bell, wait_bell};
pub use edit::settings::{DeviceSet, GroupSet, Settings, settings};
pub use edit::{EditError, Operator};
pub use files::error::OpenError;
pub use files::locate::{SegmentDir, locate, locate_existing};
pub use files::probe::check_file_system;
pub use files::{dir, locate};
pub use layout::counters::{CounterView, Counters};
pub use layout::map::map;
pub use lock::{Acquire, DeviceLock, Ending, HeldBack, Mates, Precedence, Tolerance};
pub use memory::ask_to_evict;
pub use memory::ledger::{Ledger, Reservation};
pub use memory::queue::{Interrupted, Place, Poll, QueueTicket, Room, Want, WantKind};
pub use os::{clock, footprint, procfs};
#[doc(hidden)]
pub use protocol::crash;
pub use register::reap::reap;
pub use register::{KeeperMark, Moved, NoDevice, RegisterError, Registration, register};
pub use segment::advisory_locks::AdvisoryLocks;
pub use segment::events::{EventReader, Lost};
pub use segment::{Control, Segments, State};
pub use snapshot::{
    DeviceView, GroupView, Liveness, LivenessCache, LockState, LockView, ProcessDeviceView,
    ProcessView, Snapshot, last_identity, snapshot, snapshot_of,
};
pub use value::{
    ABI_VERSION, ALL_REASONS, BUCKETS_PER_OCTAVE, Blocked, Boost, CardSlice, Change, DEVICE_MIG,
    DEVICE_SIM, DEVICES_PER_PROCESS, Denial, DeviceEdit, DeviceRecord, EVENT_RING, Edit, Event,
    EventKind, EvictAfter, Gang, GroupEdit, GroupRecord, HISTOGRAM, Histogram, HostMemory,
    Identity, LaunchLimits, Limit, LockPolicy, Loss, MAX_DEVICES, MAX_GROUPS, MAX_PROCESSES,
    MAX_RULES, MemoryLimit, MemoryWait, OnFull, OneQuota, Order, Outlook, PICK_NS, Phase,
    PolicyKind, Quota, QuotaValue, Reason, Reserve, Residence, Rule, Set, SettingEdit,
    SettingValues, Share, ShareEdit, SlotId, Source, Sources, Timed, Traits, Unsliced, Until, Uuid,
    Vouched, What, Why, bucket, bucket_start_ns, format_uuid, parse_uuid, quantile,
};
pub use variables::ALIASES;
