//! The segments, mapped.
//!
//! A caller may rely on this: a mapping has the right magic, version, size, owner and boot, is backed by real pages, and stays
//! in place as long as any clone of [`Segments`] lives. The bytes inside may be anything; every reader checks them.
//!
//! On a machine with a broker they come through its socket: a state that no process can truncate, and settings and a registry
//! of identities that this process cannot write.

#![expect(
    unsafe_code,
    reason = "the three casts from mapped bytes to the segments' types"
)]

pub(crate) mod account_map;
pub mod advisory_locks;
pub mod events;
pub(crate) mod identity;
pub(crate) mod records;
pub(crate) mod tables;

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

pub use crate::layout::{control::Control, state::State};
use crate::{
    broker::{
        socket::{self, Connection},
        wire::{self, Field, Message, Verb},
    },
    files::{
        create::{self, Access, Kind, Mapped, Pair, Want},
        dir::Dir,
        error::OpenError,
    },
    layout::registry::Registry,
    os::{footprint, liveness::Bytes},
    protocol::{claim, crash::crash_point},
    value::{ABI_VERSION, LaunchLimits, LockPolicy, SlotId, Uuid, format_uuid},
};

use self::account_map::{AccountMap, OwnAccount};

/// The segments of a directory. Cloning is cheap.
#[derive(Clone)]
pub struct Segments(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    pair: Pair,
    may_write: bool,
    broker: Option<Brokered>,
    /// Descriptor for queries of dead processes, for a reader: a dashboard makes them all day. A managed process keeps none.
    looks: OnceLock<Bytes>,
}

/// An identity segment, mapped.
pub(crate) struct RegistryMap(Mapped);

impl RegistryMap {
    pub(crate) fn of(mapped: Mapped) -> RegistryMap {
        RegistryMap(mapped)
    }

    pub(crate) fn words(&self) -> &Registry {
        // SAFETY: create::checked checked kind and length, a mapping is page-aligned and lives as long as `self`, and Registry
        // is Shared: atomics only, any bytes valid.
        unsafe { &*self.0.map.as_ptr().cast::<Registry>() }
    }
}

/// A slot, or why there is none, as the broker answered.
pub(crate) struct Admission {
    question: Message,
    answer: Message,
    /// The slot's accounts.
    private_account: Option<OwnAccount>,
    /// Process that opened the segments; a forked child has another pid.
    pid: u32,
}

/// The parts that exist only on a machine with a broker.
struct Brokered {
    registry: RegistryMap,
    /// The accounts of others.
    account_map: AccountMap,
    /// The broker's reply to a request for a slot with the segments, kept until the process registers.
    admission: Mutex<Option<Admission>>,
    /// We are the broker.
    ours: bool,
}

/// The three segments of a broker, mapped.
pub(crate) struct Three {
    pub(crate) state: Mapped,
    pub(crate) control: Mapped,
    pub(crate) registry: RegistryMap,
}

