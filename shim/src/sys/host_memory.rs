//! The host memory that is available to this process: of the machine, of its cgroups, and of its own limit.

use std::fs;

/// Returns the bytes that can still be allocated; `None` if unknown.
pub fn available() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(machine.min(of_cgroups()).min(of_address_space()))
}

fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the least rest of the memory cgroups, from the process's own up to the root; `u64::MAX` without any limit.
fn of_cgroups() -> u64 {
    let Ok(cgroups) = fs::read_to_string("/proc/self/cgroup") else {
        return u64::MAX;
    };
    let rooms = cgroups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        match controllers {
            "" => Some(walk("/sys/fs/cgroup", path, of_unified)),
            list if list.split(',').any(|name| name == "memory") => {
                Some(walk("/sys/fs/cgroup/memory", path, of_legacy))
            }
            _ => None,
        }
    });
    rooms.min().unwrap_or(u64::MAX)
}

/// Returns the least rest of a cgroup and its ancestors.
fn walk(mount: &str, path: &str, room: fn(&str) -> Option<u64>) -> u64 {
    let mut path = path.trim_end_matches('/');
    let mut least = u64::MAX;
    loop {
        least = least.min(room(&format!("{mount}{path}")).unwrap_or(u64::MAX));
        match path.rfind('/') {
            Some(end) => path = &path[..end],
            None => return least,
        }
    }
}

fn number(dir: &str, file: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("{dir}/{file}")).ok()?;
    text.trim().parse().ok()
}

/// Returns the value of a line `name value` of a cgroup's statistics.
fn statistic(dir: &str, name: &str) -> u64 {
    let Ok(text) = fs::read_to_string(format!("{dir}/memory.stat")) else {
        return 0;
    };
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or(0)
}

fn of_unified(dir: &str) -> Option<u64> {
    let limit = number(dir, "memory.max")?;
    Some(left(
        limit,
        number(dir, "memory.current")?,
        statistic(dir, "inactive_file "),
    ))
}

fn of_legacy(dir: &str) -> Option<u64> {
    let limit = number(dir, "memory.limit_in_bytes")?;
    let used = number(dir, "memory.usage_in_bytes")?;
    Some(left(limit, used, statistic(dir, "total_inactive_file ")))
}

/// Returns the rest of a limit. File pages that were not used for a while are freed before an allocation is refused.
fn left(limit: u64, used: u64, of_files: u64) -> u64 {
    limit.saturating_sub(used.saturating_sub(of_files))
}

fn of_address_space() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let size = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    match (limit, size) {
        (Some(limit), Some(kib)) => limit.saturating_sub(kib.saturating_mul(1024)),
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read() {
        let text = "MemTotal:       65536 kB\nMemFree:  1 kB\nMemAvailable:   32768 kB\n";
        assert_eq!(of_machine(text), Some(32 << 20));
        assert_eq!(of_machine("MemTotal: 5 kB\n"), None);
        assert!(available().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn a_cgroup_inside_a_smaller_one_has_the_smaller_ones_room() {
        let dir = std::env::temp_dir().join(format!("gpushare-cgroup-{}", std::process::id()));
        let inner = dir.join("a/b");
        fs::create_dir_all(&inner).expect("a directory");
        let write = |at: &std::path::Path, file: &str, text: &str| {
            fs::write(at.join(file), text).expect("written");
        };
        write(&dir, "memory.max", "1000\n");
        write(&dir, "memory.current", "700\n");
        write(&dir, "memory.stat", "anon 3\ninactive_file 200\n");
        write(&inner, "memory.max", "max\n");
        write(&inner, "memory.current", "600\n");
        let mount = dir.to_str().expect("a path in UTF-8");
        assert_eq!(walk(mount, "/a/b", of_unified), 500);
        assert_eq!(walk(mount, "/", of_unified), 500);
        let _ = fs::remove_dir_all(&dir);
    }
}
