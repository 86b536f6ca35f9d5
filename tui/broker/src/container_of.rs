//! The identity of a process by the kernel and the machine: its container and its job.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use shm_layout::{Identity, Vouched, text};

use super::cgroup::{self, Claim};
use super::namespaces::Namespaces;
use gpushare_base::host::pids;
use gpushare_base::host::procfs;
use gpushare_base::text::users::Users;

/// Returns the label that a process chose, without hidden characters and cut to its maximum length.
pub fn label(chosen: &str) -> String {
    let mut label: String = chosen.chars().filter(|c| !text::is_hidden(*c)).collect();
    while label.len() > text::LONGEST_LABEL {
        label.pop();
    }
    label
}

/// Returns the identity of a process without its label, or `None` if the process has ended.
pub fn look(pid: u32, uid: u32, gid: u32) -> Option<(Identity, Vouched)> {
    let ours = Namespaces::ours()?.pid_ns;
    let (identity, cgroups) = Identity::of_process(pid, uid, ours)?;
    let cgroup::Found { container, job, .. } = cgroup::look(&cgroups);
    let vouched = Vouched {
        pid,
        gid,
        start_time: identity.start_time,
        container: match &container {
            Some(claim) => name_of(pid, claim),
            None if identity.pid_ns == ours => String::new(),
            None => name_by_user(pid).unwrap_or_default(),
        },
        job: job.unwrap_or_default(),
    };
    Some((identity, vouched))
}

/// Returns the UID of the Kubernetes pod of a process.
pub fn pod(pid: u32) -> Option<String> {
    let cgroups = procfs::text(format!("/proc/{pid}/cgroup")).ok()?;
    cgroup::look(&cgroups).pod
}

/// Returns true if the process with this pid is still the one in the registry.
pub fn is_still(vouched: &Vouched) -> bool {
    let dir = PathBuf::from(format!("/proc/{}", vouched.pid));
    pids::start_time(&dir) == Some(vouched.start_time)
}

/// Returns the name that a container's tool has for it; for a user's own container, behind the user's name. Docker keeps
/// the name in a file that root may read.
fn name_of(pid: u32, claim: &Claim) -> String {
    // A process inside of the container can take any name, so only processes outside count.
    let inside = claim.clone();
    let outside = move |cgroups: &str| !inside.holds(cgroups);
    let monitor = monitor(pid, &claim.name, outside).map(|(_, name)| name);
    let known = monitor.or_else(|| docker(&claim.name).filter(|_| claim.by == 0));
    said_by(claim.by, &known.unwrap_or_else(|| claim.name.clone()))
}

/// Returns the name of a container without a cgroup of its own, which podman makes for a user without delegated cgroups.
/// The name is attributed to that user.
fn name_by_user(pid: u32) -> Option<String> {
    let (by, name) = monitor(pid, "", |_| true)?;
    // If root owns the monitor, a container's root may have started it, so it does not count.
    (by != 0).then(|| said_by(by, &name))
}

/// Finds podman's monitor, an ancestor of the container's processes with the name among its arguments. Returns its owner
/// and the name. A user may have many processes with a monitor's name, so one time limit is for all of them.
fn monitor(
    pid: u32,
    id: &str,
    may_be: impl Fn(&str) -> bool + Send + 'static,
) -> Option<(u32, String)> {
    let id = id.to_owned();
    let look = move || ancestors(pid).find_map(|pid| said_by_monitor(pid, &id, &may_be));
    let found = procfs::in_time(format!("/proc/{pid}").as_ref(), look);
    found.ok().flatten()
}

/// Returns the owner and the name that this process gives, if it is such a monitor.
fn said_by_monitor(pid: u32, id: &str, may_be: &impl Fn(&str) -> bool) -> Option<(u32, String)> {
    let stat = procfs::record(format!("/proc/{pid}/stat")).ok()?;
    // The arguments are read only if the process may be a monitor, because they are in its own memory.
    stat.contains("(conmon)").then_some(())?;
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let arguments = String::from_utf8_lossy(&arguments);
    let mut arguments = arguments.split('\0');
    arguments.next()?.ends_with("conmon").then_some(())?;
    let cgroups = procfs::text(format!("/proc/{pid}/cgroup")).ok()?;
    may_be(&cgroups).then_some(())?;
    let arguments: Vec<&str> = arguments.collect();
    let behind = |option: &str| {
        let at = arguments.iter().position(|word| *word == option)?;
        arguments.get(at + 1).copied()
    };
    behind("-c").filter(|whole| whole.starts_with(id))?;
    let by = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    Some((by, behind("-n")?.to_owned()))
}

/// Returns a name with the name of the user who chose it before it, unless that is root.
fn said_by(by: u32, name: &str) -> String {
    let whole = match by {
        0 => name.to_owned(),
        cgroup::ANYONE => format!("?/{name}"),
        user => format!("{}/{name}", Users::of_this_machine().name(user)),
    };
    let shown = whole.chars().filter(|c| !text::is_hidden(*c));
    shown.take(63).collect()
}

fn docker(id: &str) -> Option<String> {
    let mut all = fs::read_dir("/var/lib/docker/containers").ok()?.flatten();
    let dir = all.find(|entry| entry.file_name().to_string_lossy().starts_with(id))?;
    let config = fs::read(dir.path().join("config.v2.json")).ok()?;
    let config: serde_json::Value = serde_json::from_slice(&config).ok()?;
    Some(config["Name"].as_str()?.trim_start_matches('/').to_owned())
}

fn ancestors(pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| {
        let stat = procfs::text(format!("/proc/{pid}/stat")).ok()?;
        let parent = procfs::stat_fields(&stat)?.nth(1)?.parse().ok()?;
        (parent > 1).then_some(parent)
    };
    // A tree of processes is finite, but if it changes while it is read, the walk may not end.
    std::iter::successors(Some(pid), parent).take(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_still_itself_and_has_no_hidden_label() {
        let (_, vouched) = look(std::process::id(), 0, 0).expect("we live");
        assert_eq!(label("a\u{1b}[2Jb\n"), "a[2Jb");
        assert_eq!(label(&"ü".repeat(50)), "ü".repeat(31));
        assert!(is_still(&vouched));
        let other = Vouched {
            start_time: 1,
            ..vouched
        };
        assert!(!is_still(&other));
    }
}
