//! Finding the state again: among descriptors that were kept, or in the mappings of a process that has it.
//!
//! By its inode, which the roll names and no tenant can choose, and by what only root can have made of it: its owner and its
//! seals. Its name and its bytes say nothing.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::PathBuf,
};

use crate::{
    create::Kind,
    identity::decode_vouched,
    procfs,
    roll::{Roll, RollEntry},
    socket::is_sealed,
    value::MAX_PROCESSES,
};

/// What the memory is called in `/proc`.
pub(super) const NAME: &str = "gpushare-state";

/// The state of a roll, if anything still has it.
pub(super) fn state(roll: &Roll, given: Vec<OwnedFd>) -> Option<File> {
    let inode = roll.state();
    let fits = |file: &File| {
        let root = file
            .metadata()
            .is_ok_and(|meta| meta.ino() == inode && meta.uid() == 0);
        root && is_sealed(file, Kind::State.size())
    };
    let mut given = given.into_iter().map(File::from);
    given.find(&fits).or_else(|| {
        let living = (0..MAX_PROCESSES).filter_map(|index| {
            let entry = roll.entry(index)?;
            entry.live()?;
            entry.pid()
        });
        let mut files = living.filter_map(|pid| match mapping(pid, inode, NAME) {
            Mapping::At(file) => Some(file),
            _ => None,
        });
        files.find(fits)
    })
}

impl RollEntry {
    /// The process that has the slot, or had it last.
    pub(super) fn pid(&self) -> Option<u32> {
        Some(decode_vouched(&self.read()?).1.pid)
    }
}

/// Whether a process has an inode mapped.
#[derive(Debug)]
pub(super) enum Mapping {
    /// This is it, to be read and written.
    At(File),
    /// It has not.
    None,
    /// It cannot be seen.
    Unknown,
}

/// Whether a process has this mapped; not for longer than a moment.
pub(super) fn mapping(pid: u32, inode: u64, name: &'static str) -> Mapping {
    procfs::in_time(move || look(pid, inode, name)).unwrap_or(Mapping::Unknown)
}

fn look(pid: u32, inode: u64, name: &str) -> Mapping {
    let Ok(maps) = procfs::text(format!("/proc/{pid}/maps")) else {
        return Mapping::Unknown;
    };
    // Range, rights, offset, device, inode, name.
    let found = maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next()?;
        let is_it = fields.nth(3)?.parse() == Ok(inode) && line.contains(name);
        is_it.then(|| PathBuf::from(format!("/proc/{pid}/map_files/{range}")))
    });
    match found {
        Some(path) => match File::options().read(true).write(true).open(path) {
            Ok(file) => Mapping::At(file),
            Err(_) => Mapping::Unknown,
        },
        // A process on its way out has none; the kernel says of its end otherwise.
        None if maps.is_empty() => Mapping::Unknown,
        None => Mapping::None,
    }
}
