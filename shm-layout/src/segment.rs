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

pub use crate::{control::Control, state::State};
use crate::{
    create::{self, Kind, Mapped, Pair, Want},
    dir::Dir,
    error::OpenError,
    liveness::Bytes,
    locate::Mode,
};

/// Both segments of a directory. Cloning is cheap.
#[derive(Clone)]
pub struct Segments(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    mode: Mode,
    pair: Pair,
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

    /// Creates a system installation: directory 0755, state 0664 `group`, control 0644. Needs root. Where `state` was
    /// removed, the `control` that belonged to it is set aside; its new name.
    pub fn init_system(dir: &Path, group: Option<u32>) -> Result<Option<PathBuf>, OpenError> {
        create::system(dir, group)
    }

    pub(crate) fn open(
        dir: &Path,
        want: Want,
        state_rw: bool,
        control_rw: bool,
    ) -> Result<Segments, OpenError> {
        let dir = Dir::open(dir)?;
        let pair = create::open(&dir, want, state_rw, control_rw)?;
        Ok(Segments(Arc::new(Inner {
            mode: dir.mode(),
            dir: dir.path().to_path_buf(),
            pair,
            may_write: state_rw,
        })))
    }

    /// The state segment.
    pub fn state(&self) -> &State {
        // SAFETY: create::open checked the length, a mapping is page-aligned and lives as long as `self`, and State
        // is Shared: atomics only, any bytes valid.
        unsafe { &*self.0.pair.state.map.as_ptr().cast::<State>() }
    }

    /// The control segment.
    pub fn control(&self) -> &Control {
        // SAFETY: as for state.
        unsafe { &*self.0.pair.control.map.as_ptr().cast::<Control>() }
    }

    /// The directory both are in.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Whether the state is mapped read-write.
    pub(crate) fn may_write(&self) -> bool {
        self.0.may_write
    }

    /// Settings of earlier segments that were found here and set aside, by the file's new name: its `state` had been
    /// removed. No process applies them.
    pub fn set_aside(&self) -> Option<&Path> {
        self.0.pair.set_aside.as_deref()
    }

    /// The slots' bytes, to lock (`write`) or only to look at them.
    pub(crate) fn slot_bytes(&self, write: bool) -> std::io::Result<Bytes> {
        self.bytes(Kind::State, &self.0.pair.state, write)
    }

    /// The control file, to keep other operators out.
    pub(crate) fn control_bytes(&self) -> std::io::Result<Bytes> {
        self.bytes(Kind::Control, &self.0.pair.control, true)
    }

    fn bytes(&self, kind: Kind, mapped: &Mapped, write: bool) -> std::io::Result<Bytes> {
        let dir = Dir::open(&self.0.dir)?;
        let file = dir.existing(kind.name(), write, kind.names(self.0.mode))?;
        Bytes::of(file, mapped.id)
    }
}
