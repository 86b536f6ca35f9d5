//! Finding the state again: among descriptors that were kept, or in the mappings of a process that has it.
//!
//! The state is found by its inode, which the registry names and no tenant can choose, and by properties that only root can
//! give: its owner and its seals. Its name and its bytes prove nothing.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{File, Permissions},
    io::{self, BufRead as _, BufReader},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

use crate::{
    broker::socket::{SEALS, is_sealed},
    files::{
        create::{self, Instance, Kind},
        error::OpenError,
    },
    layout::{
        private_account,
        registry::{Registry, RegistryEntry},
    },
    os::procfs::{self, Late},
    segment::identity::decode_vouched,
    value::{MAX_PROCESSES, SlotId},
};

/// Name of the memfd, as `/proc` shows it.
pub(super) const NAME: &str = "gpushare-state";

/// A state that nothing can cut short, for root alone to open.
pub(super) fn make(path: &Path, instance: Instance) -> Result<File, OpenError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let io = |op| create::failed(path, op);
    let made = memfd_create(NAME, flags).map_err(io::Error::from);
    let state = File::from(made.map_err(io("create a memfd for"))?);
    let private = Permissions::from_mode(0o600);
    state
        .set_permissions(private)
        .map_err(io("set the mode of"))?;
    create::make_room(path, &state, Kind::State)?;
    create::write_header(&state, Kind::State, instance).map_err(io("initialise"))?;
    let sealed = fcntl_add_seals(&state, SEALS).map_err(io::Error::from);
    sealed.map_err(io("seal"))?;
    Ok(state)
}

/// The state of a registry, if anything still has it.
pub(super) fn state(registry: &Registry, given: Vec<OwnedFd>) -> Option<File> {
    let inode = registry.state();
    let fits = |file: &File| {
        let root = file
            .metadata()
            .is_ok_and(|meta| meta.ino() == inode && meta.uid() == 0);
        root && is_sealed(file, Kind::State.size())
    };
    let mut given = given.into_iter().map(File::from);
    given.find(&fits).or_else(|| {
        let mut files =
            living(registry)
                .into_iter()
                .filter_map(|pid| match mapping(pid, inode, NAME) {
                    Mapping::At(file) => Some(file),
                    _ => None,
                });
        files.find(fits)
    })
}

/// Lists the processes that have slots, each once, and alternates between users: to read the mappings of a process with many
/// takes long.
fn living(registry: &Registry) -> Vec<u32> {
    let mut of_user: HashMap<u32, usize> = HashMap::new();
    let mut pids = BTreeMap::new();
    for index in 0..MAX_PROCESSES {
        if let Some(entry) = registry.entry(index)
            && entry.live().is_some()
            && let Some((who, vouched)) = entry.read().map(|words| decode_vouched(&words))
        {
            pids.entry(vouched.pid).or_insert_with(|| {
                let before = of_user.entry(who.uid).or_default();
                *before += 1;
                *before
            });
        }
    }
    let mut in_turn: Vec<(usize, u32)> = pids.into_iter().map(|(pid, turn)| (turn, pid)).collect();
    in_turn.sort_unstable();
    in_turn.into_iter().map(|(_, pid)| pid).collect()
}

impl RegistryEntry {
    /// The process that has the slot, or had it last.
    pub(super) fn pid(&self) -> Option<u32> {
        Some(decode_vouched(&self.read()?).1.pid)
    }
}

/// Memory of ours that a process has mapped: inodes, and where in `/proc` they can be opened.
pub(super) struct Mapped(Vec<(u64, PathBuf)>);

impl Mapped {
    /// Lists the mappings of this name in a process. `None` where `/proc` does not show it.
    fn of(pid: u32, name: &str) -> Option<Mapped> {
        let maps = File::open(format!("/proc/{pid}/maps")).ok()?;
        let mut maps = BufReader::with_capacity(1 << 16, maps);
        let (mut found, mut line, mut any) = (Vec::new(), Vec::new(), false);
        while maps.read_until(b'\n', &mut line).ok()? > 0 {
            any = true;
            let text = String::from_utf8_lossy(&line);
            if text.contains(name)
                && let Some((range, inode)) = range_and_inode(&text)
            {
                let path = PathBuf::from(format!("/proc/{pid}/map_files/{range}"));
                found.push((inode, path));
            }
            line.clear();
        }
        // A process that is ending has no mappings; the kernel reports its end elsewhere.
        any.then_some(Mapped(found))
    }

    fn path(&self, inode: u64) -> Option<&PathBuf> {
        let found = self.0.iter().find(|(mapped, _)| *mapped == inode);
        found.map(|(_, path)| path)
    }
}

/// The line's first field, and its fifth: range, rights, offset, device, inode, name.
fn range_and_inode(line: &str) -> Option<(&str, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let range = fields.next()?;
    Some((range, fields.nth(3)?.parse().ok()?))
}

/// The result of looking for an inode among a process's mappings.
#[derive(Debug)]
pub(super) enum Mapping {
    /// The process has it mapped; the file is open to read and write.
    At(File),
    /// The process does not have it mapped.
    None,
    /// `/proc` does not show the process's mappings.
    Unknown,
}

/// Looks for an inode among a process's mappings, with a short time limit.
pub(super) fn mapping(pid: u32, inode: u64, name: &'static str) -> Mapping {
    let look = move || {
        let Some(mapped) = Mapped::of(pid, name) else {
            return Mapping::Unknown;
        };
        let Some(path) = mapped.path(inode) else {
            return Mapping::None;
        };
        let opened = File::options().read(true).write(true).open(path);
        opened.map_or(Mapping::Unknown, Mapping::At)
    };
    procfs::in_time(look).unwrap_or(Mapping::Unknown)
}

/// Returns the slots of a process whose accounts it no longer has mapped, because it has become another program. All are
/// checked in one read of its mappings, with a short time limit.
pub fn let_go(pid: u32, slots: Vec<(SlotId, Accounts)>) -> Result<Vec<SlotId>, Late> {
    procfs::in_time(move || {
        let mapped = Mapped::of(pid, private_account::NAME);
        let has_gone = |accounts: &Accounts| {
            let mapped = mapped.as_ref();
            mapped.is_some_and(|mapped| mapped.path(accounts.0).is_none())
        };
        let gone = slots.into_iter().filter(|(_, accounts)| has_gone(accounts));
        gone.map(|(slot, _)| slot).collect()
    })
}

/// The memory of a slot's accounts, by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounts(pub(super) u64);
