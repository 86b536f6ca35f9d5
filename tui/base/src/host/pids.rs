//! Translation of a process's own pid to its pid in this namespace.
//!
//! A workload in a container records the pid that it has in its own namespace. Outside, the process has another number.
//! `NSpid` in `/proc/PID/status` ends with the inner one, and together with the start time that identifies one process. A
//! time namespace shifts the start time, so for a process in another time namespace the pid namespace's inode is compared
//! instead.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use shm_layout::Identity;

use crate::host::procfs;

/// A cache of host pids, so that a dashboard can look them up at every tick.
#[derive(Debug)]
pub struct HostPids {
    proc: PathBuf,
    pid_ns: Option<u64>,
    time_ns: Option<u64>,
    known: HashMap<(u32, u64, u64), u32>,
}

/// A process as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Pid in this namespace.
    pub pid: u32,
    /// True if a signal or a debugger has stopped it.
    pub stopped: bool,
}

impl Default for HostPids {
    fn default() -> Self {
        Self::new()
    }
}

impl HostPids {
    /// Makes an empty cache for this process's namespaces.
    pub fn new() -> Self {
        let proc = PathBuf::from("/proc");
        Self {
            pid_ns: inode(&proc.join("self/ns/pid")),
            time_ns: inode(&proc.join("self/ns/time")),
            proc,
            known: HashMap::new(),
        }
    }

    /// Returns the pid of the process in this namespace, or `None` if the process is not visible.
    pub fn resolve(&mut self, identity: &Identity) -> Option<u32> {
        self.look_for(identity).map(|seen| seen.pid)
    }

    /// Returns the process's pid and whether it is stopped.
    pub fn look_for(&mut self, identity: &Identity) -> Option<Seen> {
        let key = (identity.pid, identity.pid_ns, identity.start_time);
        if let Some(pid) = self.known.get(&key).copied() {
            if let Some(seen) = self.seen(pid, identity) {
                return Some(seen);
            }
            self.known.remove(&key);
        }
        let seen = self.find(identity)?;
        self.known.insert(key, seen.pid);
        Some(seen)
    }

    /// Returns a process of our namespace with the pid that it registered, without a look at `/proc`.
    pub fn told(&self, identity: &Identity) -> Option<Seen> {
        (self.pid_ns == Some(identity.pid_ns)).then_some(Seen {
            pid: identity.pid,
            stopped: false,
        })
    }

    fn find(&self, identity: &Identity) -> Option<Seen> {
        if self.pid_ns == Some(identity.pid_ns) || identity.pid_ns == 0 {
            return self.seen(identity.pid, identity);
        }
        let mut hits = fs::read_dir(&self.proc)
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter_map(|pid| self.seen(pid, identity));
        let hit = hits.next()?;
        // Two matches count as none, because an edit must never reach the wrong process.
        hits.next().is_none().then_some(hit)
    }

    /// Reads `/proc` for this pid. Returns `None` if it is not the process.
    fn seen(&self, pid: u32, identity: &Identity) -> Option<Seen> {
        let dir = self.proc.join(pid.to_string());
        let stat = procfs::record(dir.join("stat")).ok()?;
        let same_time = self.time_ns.is_none()
            || self.time_ns == Some(identity.time_ns)
            || identity.time_ns == 0;
        let began = procfs::start_time(&stat) == Some(identity.start_time);
        // In the namespace of its registration, pid and start time identify the process. The other checks read more of
        // `/proc`, which costs more than the rest of the lookup.
        let is_it = if same_time && self.pid_ns == Some(identity.pid_ns) {
            pid == identity.pid && began
        } else {
            innermost_pid(&dir) == Some(identity.pid)
                && match same_time {
                    true => began,
                    false => inode(&dir.join("ns/pid")) == Some(identity.pid_ns),
                }
        };
        is_it.then(|| Seen {
            pid,
            stopped: says_stopped(&stat),
        })
    }
}

fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.ino())
}

/// Returns the process's pid in its own namespace, with which it registers.
pub fn own_pid(pid: u32) -> Option<u32> {
    innermost_pid(&Path::new("/proc").join(pid.to_string()))
}

/// Returns the process's pid in its own namespace.
fn innermost_pid(dir: &Path) -> Option<u32> {
    let status = procfs::text(dir.join("status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

/// Returns the start time of a process in clock ticks since boot.
pub fn start_time(dir: &Path) -> Option<u64> {
    procfs::start_time(&procfs::text(dir.join("stat")).ok()?)
}

/// Returns true if a signal or a debugger has stopped the process.
pub fn is_stopped(pid: u32) -> bool {
    says_stopped(&procfs::text(format!("/proc/{pid}/stat")).unwrap_or_default())
}

fn says_stopped(stat: &str) -> bool {
    let state = procfs::stat_fields(stat).and_then(|mut fields| fields.next());
    matches!(state, Some("T" | "t"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_finds_itself_and_no_other() {
        let mut pids = HostPids::new();
        let mut me = Identity::of_self("");
        assert_eq!(pids.resolve(&me), Some(std::process::id()));
        assert_eq!(pids.resolve(&me), Some(std::process::id()), "remembered");
        me.start_time += 1;
        assert_eq!(pids.resolve(&me), None, "a reused pid is another process");
    }
}
