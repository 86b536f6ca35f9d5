//! From a process's own idea of its pid to the pid seen from here.
//!
//! A workload in a container records the pid it has in its own namespace. Outside, the same process
//! has another number; `NSpid` in `/proc/PID/status` ends with the inner one, and together with the
//! start time that names exactly one process. A time namespace shifts the start time, so for a
//! process in another one the pid namespace's inode decides instead.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use shm_layout::{Identity, procfs};

/// Finds host pids; remembers what it found, so a dashboard may ask at every tick.
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
    /// Its number here.
    pub pid: u32,
    /// By a signal or by a debugger.
    pub stopped: bool,
}

impl Default for HostPids {
    fn default() -> Self {
        Self::new()
    }
}

impl HostPids {
    /// Looks from this process's namespaces.
    pub fn new() -> Self {
        let proc = PathBuf::from("/proc");
        Self {
            pid_ns: inode(&proc.join("self/ns/pid")),
            time_ns: inode(&proc.join("self/ns/time")),
            proc,
            known: HashMap::new(),
        }
    }

    /// The pid by which this program can see the process; `None` when it cannot.
    pub fn resolve(&mut self, identity: &Identity) -> Option<u32> {
        self.look_for(identity).map(|seen| seen.pid)
    }

    /// The same, and whether it is stopped.
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

    /// A process of our namespace, by its own word.
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
        // Two answers are no answer: an edit must never reach the wrong process.
        hits.next().is_none().then_some(hit)
    }

    /// What `/proc` shows of this pid, if it is the process.
    fn seen(&self, pid: u32, identity: &Identity) -> Option<Seen> {
        let dir = self.proc.join(pid.to_string());
        let stat = procfs::record(dir.join("stat")).ok()?;
        let same_time = self.time_ns.is_none()
            || self.time_ns == Some(identity.time_ns)
            || identity.time_ns == 0;
        let began = procfs::start_time(&stat) == Some(identity.start_time);
        // Seen from where it registered, number and start time say all. What else is asked of `/proc` costs more than the
        // rest of a look.
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

/// A process's number in its own namespace, by which it registers.
pub fn own_pid(pid: u32) -> Option<u32> {
    innermost_pid(&Path::new("/proc").join(pid.to_string()))
}

/// The process's number in its own namespace.
fn innermost_pid(dir: &Path) -> Option<u32> {
    let status = procfs::text(dir.join("status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

/// Clock ticks from boot to start.
pub fn start_time(dir: &Path) -> Option<u64> {
    procfs::start_time(&procfs::text(dir.join("stat")).ok()?)
}

/// Whether a process is stopped, by a signal or by a debugger.
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
