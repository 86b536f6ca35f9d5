//! Removal of what a test may leave behind: the processes of its world, and the world itself.
//!
//! Both are found by the world's name, which is unique to one [`Testbed`](crate::Testbed): it is in the environment of each
//! process and in the file name of the shared memory.

use rustix::process::{Pid, Signal, kill_process};

/// Kills every process that was started in `world`, and waits until all have ended.
pub(crate) fn end_programs_of(world: &str) {
    let wanted = format!("GPUSHARE_SIM_WORLD={world}");
    for _ in 0..200 {
        let found = programs_with(wanted.as_bytes());
        if found.is_empty() {
            return;
        }
        for pid in found {
            // An error means that the process has ended already.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn programs_with(variable: &[u8]) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| {
            let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            // The environment of a zombie reads as empty, so this does not wait for a parent to reap it.
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            environment
                .split(|&byte| byte == 0)
                .any(|found| found == variable)
                .then_some(pid)
        })
        .collect()
}

/// Removes the shared memory whose name contains the world's.
pub(crate) fn remove_shared_memory(world: &str) {
    let Ok(files) = std::fs::read_dir("/dev/shm") else {
        return;
    };
    for file in files.flatten() {
        let name = file.file_name();
        let Some((_, rest)) = name.to_str().and_then(|name| name.split_once(world)) else {
            continue;
        };
        // Digits may follow: world 1 is not world 10.
        if !rest.starts_with(|next: char| next.is_ascii_digit()) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}
