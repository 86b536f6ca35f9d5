//! Memory of the broker's that a process has mapped, as `/proc` shows it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;

use gpushare_base::host::procfs::{Late, in_time};
use shm_layout::SlotId;
use shm_layout::broker::ACCOUNTS;

/// Memory of ours that a process has mapped: inodes, and where in `/proc` they can be opened.
struct Mapped(Vec<(u64, PathBuf)>);

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
pub enum Mapping {
    /// The process has it mapped; the file is open to read and write.
    At(File),
    /// The process does not have it mapped.
    None,
    /// `/proc` does not show the process's mappings.
    Unknown,
}

/// Looks for an inode among a process's mappings, with a short time limit.
pub fn mapping(pid: u32, inode: u64, name: &'static str) -> Mapping {
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
    in_time(&of(pid), look).unwrap_or(Mapping::Unknown)
}

/// Returns the slots of a process whose accounts it no longer has mapped, because it has become another program. All are
/// checked in one read of its mappings, with a short time limit.
pub fn let_go(pid: u32, slots: Vec<(SlotId, Accounts)>) -> Result<Vec<SlotId>, Late> {
    in_time(&of(pid), move || {
        let mapped = Mapped::of(pid, ACCOUNTS);
        let has_gone = |accounts: &Accounts| {
            let mapped = mapped.as_ref();
            mapped.is_some_and(|mapped| mapped.path(accounts.0).is_none())
        };
        let gone = slots.into_iter().filter(|(_, accounts)| has_gone(accounts));
        gone.map(|(slot, _)| slot).collect()
    })
}

fn of(pid: u32) -> PathBuf {
    format!("/proc/{pid}").into()
}

/// The memory of a slot's accounts, by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounts(pub u64);
