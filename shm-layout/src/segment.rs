//! Both segments, mapped.
//!
//! A caller may rely on this: what is mapped has the right magic, version, size, owner and boot, is backed by real
//! pages, and stays where it is as long as any clone of [`Segments`] lives. What its bytes say is another matter;
//! every reader checks.

#![expect(
    unsafe_code,
    reason = "the two casts from mapped bytes to the segments' types"
)]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use memmap2::MmapRaw;

pub use crate::{control::Control, state::State};
use crate::{
    create::{self, Kind, Want},
    edit::Operator,
    error::OpenError,
    liveness::{Bytes, FileId},
    locate,
};

/// Both segments of a directory. Cloning is cheap.
#[derive(Clone)]
pub struct Segments(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    state: MmapRaw,
    control: MmapRaw,
    state_id: FileId,
    control_id: FileId,
    may_write: bool,
}

impl Segments {
    /// For a workload: state read-write, control read-only. Creates both in user mode where missing or stale.
    pub fn open_workload(dir: &Path) -> Result<Segments, OpenError> {
        Self::open(dir, Want::Make, true, false)
    }

    /// For a viewer: both read-only; never creates. Do not [publish](State::publish) through it.
    pub fn open_viewer(dir: &Path) -> Result<Segments, OpenError> {
        Self::open(dir, Want::Find, false, false)
    }

    /// For the operator: both read-write; creates them in user mode where missing or stale.
    pub fn open_operator(dir: &Path) -> Result<Operator, OpenError> {
        Self::open(dir, Want::Make, true, true).map(Operator::new)
    }

    /// Creates a system installation: directory 0755, state 0664 `group`, control 0644. Needs root.
    pub fn init_system(dir: &Path, group: Option<u32>) -> Result<(), OpenError> {
        create::system(dir, group)
    }

    fn open(
        dir: &Path,
        want: Want,
        state_rw: bool,
        control_rw: bool,
    ) -> Result<Segments, OpenError> {
        locate::check(dir)?;
        let (control, control_id) = create::open(dir, Kind::Control, want, control_rw)?;
        let (state, state_id) = create::open(dir, Kind::State, want, state_rw)?;
        let dir = dir.to_path_buf();
        Ok(Segments(Arc::new(Inner {
            dir,
            state,
            control,
            state_id,
            control_id,
            may_write: state_rw,
        })))
    }

    /// The state segment.
    pub fn state(&self) -> &State {
        // SAFETY: create::open checked the length, a mapping is page-aligned and lives as long as `self`, and State
        // is Shared: atomics only, any bytes valid.
        unsafe { &*self.0.state.as_ptr().cast::<State>() }
    }

    /// The control segment.
    pub fn control(&self) -> &Control {
        // SAFETY: as for state.
        unsafe { &*self.0.control.as_ptr().cast::<Control>() }
    }

    /// The directory both are in.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Whether the state is mapped read-write.
    pub(crate) fn may_write(&self) -> bool {
        self.0.may_write
    }

    /// The slots' bytes, to lock (`write`) or only to look at them.
    pub(crate) fn slot_bytes(&self, write: bool) -> std::io::Result<Bytes> {
        Bytes::open(&self.0.dir.join(Kind::State.name()), self.0.state_id, write)
    }

    /// The control file, to keep other operators out.
    pub(crate) fn control_bytes(&self) -> std::io::Result<Bytes> {
        Bytes::open(
            &self.0.dir.join(Kind::Control.name()),
            self.0.control_id,
            true,
        )
    }
}
