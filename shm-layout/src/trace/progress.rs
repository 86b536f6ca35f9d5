//! Progress of a trace: the operator's order in the control record, and the process's answer in its slot.

use std::io::ErrorKind;

use super::TraceError;
use crate::{
    cached_settings::OwnSlot,
    layout::state::Slot,
    protocol::primitive::Ordering,
    value::{Progress, TraceOrder, TraceState},
};

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
    pub(crate) fn trace_order(&self) -> Option<TraceOrder> {
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
