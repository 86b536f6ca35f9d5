//! Finding the state again: among descriptors that were kept, or in the mappings of a process that has it.
//!
//! The state is found by its inode, which the registry names and no tenant can choose, and by properties that only root can
//! give: its owner and its seals. Its name and its bytes prove nothing.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{File, Permissions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::Path,
};

use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

use crate::{
    broker::socket::{SEALS, is_sealed},
    files::{
        create::{self, Instance, Kind},
        error::OpenError,
    },
    layout::registry::Registry,
    segment::identity::decode_vouched,
    value::MAX_PROCESSES,
};

/// Name of the memfd, as `/proc` shows it.
const NAME: &str = "gpushare-state";

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

/// The state of a registry, if anything still has it. `find` looks among the mappings of a process.
pub(super) fn state(
    registry: &Registry,
    given: Vec<OwnedFd>,
    find: impl Fn(u32, u64, &'static str) -> Option<File>,
) -> Option<File> {
    let inode = registry.state();
    let fits = |file: &File| {
        let root = file
            .metadata()
            .is_ok_and(|meta| meta.ino() == inode && meta.uid() == 0);
        root && is_sealed(file, Kind::State.size())
    };
    let mut given = given.into_iter().map(File::from);
    given.find(&fits).or_else(|| {
        let living = living(registry).into_iter();
        let mut files = living.filter_map(|pid| find(pid, inode, NAME));
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
