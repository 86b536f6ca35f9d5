//! The container a cgroup path belongs to, named as short as its tools name it.

/// `docker-9f3c…​.scope`, `/docker/9f3c…`, `libpod-…`, `cri-containerd-…` → the first twelve digits; `/lxc/NAME` and
/// `machine-NAME.scope` → the name; anything else is not a container.
pub fn of_cgroup(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts.iter().enumerate().rev().find_map(|(at, part)| {
        let parent = at.checked_sub(1).and_then(|before| parts.get(before));
        id(part).or_else(|| name(part, parent.copied()))
    })
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
            assert_eq!(of_cgroup(&path).as_deref(), Some("9f3c9f3c9f3c"), "{path}");
        }
        assert_eq!(of_cgroup("/lxc/web").as_deref(), Some("web"));
        assert_eq!(
            of_cgroup("/machine.slice/machine-web.scope").as_deref(),
            Some("web")
        );
        assert_eq!(
            of_cgroup("/user.slice/user-1000.slice/session-2.scope"),
            None
        );
        assert_eq!(of_cgroup("/"), None);
        assert_eq!(of_cgroup(""), None);
    }
}
