//! What the cgroups of a process say of it, and by whose word.
//!
//! Who may write into a cgroup's directory names the cgroups in it: in a tree that a user was given, that user, and in a
//! container its root, whatever owner the files have then. So a name counts as the machine's if root alone may write all
//! directories above it and no container is among them; else it is the word of the user whom the first other directory belongs to.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gpushare_base::text::cgroups;

/// Who else may write a directory, where that is not known or not one user.
pub const ANYONE: u32 = u32::MAX;

/// A container's name in a cgroup's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The container.
    pub name: String,
    /// Whose word it is; root's is the machine's.
    pub by: u32,
    /// The part of the line in `/proc/PID/cgroup` up to it.
    within: String,
}

impl Claim {
    /// Whether a process with these cgroups is in there.
    pub fn holds(&self, cgroups: &str) -> bool {
        cgroups.lines().any(|line| {
            let rest = line.strip_prefix(&self.within);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// What the text of `/proc/PID/cgroup` says of a process.
pub fn look(cgroups: &str) -> Found {
    walk(cgroups, &owner)
}

/// What cgroups say.
#[derive(Default)]
pub struct Found {
    /// The outermost container; by the machine's word, if it has one.
    pub container: Option<Claim>,
    /// The Slurm job, by the machine's word alone.
    pub job: Option<String>,
    /// The UID of the Kubernetes pod, by the machine's word alone.
    pub pod: Option<String>,
}

/// `owner` says who may write a directory, by its hierarchy and its path in there.
fn walk(text: &str, owner: &dyn Fn(&str, &str) -> u32) -> Found {
    let mut found = Found::default();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(hierarchy), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        // Most lines say nothing; a path from outside of our own root says nothing that we can look up.
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

/// Where systemd, and whoever does as it does, mounts a hierarchy.
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

    /// Everything is root's but what lies at or below alice's tree.
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
