//! The driver calls of a process, recorded while a trace is requested.
//!
//! A *trace buffer* is one file per process, beside the segments: `trace-SLOT-EPOCH`; where a broker serves, in the directory
//! of the process's user (`files::locate`). The operator's tool makes it at its full size, so that a full file system is an
//! error there and never a SIGBUS in a managed process, and then edits the slot's record
//! ([`Change::Trace`](crate::Change::Trace)). The process's keeper opens the file, checks all of it, switches its hooks over
//! and acknowledges. A process whose launch asked for a trace makes the file itself, in the same way. After `stop`, or after
//! the process's end, the file stays for export.
//!
//! ```text
//!   ┌──────┬───────────────┬──────────────┬───────────────────────────────────┐
//!   │ head │ 1024 names    │ 1024 rows    │ records of 32 bytes               │
//!   │      │ call ─▶ name  │ count, sums  │ start, duration, argument, what   │
//!   └──────┴───────────────┴──────────────┴───────────────────────────────────┘
//! ```
//!
//! # Guarantees
//!
//! * **One timeline.** Beside the calls the process writes its waits for the lock, its holds and its denials itself: the
//!   segments' event ring is shared by all processes and may have turned over long before a trace is exported.
//! * **Discard when full.** Records that do not fit are counted ([`Progress::dropped`]); the rows are updated further and stay
//!   exact.
//! * **Any bytes.** [`Reader`] reads the file without mapping it, so a file that shrinks is an error and no signal, and checks
//!   every value. A record is published by its last word, written once: a record that a thread left half written when its
//!   process died is skipped.
//! * **Times** are those of [`clock`](crate::os::clock); the head has one moment in both clocks ([`Header::realtime_ns`]).
//! * **A call's duration** is the time that the application waited for it, lock included. The wait for the lock is also
//!   recorded on its own ([`Stat::waited_ns`], records of [`Kind::Wait`] within the call).

mod adopt;
pub mod alnair;
mod buffer;
pub mod claim;
mod create;
mod error;
mod layout;
mod reader;
mod record;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

pub(crate) use self::layout::{Head, Line, Name, Row, Tables};
pub use self::{
    adopt::Guest,
    buffer::{Buffer, Call, Length},
    create::{KEEP, create, list, remove, sweep},
    error::TraceError,
    reader::{Header, Reader, Stat},
    record::{Kind, Record},
};
pub use crate::value::{
    DEFAULT_RECORDS, Progress, RECORDS, TraceOrder as Order, TraceState, TraceView,
};
use crate::{
    cached_settings::OwnSlot, files::locate, layout::state::Slot, protocol::primitive::Ordering,
    value::SlotId,
};

/// The buffer's version; grows whenever an offset of it moves.
pub const VERSION: u32 = 1;
/// Call codes a buffer has names and rows for.
pub const CALLS: usize = 1024;

/// Returns the path of the buffer of one life of a slot.
pub fn path(dir: &Path, slot: SlotId) -> PathBuf {
    locate::shared_path(dir).join(name_of(slot))
}

fn name_of(slot: SlotId) -> String {
    format!("trace-{}-{}", slot.index, slot.epoch)
}

/// A buffer's size in bytes.
pub fn size(records: u32) -> u64 {
    (size_of::<Tables>() + records as usize * size_of::<Line>()) as u64
}

impl TraceState {
    /// Returns the trace state for a failure to open the buffer.
    pub fn of_error(error: &TraceError) -> TraceState {
        match error {
            TraceError::Missing { .. } => Self::NoBuffer,
            TraceError::NoSpace { .. } => Self::NoSpace,
            TraceError::Io { source, .. } => match source.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::NotPermitted,
                // No descriptors, no memory to map it.
                ErrorKind::OutOfMemory => Self::NoSpace,
                _ if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    Self::NoSpace
                }
                _ => Self::BadBuffer,
            },
            TraceError::Dir(_) => Self::NotPermitted,
            TraceError::Foreign { .. }
            | TraceError::NotIts { .. }
            | TraceError::WrongVersion { .. }
            | TraceError::Records { .. } => Self::BadBuffer,
        }
    }
}

impl OwnSlot {
    /// Returns the operator's order for a trace.
    pub(crate) fn trace_order(&self) -> Option<Order> {
        self.known().trace_order()
    }

    /// Says how far the trace has come.
    pub(crate) fn trace_progress(&self, progress: &Progress) {
        let state = TraceState::ALL
            .iter()
            .position(|state| *state == progress.state);
        let word = state.unwrap_or(0) as u64 | u64::from(progress.logs) << 8;
        let slot = self.words();
        slot.trace_state.store(word, Ordering::Relaxed);
        slot.trace_records
            .store(progress.records, Ordering::Relaxed);
        slot.trace_dropped
            .store(progress.dropped, Ordering::Relaxed);
    }
}

impl Slot {
    pub(crate) fn trace_progress(&self) -> Progress {
        let word = self.trace_state.load(Ordering::Relaxed);
        Progress {
            state: TraceState::ALL
                .get((word & 0xff) as usize)
                .copied()
                .unwrap_or_default(),
            logs: word >> 8 & 1 == 1,
            records: self.trace_records.load(Ordering::Relaxed),
            dropped: self.trace_dropped.load(Ordering::Relaxed),
        }
    }
}
