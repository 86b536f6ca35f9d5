//! Asked for and done: the operator's order in the control record, and what the process says of it in its slot.

use std::io::ErrorKind;

use super::{RECORDS, TraceError};
use crate::{primitive::Ordering, register::Registration, state::Slot};

/// The operator wants a trace, or an end of one: also of one that the launch asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Records of the buffer; zero ends the trace.
    pub records: u32,
    /// Never zero. Another number is another order: the buffer is opened anew.
    pub number: u32,
}

impl Order {
    /// Records of the buffer it wants; `None` if it ends the trace.
    pub fn room(self) -> Option<u32> {
        (self.records > 0).then_some(self.records)
    }
}

/// The record's word for it; zero is none.
pub(crate) fn order_words(order: Option<Order>) -> u64 {
    order.map_or(0, |order| {
        u64::from(order.records) | u64::from(order.number) << 32
    })
}

pub(crate) fn order_of(word: u64) -> Option<Order> {
    let (records, number) = (word as u32, (word >> 32) as u32);
    let is_known = number != 0 && (records == 0 || RECORDS.contains(&records));
    is_known.then_some(Order { records, number })
}

/// Where the process stands with its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TraceState {
    /// It writes none.
    #[default]
    Off,
    /// It writes one.
    On,
    /// Asked for, but it finds no buffer.
    NoBuffer,
    /// Asked for, but it may not write the buffer: its view of the directory is read-only, or the file is not its own.
    NotPermitted,
    /// Asked for, but there is no room for the buffer: on the file system, or in the process.
    NoSpace,
    /// Asked for, but the file is no buffer of its own.
    BadBuffer,
}

const STATES: [TraceState; 6] = [
    TraceState::Off,
    TraceState::On,
    TraceState::NoBuffer,
    TraceState::NotPermitted,
    TraceState::NoSpace,
    TraceState::BadBuffer,
];

impl TraceState {
    /// What a failure to open the buffer comes to.
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

/// How far a trace has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Where the process stands.
    pub state: TraceState,
    /// It also writes the files of `PFLOG`.
    pub logs: bool,
    /// Records written.
    pub records: u64,
    /// Records that found no room.
    pub dropped: u64,
}

/// A process's trace as the snapshot has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceView {
    /// What the operator asked for: records; `None` for no trace.
    pub wanted: Option<u32>,
    /// What the process makes of it.
    pub progress: Progress,
}

impl Registration {
    /// What the operator wants traced.
    pub fn trace_order(&self) -> Option<Order> {
        self.known().trace_order()
    }

    /// Says how far the trace has come.
    pub fn trace_progress(&self, progress: &Progress) {
        let state = STATES.iter().position(|state| *state == progress.state);
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
            state: STATES
                .get((word & 0xff) as usize)
                .copied()
                .unwrap_or_default(),
            logs: word >> 8 & 1 == 1,
            records: self.trace_records.load(Ordering::Relaxed),
            dropped: self.trace_dropped.load(Ordering::Relaxed),
        }
    }
}
