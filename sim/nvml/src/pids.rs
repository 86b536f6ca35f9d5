//! Translation of pids from the world into this process's pid namespace.
//!
//! A process writes the pid of its own namespace into the world. An observer outside finds the process by that pid, the last
//! one in its `NSpid`, and by its start time.

use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, PoisonError};

/// Pids that were found. A pid with its start time always means the same process. Monitors query every process of every device
/// several times a second.
static FOUND: Mutex<Option<HashMap<(u32, u64), u32>>> = Mutex::new(None);
/// Size at which the cache is emptied; more than a world can have at once.
const MOST: usize = 4096;

/// Returns the pid here of the process with pid `pid` in its own namespace, or `pid` itself if it is not found.
pub(crate) fn host_pid(pid: u32, start_time: u64) -> u32 {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found = found.get_or_insert_default();
    if let Some(known) = found.get(&(pid, start_time)) {
        return *known;
    }
    let Some(number) = look_up(pid, start_time) else {
        return pid;
    };
    if found.len() >= MOST {
        found.clear();
    }
    found.insert((pid, start_time), number);
    number
}

fn look_up(pid: u32, start_time: u64) -> Option<u32> {
    if start_time_of(pid) == Some(start_time) {
        return Some(pid);
    }
    let processes = fs::read_dir("/proc").ok()?;
    let numbers = processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.into_iter().find(|&number| {
        start_time_of(number) == Some(start_time) && innermost_pid(number) == Some(pid)
    })
}

/// Returns the start time in clock ticks since boot: field 22, counted after the name, which may hold any character.
fn start_time_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn innermost_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}
