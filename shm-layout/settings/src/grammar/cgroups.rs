//! The facts in a cgroup path: the container, in the short form that its tools use, the pod and the job.

/// `docker-9f3c…​.scope`, `/docker/9f3c…`, `libpod-…`, `cri-containerd-…` → the first twelve digits; `/lxc/NAME` and
/// `machine-NAME.scope` → the name; anything else is not a container.
pub fn container(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts.iter().enumerate().rev().find_map(|(at, part)| {
        let parent = at.checked_sub(1).and_then(|before| parts.get(before));
        container_of(part, parent.copied())
    })
}

/// Returns the container that one part of a path names, given the part before it.
pub fn container_of(part: &str, parent: Option<&str>) -> Option<String> {
    id(part).or_else(|| name(part, parent))
}

/// Returns the UID of a Kubernetes pod: `…/kubepods-burstable-pod1f_2e….slice/…`, `/kubepods/burstable/pod1f-2e…/…`. Names
/// inside a container are ignored.
pub fn pod(path: &str) -> Option<String> {
    let mut parent = None;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if container_of(part, parent).is_some() {
            break;
        }
        if let Some(uid) = pod_of(part) {
            return Some(uid);
        }
        parent = Some(part);
    }
    None
}

/// Returns the pod that one part of a path names.
pub fn pod_of(part: &str) -> Option<String> {
    let part = part.strip_suffix(".slice").unwrap_or(part);
    let uid = part.rsplit_once("pod")?.1.replace('_', "-");
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    (digits == 32 && uid.len() <= 36).then_some(uid)
}

/// The Slurm job of a cgroup: `…/job_4711/step_0/…`.
pub fn job(path: &str) -> Option<&str> {
    path.split('/').find_map(job_of)
}

/// Returns the job that one part of a path names.
pub fn job_of(part: &str) -> Option<&str> {
    let job = part.strip_prefix("job_")?;
    (!job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit())).then_some(job)
}

fn id(part: &str) -> Option<String> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let digits = part.rsplit(['-', ':']).next()?;
    let hexadecimal = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hexadecimal.then(|| digits[..12].to_owned())
}

fn name(part: &str, parent: Option<&str>) -> Option<String> {
    let machine = part
        .strip_suffix(".scope")
        .and_then(|p| p.strip_prefix("machine-"));
    let lxc = part.strip_prefix("lxc.payload.");
    let in_lxc = (parent == Some("lxc")).then_some(part);
    machine.or(lxc).or(in_lxc).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runtime_is_recognised_and_a_login_session_is_not() {
        let id = "9f3c".repeat(16);
        for path in [
            format!("/system.slice/docker-{id}.scope"),
            format!("/docker/{id}"),
            format!("/kubepods.slice/pod1.slice/cri-containerd-{id}.scope"),
            format!("/machine.slice/libpod-{id}.scope/container"),
        ] {
            assert_eq!(container(&path).as_deref(), Some("9f3c9f3c9f3c"), "{path}");
        }
        assert_eq!(container("/lxc/web").as_deref(), Some("web"));
        assert_eq!(
            container("/machine.slice/machine-web.scope").as_deref(),
            Some("web")
        );
        assert_eq!(
            container("/user.slice/user-1000.slice/session-2.scope"),
            None
        );
        assert_eq!(container("/"), None);
        assert_eq!(container(""), None);
    }

    #[test]
    fn a_pod_is_known_by_either_way_of_writing_it() {
        let uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
        let slice = uid.replace('-', "_");
        for path in [
            format!("/kubepods.slice/kubepods-pod{slice}.slice/cri-containerd-1.scope"),
            format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice"),
            format!("/kubepods/besteffort/pod{uid}/9f3c"),
        ] {
            assert_eq!(pod(&path).as_deref(), Some(uid), "{path}");
        }
        assert_eq!(pod("/user.slice/podman-123.scope"), None);
        assert_eq!(pod("/machine.slice/libpod-1.scope"), None);
    }

    #[test]
    fn a_job_of_slurm_is_known_by_its_cgroup() {
        assert_eq!(
            job("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"),
            Some("4711")
        );
        assert_eq!(job("/slurm/uid_1000/job_12/step_batch"), Some("12"));
        assert_eq!(job("/user.slice/job_x/a"), None);
        assert_eq!(job("/"), None);
    }
}
