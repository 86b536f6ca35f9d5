//! The slots of a world's processes: which ones are taken, and which of their processes are gone.
//!
//! A killed process counts as gone as soon as all its threads are exiting, even while the kernel still tears down a large
//! address space.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::layout::{Layout, MAX_PROCESSES, Process};
use crate::locks::Lives;

pub(crate) const FREE: u64 = 0;
pub(crate) const LIVE: u64 = 1;
pub(crate) const LEAVING: u64 = 2;

impl Process {
    /// Returns true if a process has the slot, alive or dead.
    pub(crate) fn taken(&self) -> bool {
        // ORDER: pairs with the Release in `join`, which publishes the identity of the process.
        self.state.load(Acquire) & 0xff == LIVE
    }
}

/// Iterates over the slots that are not free, with their numbers.
pub(crate) fn taken_slots(
    layout: &'static Layout,
) -> impl Iterator<Item = (usize, &'static Process)> {
    // ORDER: pairs with the SeqCst in `join`; slots below it have been claimed once.
    let high = (layout.processes_high.load(Acquire) as usize).min(MAX_PROCESSES);
    let slots = layout.processes[..high].iter().enumerate();
    // ORDER: pairs with the Release in `join`, which publishes the identity of the process.
    slots.filter(|(_, process)| process.state.load(Acquire) & 0xff != FREE)
}

pub(crate) fn forget_memory(process: &Process) {
    for device in &process.devices {
        device.used.store(0, Relaxed);
        device.trying.store(0, Relaxed);
        device.away.store(0, Relaxed);
        device.contexts.store(0, Relaxed);
    }
}

pub(crate) fn clear(process: &Process) {
    forget_memory(process);
    process.checkpoint.store(0, Relaxed);
    process.inside.store(0, Relaxed);
    process.queued.store(0, Relaxed);
    process.managed.store(0, Relaxed);
    process.imported.store(0, Relaxed);
    process.mps.store(0, Relaxed);
    process.restorer.store(0, Relaxed);
    for device in &process.devices {
        device.fault.store(0, Relaxed);
        device.idle.store(0, Relaxed);
        device.slice.store(0, Relaxed);
        device.busy.store(0, Relaxed);
        for bucket in &device.buckets {
            bucket.store(0, Relaxed);
        }
    }
}

/// Returns the slots of this process, taken by any of its libraries.
pub(crate) fn own(layout: &'static Layout) -> Vec<usize> {
    let (pid, started) = (u64::from(std::process::id()), start_time("self"));
    taken_slots(layout)
        .filter(|(_, process)| {
            process.pid.load(Relaxed) == pid
                && process.pid_namespace.load(Relaxed) == own_pid_namespace()
                && Some(process.start_time.load(Relaxed)) == started
        })
        .map(|(slot, _)| slot)
        .collect()
}

/// Returns true if the slot's process is gone or exiting.
pub(crate) fn is_gone(process: &Process, lives: &Lives, slot: usize) -> bool {
    if !lives.has(slot) {
        return true;
    }
    if process.pid_namespace.load(Relaxed) != own_pid_namespace() {
        return false; // Only the lock byte can be checked.
    }
    exiting(process.pid.load(Relaxed), process.start_time.load(Relaxed))
}

/// Returns true if every thread of this process is exiting, false if another process has the pid by now.
fn exiting(pid: u64, started: u64) -> bool {
    let Some(leader) = Stat::read(format!("/proc/{pid}/stat")) else {
        return false;
    };
    if leader.start_time != started || !leader.exiting {
        return false;
    }
    // The first thread may exit before the others; all of them must be exiting.
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads
        .flatten()
        .all(|thread| Stat::read(thread.path().join("stat")).is_none_or(|stat| stat.exiting))
}

pub(crate) fn own_pid_namespace() -> u64 {
    static INODE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *INODE.get_or_init(|| std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino()))
}

pub(crate) fn start_time(pid: &str) -> Option<u64> {
    Some(Stat::read(format!("/proc/{pid}/stat"))?.start_time)
}

/// The fields of a `stat` file in `/proc` that are used.
struct Stat {
    exiting: bool,
    start_time: u64,
}

impl Stat {
    fn read(path: impl AsRef<Path>) -> Option<Self> {
        // The kernel writes all of it for one read; its fields leave half of this room free.
        let mut room = [0; 1024];
        let length = File::open(path).ok()?.read(&mut room).ok()?;
        Self::parse(&String::from_utf8_lossy(&room[..length]))
    }

    /// Parses the fields behind field 2, the command, which is in parentheses and may hold any character.
    fn parse(text: &str) -> Option<Self> {
        const PF_EXITING: u64 = 4;
        let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
        let dead = matches!(fields.next()?, "Z" | "X" | "x");
        // Fields 9 and 22.
        let flags: u64 = fields.nth(5)?.parse().ok()?;
        let start_time = fields.nth(12)?.parse().ok()?;
        Some(Self {
            exiting: dead || flags & PF_EXITING != 0,
            start_time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_a_strange_command_is_understood() {
        let line = "12 (a) Z (b) R 1 1 1 0 -1 4194308 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        let stat = Stat::parse(line).expect("well-formed");
        assert!(stat.exiting);
        assert_eq!(stat.start_time, 777);
        assert!(Stat::parse("garbage").is_none());
    }

    #[test]
    fn this_process_is_not_exiting() {
        let own = start_time("self").expect("proc is mounted");
        assert!(!exiting(u64::from(std::process::id()), own));
    }
}
