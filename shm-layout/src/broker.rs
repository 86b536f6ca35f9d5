//! The broker's half of the protocols: makes a machine's segments or finds them again, hands out descriptions of them, and
//! writes the words that only a broker may write. The caller decides which process gets what.
//!
//! ```text
//!   state      a memfd without a name, sealed against shrink and grow     tenants write
//!   control    a file in a directory that root alone may enter            tenants have read-only descriptions
//!   identity   the same                                                   tenants have read-only descriptions
//!   accounts   a memfd for each process, sealed against writing           its process has it mapped to write
//! ```
//!
//! The descriptors of `control` and `identity` that a tenant gets were opened through a read-only mount (`readonly`), so that
//! root in a container cannot open the files again for writing either.
//!
//! A broker that starts finds the files by their names and the state by its inode: among descriptors that it is given, or
//! in the mappings of a process that the registry names. When none has it any more, nothing of it is missed: a new one is
//! made, and the settings go on, because a slot's lives are counted in `identity`.

mod accounts;
mod find;
pub mod peer;
mod readonly;
mod repair;
pub mod socket;
mod tables;
pub mod wire;

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

pub use self::accounts::{ACCOUNTS, are_accounts, devices_in, make_accounts};
use self::readonly::ReadOnly;
use crate::{
    edit::Operator,
    files::{
        create::{self, Access, Instance, Kind, Mapped},
        dir::Dir,
        error::OpenError,
    },
    layout::{
        codec,
        registry::{Registry, RegistryEntry},
    },
    os::{
        clock, footprint,
        liveness::{self, Mark},
    },
    protocol::{claim, primitive::Ordering},
    register::reap::{Cause, give_back},
    segment::{
        RegistryMap, Segments, Three,
        identity::{self, decode_vouched, encode_vouched},
    },
    value::{Event, EventKind, Identity, MAX_PROCESSES, SlotId, Vouched},
};

/// The segments, and the state that a broker needs to hand them out.
pub struct Broker {
    segments: Segments,
    state: File,
    private: Dir,
    /// `None` where the kernel or a sandbox does not allow such a mount. Then root in a container may write to the files that
    /// it gets for reading; other users may not.
    readonly: Option<ReadOnly>,
    /// True if the memory of an earlier broker was found.
    resumed: bool,
    _lock: File,
}

/// The reason that a broker cannot start.
#[derive(Debug)]
pub enum BrokerError {
    /// Another one runs.
    Running(PathBuf),
    /// Processes run that use segments of another release.
    InUse(PathBuf),
    /// The segments cannot be made.
    Open(OpenError),
}