/// Says which slots' processes are gone.
pub(crate) enum Probe<'s> {
    /// By the bytes that they have locked.
    Bytes(Bytes),
    /// Uses a descriptor that is kept for frequent queries.
    Kept(&'s Bytes),
    /// By the broker's registry.
    Registry(&'s Segments),
}

impl Segments {
    /// For a workload: state read-write, control read-only. Creates both in user mode where missing or stale.
    pub fn open_workload(dir: &Path) -> Result<Segments, OpenError> {
        Self::open(dir, Want::Make, true, false)
    }

    /// Opens the segments for a workload that [registers](fn@crate::register) next. A broker then gets one request for both.
    pub fn open_to_register(
        dir: &Path,
        label: &str,
        limits: &LaunchLimits,
    ) -> Result<Segments, OpenError> {
        let opened = Dir::open(dir)?;
        if opened.is_brokered() {
            let question = registering(label, limits.group.as_deref());
            return Self::of_broker(opened.path(), question, true);
        }
        Self::open_workload(dir)
    }

    /// For a viewer: all read-only; never creates. Do not [publish](State::publish) through it.
    pub fn open_viewer(dir: &Path) -> Result<Segments, OpenError> {
        Self::open(dir, Want::Find, false, false)
    }

    pub(crate) fn open(
        dir: &Path,
        want: Want,
        state_rw: bool,
        control_rw: bool,
    ) -> Result<Segments, OpenError> {
        let dir = Dir::open(dir)?;
        if dir.is_brokered() {
            return Self::of_broker(dir.path(), opening(state_rw), state_rw);
        }
        let pair = create::open(&dir, want, state_rw, control_rw)?;
        Ok(Segments(Arc::new(Inner {
            dir: dir.path().to_path_buf(),
            pair,
            may_write: state_rw,
            looks: OnceLock::new(),
            broker: None,
        })))
    }

    /// Receives the segments from a broker.
    fn of_broker(dir: &Path, question: Message, state_rw: bool) -> Result<Segments, OpenError> {
        let connect = match state_rw {
            true => Connection::to_next,
            false => Connection::to,
        };
        let (answer, mut handed, connection) = socket::ask_and_stay(dir, &question, connect)?;
        crash_point!("page:handed");
        let private_account = own_account(dir, &answer, &mut handed)?;
        crash_point!("page:mapped");
        // The closed connection tells the broker that the accounts are mapped.
        drop(connection);
        crash_point!("page:told");
        let three = three(dir, handed, state_rw)?;
        let admission = question.text(Field::Label).is_some().then(|| Admission {
            question,
            answer,
            private_account,
            pid: std::process::id(),
        });
        Ok(Self::of_three(dir, three, state_rw, admission, false))
    }

    /// The broker's own.
    pub(crate) fn of_three(
        dir: &Path,
        three: Three,
        may_write: bool,
        admission: Option<Admission>,
        ours: bool,
    ) -> Segments {
        Segments(Arc::new(Inner {
            dir: dir.to_path_buf(),
            pair: Pair {
                state: three.state,
                control: three.control,
                set_aside: None,
            },
            may_write,
            looks: OnceLock::new(),
            broker: Some(Brokered {
                registry: three.registry,
                account_map: AccountMap::new(),
                admission: Mutex::new(admission),
                ours,
            }),
        }))
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

    /// Returns the registry of processes, on a machine with a broker.
    pub(crate) fn registry(&self) -> Option<&Registry> {
        Some(self.0.broker.as_ref()?.registry.words())
    }

    /// The accounts of a machine's processes, where a broker hands them out.
    pub(crate) fn account_map(&self) -> Option<&AccountMap> {
        Some(&self.0.broker.as_ref()?.account_map)
    }

    /// Has the broker look whether a process has its accounts mapped.
    pub(crate) fn ask_for_accounts(&self, slot: SlotId) {
        let _ = socket::ask(&self.0.dir, &account_map::asking(&[slot]));
    }

    /// Returns a device's place in the registry. Where the device has none yet, asks the broker for one.
    pub(crate) fn place_in(
        &self,
        registry: &Registry,
        uuid: Uuid,
        words: [u64; 2],
    ) -> Result<Option<usize>, OpenError> {
        if let Some(place) = registry.device(words) {
            return Ok(Some(place));
        }
        let question = Message::new(Verb::Device).with(Field::Uuid, format_uuid(uuid, false));
        socket::ask_and_stay(&self.0.dir, &question, Connection::to_next)?;
        Ok(registry.device(words))
    }

    /// Returns true if the segments come from a broker.
    pub fn is_brokered(&self) -> bool {
        self.0.broker.is_some()
    }

    /// The longest that a holder may keep a lock here while others deserve it.
    pub fn hold_limit(&self, policy: &LockPolicy) -> u64 {
        policy.hold_limit(self.is_brokered())
    }

    /// Returns true if the broker has made a new state segment, because every process that had this one was gone.
    pub fn is_outdated(&self) -> bool {
        let newest = self.registry().map(|registry| registry.state());
        newest.is_some_and(|inode| inode != self.0.pair.state.id.ino)
    }

    /// Lets go of the pages, until they are touched again.
    pub(crate) fn let_go(&self) {
        let Inner { pair, broker, .. } = &*self.0;
        footprint::let_go(&pair.state.map);
        footprint::let_go(&pair.control.map);
        if let Some(broker) = broker {
            footprint::let_go(&broker.registry.0.map);
        }
    }

    /// The directory they are of.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Returns true if the state is mapped read-write.
    pub(crate) fn may_write(&self) -> bool {
        self.0.may_write
    }

    /// Returns true if this process may give back what dead processes held. Where there is a broker, only the broker may.
    pub(crate) fn may_reap(&self) -> bool {
        self.0.may_write && self.0.broker.is_none()
    }

    /// Returns true if this process may make edits itself.
    pub(crate) fn may_edit(&self) -> bool {
        self.0.broker.as_ref().is_none_or(|broker| broker.ours)
    }

    /// Returns the broker's reply to a request for a slot: the one that came with the segments, or that to a new request.
    pub(crate) fn admit(
        &self,
        label: &str,
        group: Option<&str>,
    ) -> Result<(Message, Option<OwnAccount>), OpenError> {
        let question = registering(label, group);
        let kept = self.0.broker.as_ref().and_then(|broker| {
            let kept = broker.admission.lock();
            kept.unwrap_or_else(PoisonError::into_inner).take()
        });
        let fits = |one: &Admission| one.question == question && one.pid == std::process::id();
        match kept.filter(fits) {
            Some(kept) => Ok((kept.answer, kept.private_account)),
            None => {
                let dir = &self.0.dir;
                let (answer, mut handed, _connection) =
                    socket::ask_and_stay(dir, &question, Connection::to_next)?;
                let private_account = own_account(dir, &answer, &mut handed)?;
                Ok((answer, private_account))
            }
        }
    }

    /// Settings of earlier segments that were found here and set aside, by the file's new name: its `state` had been
    /// removed. No process applies them.
    pub fn set_aside(&self) -> Option<&Path> {
        self.0.pair.set_aside.as_deref()
    }

    /// Returns true while this life of a slot has not ended.
    pub(crate) fn is_current(&self, slot: SlotId) -> bool {
        match self.registry() {
            Some(registry) => registry.is_current(slot),
            None => {
                let slots = &self.state().slots;
                let words = slots.get(usize::from(slot.index));
                words.and_then(|words| claim::live(&words.claim)) == Some(slot.epoch)
            }
        }
    }

    /// Starts queries of dead processes.
    pub(crate) fn probe(&self) -> io::Result<Probe<'_>> {
        if self.is_brokered() {
            return Ok(Probe::Registry(self));
        }
        if self.0.may_write {
            return self.slot_bytes(false).map(Probe::Bytes);
        }
        let kept = match self.0.looks.get() {
            Some(kept) => kept,
            None => {
                let bytes = self.slot_bytes(false)?;
                self.0.looks.get_or_init(|| bytes)
            }
        };
        Ok(Probe::Kept(kept))
    }

    /// The slots' bytes, to lock (`write`) or only to look at them. A broker's clients have none.
    pub(crate) fn slot_bytes(&self, write: bool) -> io::Result<Bytes> {
        self.bytes(Kind::State, &self.0.pair.state, write)
    }

    /// The control file, to keep other operators out.
    pub(crate) fn control_bytes(&self) -> io::Result<Bytes> {
        self.bytes(Kind::Control, &self.0.pair.control, true)
    }

    fn bytes(&self, kind: Kind, mapped: &Mapped, write: bool) -> io::Result<Bytes> {
        if self.is_brokered() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let dir = Dir::open(&self.0.dir)?;
        let file = dir.existing(kind.name(), write)?;
        Bytes::of(file, mapped.id)
    }
}

impl Probe<'_> {
    /// Returns true if the process of a slot is gone.
    pub(crate) fn is_gone(&self, index: usize) -> io::Result<bool> {
        match self {
            Probe::Bytes(bytes) => bytes.is_locked(index).map(|locked| !locked),
            Probe::Kept(bytes) => bytes.is_locked(index).map(|locked| !locked),
            Probe::Registry(segments) => {
                let entry = segments
                    .registry()
                    .and_then(|registry| registry.entry(index));
                Ok(entry.and_then(|entry| entry.live()).is_none())
            }
        }
    }
}

