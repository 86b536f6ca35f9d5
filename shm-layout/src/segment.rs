//! Both segments, mapped.

use std::{path::Path, sync::Arc};

use crate::{
    edit::Operator,
    error::OpenError,
    events::{Event, EventReader},
};

/// The state segment: workloads and tools write it.
#[repr(C)]
pub struct State {
    _private: [u8; 0],
}

/// The control segment: only the operator writes it.
#[repr(C)]
pub struct Control {
    _private: [u8; 0],
}

/// Both segments of a directory. Cloning is cheap.
#[derive(Clone)]
pub struct Segments(#[allow(dead_code)] Arc<Inner>);

struct Inner;

impl Segments {
    /// For a workload: state read-write, control read-only. Creates both in user mode where missing or stale.
    pub fn open_workload(_dir: &Path) -> Result<Segments, OpenError> {
        todo!()
    }

    /// For a viewer: both read-only; never creates.
    pub fn open_viewer(_dir: &Path) -> Result<Segments, OpenError> {
        todo!()
    }

    /// For the operator: both read-write; creates them in user mode where missing or stale.
    pub fn open_operator(_dir: &Path) -> Result<Operator, OpenError> {
        todo!()
    }

    /// Creates a system installation: directory 0755, state 0664 `group`, control 0644. Needs root.
    pub fn init_system(_dir: &Path, _group: Option<u32>) -> Result<(), OpenError> {
        todo!()
    }

    /// The state segment.
    pub fn state(&self) -> &State {
        todo!()
    }

    /// The control segment.
    pub fn control(&self) -> &Control {
        todo!()
    }

    /// The directory both are in.
    pub fn dir(&self) -> &Path {
        todo!()
    }
}

impl State {
    /// Appends an event; its `seq` is given here.
    pub fn publish(&self, _event: Event) {
        todo!()
    }

    /// A reader that starts behind the newest event.
    pub fn events(&self) -> EventReader {
        todo!()
    }

    /// Counts a process that found no slot.
    pub fn count_unmanaged(&self) {
        todo!()
    }
}