impl std::fmt::Display for BrokerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use crate::text::PathText as _;
        match self {
            Self::Running(dir) => write!(
                f,
                "a broker serves {} already; gpushare serve --upgrade takes over from it",
                dir.shown()
            ),
            Self::InUse(dir) => write!(
                f,
                "{} is of another release, and programs may still use it; end them, remove {} and start the broker again",
                dir.shown(),
                dir.shown()
            ),
            Self::Open(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BrokerError {}

impl From<OpenError> for BrokerError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// Returns the directory of the files that tenants must not reach. It is beside the directory that containers mount, not in it.
pub fn private_dir(dir: &Path) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push("-private");
    name.into()
}

impl Broker {
    /// Makes the segments of a directory, or finds them again; `given` are descriptors among which the state may be, and `find`
    /// looks for it by inode and name among the mappings of a process. A launch may ask for the priority and weight in `launch`
    /// at most.
    pub fn open(
        dir: &Path,
        given: Vec<OwnedFd>,
        launch: (i32, u32),
        find: impl Fn(u32, u64, &'static str) -> Option<File>,
    ) -> Result<Broker, BrokerError> {
        let private = Dir::open_or_make(&private_dir(dir))?;
        let io = |op| create::failed(private.path(), op);
        private.set_bits(0o700).map_err(io("set the mode of"))?;
        let locked = private.lock().map_err(io("lock"))?;
        let lock = locked.ok_or_else(|| BrokerError::Running(dir.to_path_buf()))?;
        let (control, registry) = files(&private)?;
        let registry = RegistryMap::of(registry);
        (0..MAX_PROCESSES)
            .filter_map(|index| registry.words().entry(index))
            .for_each(RegistryEntry::settle);
        let found = find::state(registry.words(), given, find);
        let resumed = found.is_some();
        let state = match found {
            Some(state) => state,
            None => find::make(private.path(), control.instance)?,
        };
        let path = private.path().join(Kind::State.name());
        let instance = control.instance;
        let mapped = create::map(path, &state, Kind::State, Access::Write, instance)?;
        registry.words().begin(mapped.id.ino, std::process::id());
        registry.words().bound_launches(launch);
        let three = Three {
            state: mapped,
            control,
            registry,
        };
        let segments = Segments::of_three(dir, three, true, None, true);
        Ok(Broker {
            readonly: ReadOnly::of(private.fd()).ok(),
            segments,
            state,
            private,
            resumed,
            _lock: lock,
        })
    }

    /// The segments, all to be written.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Returns true if the memory of an earlier broker was found.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Returns true if root in a container cannot write to the files that it gets for reading.
    pub fn is_tight(&self) -> bool {
        self.readonly.is_some()
    }

    /// The state, to be kept for the next broker.
    pub fn state(&self) -> BorrowedFd<'_> {
        self.state.as_fd()
    }

    /// To make edits.
    pub fn operator(&self) -> Operator {
        Operator::of(&self.segments)
    }

    /// Returns the directory that only root may enter.
    pub fn private(&self) -> &Dir {
        &self.private
    }

    /// Makes descriptions of the segments that no client had before: state, control, identity.
    pub fn describe(&self, write_state: bool) -> io::Result<[File; 3]> {
        let again = format!("/proc/self/fd/{}", self.state.as_raw_fd());
        let state = File::options().read(true).write(write_state).open(again)?;
        let read = |kind: Kind| match &self.readonly {
            Some(readonly) => readonly.open(kind.name()),
            None => self.private.read(kind.name()).map_err(io::Error::from),
        };
        Ok([state, read(Kind::Control)?, read(Kind::Identity)?])
    }

    /// Returns the present life of a slot, if a process has it.
    pub fn live(&self, index: usize) -> Option<SlotId> {
        let epoch = registry_of(&self.segments).entry(index)?.live()?;
        let index = index as u16;
        Some(SlotId { index, epoch })
    }

    /// Lists the processes that have slots by the registry of an earlier broker. The caller watches each one, or takes its slot
    /// back.
    pub fn inherited(&self) -> Vec<(SlotId, Identity, Vouched)> {
        let registry = registry_of(&self.segments);
        let mut found = Vec::new();
        for index in 0..MAX_PROCESSES {
            let words = registry.entry(index).and_then(RegistryEntry::read);
            let (Some(slot), Some(words)) = (self.live(index), words) else {
                // A broker that was killed while it wrote the entry gave the slot to no process.
                registry.leave(SlotId {
                    index: index as u16,
                    epoch: 0,
                });
                continue;
            };
            let (identity, vouched) = decode_vouched(&words);
            found.push((slot, identity, vouched));
        }
        found
    }

    /// Gives a process a slot, and enters its group: the slot, and the group's index + 1. `inode` is that of its accounts. `None`
    /// if there is no place for the group: a process without its group would escape the group's limits.
    pub fn take(
        &self,
        index: usize,
        (who, vouched): (&Identity, &Vouched),
        group: Option<&str>,
        inode: u64,
    ) -> Option<(SlotId, u32)> {
        let state = self.segments.state();
        let registry = registry_of(&self.segments);
        let (slot, entry) = (state.slots.get(index)?, registry.entry(index)?);
        let place = |name| {
            let words = codec::name_words(name)?;
            Some((tables::group_place(registry, &words)?, words))
        };
        let group = match group {
            Some(name) => Some(place(name)?),
            None => None,
        };
        let epoch = entry.epoch().wrapping_add(1).max(1);
        let id = SlotId {
            index: index as u16,
            epoch,
        };
        claim::begin(&slot.claim, epoch);
        liveness::disown_word(&slot.keeper);
        entry.take(epoch, &encode_vouched(who, vouched), inode);
        let member = tables::enter_group(registry, state, id, group);
        slot.group.store(member, Ordering::Relaxed);
        Some((id, member))
    }

    /// Counts a process that gets no slot.
    pub fn turn_away(&self) {
        let (state, now) = (self.segments.state(), clock::now());
        registry_of(&self.segments).count_unmanaged(now);
        state.publish(Event {
            slot: u16::MAX,
            ..Event::of(now, SlotId { index: 0, epoch: 0 }, EventKind::Unmanaged)
        });
    }

    /// Removes a slot that was [given back](Reaper::give_back) from its group. Returns false if it was given to a process since.
    pub fn leave(&self, slot: SlotId) -> bool {
        let registry = registry_of(&self.segments);
        let entry = registry.entry(usize::from(slot.index));
        let free = entry.is_none_or(|entry| entry.live().is_none());
        if free {
            registry.leave(slot);
        }
        free
    }

    /// Returns the reaper, which gives slots back on a thread of its own, because tenants may write to the words while it works
    /// on them.
    pub fn reaper(&self) -> Reaper {
        Reaper(self.segments.clone())
    }

    /// Returns the inode of the accounts that a slot's process may have unmapped: the mark of its keeper, which tenants may
    /// write, says that it died. `None` where the mark says that it lives, or the process has not confirmed yet that it has its
    /// accounts mapped.
    pub fn may_have_let_go(&self, slot: SlotId) -> Option<u64> {
        let words = &self.segments.state().slots[usize::from(slot.index)];
        let entry = registry_of(&self.segments).entry(usize::from(slot.index))?;
        let has_begun = entry.begun() == Some(slot.epoch);
        (has_begun && liveness::mark_of(&words.keeper) == Mark::Dead).then(|| entry.account_inode())
    }

    /// Returns true if the process of a slot has not begun to use it.
    pub fn is_untouched(&self, slot: SlotId) -> bool {
        let words = &self.segments.state().slots[usize::from(slot.index)];
        // ORDER: pairs with the Release in publish.
        claim::parse(words.claim.load(Ordering::Acquire)) == (slot.epoch, claim::Phase::Claiming)
    }

    /// Remembers that an administrator paused a process: its user may not resume it before that time, or ever at `u64::MAX`.
    pub fn hold(&self, slot: SlotId, until_ns: u64) {
        if let Some(entry) = registry_of(&self.segments).entry(usize::from(slot.index)) {
            entry.held.store(until_ns, Ordering::Relaxed);
        }
    }

    /// Returns the end of an administrator's pause; 0 without a pause.
    pub fn held_until(&self, slot: SlotId) -> u64 {
        let entry = registry_of(&self.segments).entry(usize::from(slot.index));
        entry.map_or(0, |entry| entry.held.load(Ordering::Relaxed))
    }

    /// Releases all memory that only maps files, because there is nothing to do for now.
    pub fn settle(&self) {
        self.segments.let_go();
        footprint::let_go_of_program();
    }

    /// Returns the identity of the process that has a slot.
    pub fn who(&self, slot: SlotId) -> Option<(Identity, Vouched)> {
        identity::of_registry(registry_of(&self.segments), slot)
    }

    /// The newest settings.
    pub fn generation(&self) -> u64 {
        self.segments.control().generation()
    }

    /// Changes the label of a process. `None` where it has ended.
    pub fn relabel(&self, slot: SlotId, label: &str) -> Option<()> {
        let (mut who, vouched) = self.who(slot)?;
        label.clone_into(&mut who.label);
        let entry = registry_of(&self.segments).entry(usize::from(slot.index))?;
        entry.rewrite(&encode_vouched(&who, &vouched));
        let words = &self.segments.state().slots[usize::from(slot.index)];
        if claim::live(&words.claim) == Some(slot.epoch) {
            repair::publish_identity(words, &who);
        }
        Some(())
    }
}

/// Gives slots back.
pub struct Reaper(Segments);

impl Reaper {
    /// Takes a dead process's slot out of every queue and sum, and frees it.
    pub fn give_back(&self, slot: SlotId) {
        let Some(entry) = registry_of(&self.0).entry(usize::from(slot.index)) else {
            return;
        };
        let clear = || give_back(&self.0, slot, clock::now(), Cause::Death);
        match entry.live() {
            Some(live) if live == slot.epoch => {
                clear();
                entry.free();
            }
            // Only its claim said that it was taken.
            None => clear(),
            // The slot was given to a process since.
            Some(_) => {}
        }
    }
}

/// A broker's segments have one.
fn registry_of(segments: &Segments) -> &Registry {
    segments.registry().expect("made with a registry")
}

/// Both files, made where they are missing, of an earlier boot, or not of one instance and used by no process.
fn files(private: &Dir) -> Result<(Mapped, Mapped), BrokerError> {
    let look = |kind| create::open_checked(private, kind, Access::Write);
    for _ in 0..2 {
        let found = (look(Kind::Control), look(Kind::Identity));
        let replace = match found {
            (Ok(control), Ok(registry)) => {
                if control.instance == registry.instance {
                    return Ok((control, registry));
                }
                // A broker was killed between the two: it had no clients yet.
                true
            }
            (Err(error), _) | (_, Err(error)) => match error {
                OpenError::Missing { .. } | OpenError::StaleBoot { .. } => true,
                OpenError::WrongVersion { path, .. } => return Err(BrokerError::InUse(path)),
                other => return Err(other.into()),
            },
        };
        let instance = Instance::fresh();
        for kind in [Kind::Identity, Kind::Control] {
            create::publish(private, kind, instance, replace)?;
        }
    }
    let path = private.path().to_path_buf();
    Err(OpenError::NotReady { path }.into())
}
