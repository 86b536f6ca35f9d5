//! Facts about a process that the names of its cgroups contain, with the user who could have chosen the names.
//!
//! A user who can write into a cgroup's directory can name the cgroups below it. In a tree that was delegated to a user,
//! that is the user; in a container, the container's root, whatever the owner of the files. So a name counts as the
//! machine's only if root alone can write all directories above it and no container is among them. Else it is attributed to
//! the owner of the first other directory.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gpushare_base::text::cgroups;

/// Owner of a directory that more than one user can write, or whose writers are unknown.
pub const ANYONE: u32 = u32::MAX;

/// A container's name in a cgroup's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Name of the container.
    pub name: String,
    /// User who could have chosen the name; root stands for the machine.
    pub by: u32,
    /// Part of the line in `/proc/PID/cgroup` up to the name.
    within: String,
}

impl Claim {
    /// Returns true if a process with these cgroups is in the container.
    pub fn holds(&self, cgroups: &str) -> bool {
        cgroups.lines().any(|line| {
            let rest = line.strip_prefix(&self.within);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Reads the text of `/proc/PID/cgroup`.
pub fn look(cgroups: &str) -> Found {
    walk(cgroups, &owner)
}

/// The facts that the cgroups of a process contain.
#[derive(Default)]
pub struct Found {
    /// Outermost container; one that the machine named is preferred.
    pub container: Option<Claim>,
    /// Slurm job, if the machine named it.
    pub job: Option<String>,
    /// UID of the Kubernetes pod, if the machine named it.
    pub pod: Option<String>,
}

/// Reads the cgroups; `owner` returns the user who can write a directory, given its hierarchy and path.
fn walk(text: &str, owner: &dyn Fn(&str, &str) -> u32) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(hierarchy), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        // Most lines have no such name. A path outside of our own root cannot be looked up.
        let tells = [cgroups::container(path), cgroups::pod(path)];
        let tells = tells.iter().any(Option::is_some) || cgroups::job(path).is_some();
        if !tells || path.split('/').any(|part| part == "..") {
            continue;
        }
        let (mut by, mut at, mut parent) = (0, String::new(), None);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if by == 0 {
                by = owner(hierarchy, &at);
            }
            at.push('/');
            at.push_str(part);
            if let Some(job) = cgroups::job_of(part).filter(|_| by == 0) {
                found.job.get_or_insert_with(|| job.to_owned());
            }
            if let Some(pod) = cgroups::pod_of(part).filter(|_| by == 0) {
                found.pod.get_or_insert(pod);
            }
            if let Some(name) = cgroups::container_of(part, parent) {
                let before = found.container.as_ref();
                if before.is_none_or(|before| before.by != 0 && by == 0) {
                    let within = line[..line.len() - path.len()].to_owned() + &at;
                    found.container = Some(Claim { name, by, within });
                }
                break;
            }
            parent = Some(part);
        }
    }
    found
}

fn owner(hierarchy: &str, path: &str) -> u32 {
    let dir = mount(hierarchy).join(path.trim_start_matches('/'));
    match std::fs::metadata(dir) {
        Ok(meta) if meta.mode() & 0o022 == 0 => meta.uid(),
        _ => ANYONE,
    }
}

/// Returns the directory where systemd and similar programs mount a hierarchy.
fn mount(hierarchy: &str) -> PathBuf {
    let all = Path::new("/sys/fs/cgroup");
    match hierarchy {
        "" if all.join("cgroup.controllers").exists() => all.to_owned(),
        "" => all.join("unified"),
        named => all.join(named.trim_start_matches("name=")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "9f3c9f3c9f3c9f3c9f3c9f3c9f3c9f3c9f3c9f3c9f3c9f3c9f3c9f3c9f3c9f3c";

    /// Returns alice for her tree, and root for everything else.
    fn alices(_: &str, path: &str) -> u32 {
        let hers = "/user.slice/user-1000.slice/user@1000.service";
        if path.starts_with(hers) { 1000 } else { 0 }
    }

    fn named(path: &str) -> Option<(String, u32)> {
        let found = walk(&format!("1:pids:/\n0::{path}"), &alices).container?;
        Some((found.name, found.by))
    }

    #[test]
    fn a_container_in_a_tree_of_roots_is_by_roots_word_and_one_in_a_users_by_the_users() {
        let short = "9f3c9f3c9f3c".to_owned();
        assert_eq!(
            named(&format!("/system.slice/docker-{ID}.scope")),
            Some((short.clone(), 0))
        );
        let hers = "/user.slice/user-1000.slice/user@1000.service";
        assert_eq!(
            named(&format!("{hers}/user.slice/libpod-{ID}.scope")),
            Some((short, 1000))
        );
        assert_eq!(named(hers), None);
        assert_eq!(named(&format!("/../docker-{ID}.scope")), None);
    }

    #[test]
    fn what_is_named_within_a_container_names_neither_another_container_nor_a_job() {
        let text = format!("0::/docker/{ID}/job_4711/lxc.payload.web");
        let found = walk(&text, &alices);
        assert_eq!(found.container.expect("one").name, "9f3c9f3c9f3c");
        assert_eq!(found.job, None);
    }

    #[test]
    fn a_job_is_slurms_and_not_a_users() {
        let job = |path: &str| walk(&format!("0::{path}"), &alices).job;
        let slurms = "/system.slice/slurmstepd.scope/job_12/step_0";
        assert_eq!(job(slurms).as_deref(), Some("12"));
        let hers = "/user.slice/user-1000.slice/user@1000.service/job_12";
        assert_eq!(job(hers), None);
    }

    #[test]
    fn a_pod_is_the_kubelets_and_not_a_users() {
        let uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
        let pod = |path: &str| walk(&format!("0::{path}"), &alices).pod;
        let kubelets = format!("/kubepods/besteffort/pod{uid}");
        assert_eq!(pod(&format!("{kubelets}/{ID}")).as_deref(), Some(uid));
        assert_eq!(pod(&kubelets).as_deref(), Some(uid));
        let hers = "/user.slice/user-1000.slice/user@1000.service";
        assert_eq!(pod(&format!("{hers}{kubelets}/{ID}")), None);
        assert_eq!(pod(&format!("/docker/{ID}{kubelets}")), None);
    }

    #[test]
    fn the_monitor_of_a_container_is_not_in_it() {
        let text = format!("0::/machine.slice/libpod-{ID}.scope/container");
        let claim = walk(&text, &alices).container.expect("one");
        assert!(claim.holds(&text));
        assert!(!claim.holds(&format!("0::/machine.slice/libpod-conmon-{ID}.scope")));
        assert!(!claim.holds(&format!("0::/machine.slice/libpod-{ID}.scope2")));
    }
}