/// Asks for the segments.
fn opening(state_rw: bool) -> Message {
    let access = if state_rw {
        wire::WORKLOAD
    } else {
        wire::VIEWER
    };
    Message::new(Verb::Open)
        .with(Field::Abi, ABI_VERSION)
        .with(Field::Access, access)
}

/// The state that a broker hands out: a description of our own.
pub(crate) fn state_of_broker(dir: &Path, write: bool) -> Result<File, OpenError> {
    let (_, handed) = socket::ask(dir, &opening(write))?;
    let path = || dir.join(socket::SOCKET);
    let state = handed.into_iter().next();
    let state = state.ok_or_else(|| OpenError::Foreign { path: path() })?;
    Ok(File::from(state))
}

/// Asks for the segments and for a slot.
fn registering(label: &str, group: Option<&str>) -> Message {
    let question = opening(true).with(Field::Label, label);
    match group {
        Some(group) => question.with(Field::Group, group),
        None => question,
    }
}

/// The accounts that come with a slot, mapped.
fn own_account(
    dir: &Path,
    answer: &Message,
    handed: &mut Vec<OwnedFd>,
) -> Result<Option<OwnAccount>, OpenError> {
    if answer.text(Field::Slot).is_none() {
        return Ok(None);
    }
    let path = dir.join(socket::SOCKET);
    let memory = handed
        .pop()
        .ok_or_else(|| OpenError::Foreign { path: path.clone() })?;
    OwnAccount::map(memory)
        .map(Some)
        .map_err(create::failed(&path, "map the accounts of"))
}

/// Checks the descriptors that the broker sent, and maps the segments.
fn three(dir: &Path, handed: Vec<OwnedFd>, state_rw: bool) -> Result<Three, OpenError> {
    let path = |kind: Kind| dir.join(socket::SOCKET).join(kind.name());
    let [state, control, registry] =
        <[OwnedFd; 3]>::try_from(handed).map_err(|_| OpenError::Foreign {
            path: dir.join(socket::SOCKET),
        })?;
    let state = File::from(state);
    if !socket::is_sealed(&state, Kind::State.size()) {
        let why =
            "the state that the broker handed out can be cut short; use a broker of this release";
        let path = path(Kind::State);
        return Err(OpenError::Unsafe { path, why });
    }
    let access = if state_rw {
        Access::Write
    } else {
        Access::Read
    };
    let read = |kind: Kind, file: OwnedFd| create::handed(path(kind), File::from(file), kind);
    let control = read(Kind::Control, control)?;
    let registry = read(Kind::Identity, registry)?;
    // Tenants write its header too: it says nothing.
    let state = create::map(
        path(Kind::State),
        &state,
        Kind::State,
        access,
        control.instance,
    )?;
    Ok(Three {
        state,
        control,
        registry: RegistryMap::of(registry),
    })
}
