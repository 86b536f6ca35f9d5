//! A process's number as this process knows it.
//!
//! A process writes the number it has in its own pid namespace into the world. A process that looks from
//! outside finds it by that number, the last of its `NSpid`, and by its start time.

use std::fs;

/// The number here of the process that calls itself `pid`; that number itself if it is not to be found.
pub(crate) fn host_pid(pid: u32, start_time: u64) -> u32 {
    if start_time_of(pid) == Some(start_time) {
        return pid;
    }
    let Ok(processes) = fs::read_dir("/proc") else {
        return pid;
    };
    let numbers = processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .into_iter()
        .find(|&number| {
            start_time_of(number) == Some(start_time) && innermost_pid(number) == Some(pid)
        })
        .unwrap_or(pid)
}

/// In clock ticks since boot: field 22, counted after the name, which may hold anything.
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
