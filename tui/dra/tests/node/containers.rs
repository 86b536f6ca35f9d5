//! The contents of a container with a claim.

use std::os::unix::fs::symlink;
use std::process::Command;

use gpushare_testbed::{Need, Watched, needs};
use serde_json::json;

use crate::support::*;

/// Makes a root directory with only the machine's `/usr`. Returns how podman runs in it, or `None` if it cannot.
fn podman(root: &std::path::Path) -> Option<Vec<&'static str>> {
    for dir in [
        "usr", "proc", "sys", "dev", "run", "tmp", "etc", "var", "opt",
    ] {
        std::fs::create_dir_all(root.join(dir)).expect("ours");
    }
    for name in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).expect("ours");
    }
    let tries = [vec![], vec!["--runtime", "runc"], vec!["--runtime", "crun"]];
    let works = |how: &Vec<&str>| {
        let mut tried = container(how, root, &[], "true");
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Command::new("podman").arg("--version").output().is_ok()
                && Watched::spawn(&mut tried).wait_output().status.success()
        }))
        .unwrap_or(false)
    };
    let found = tries.into_iter().find(works);
    needs(Need::Works("podman", found.is_some()));
    found
}

fn container(how: &[&str], root: &std::path::Path, options: &[&str], script: &str) -> Command {
    // A machine may allow fewer open files than podman's default.
    let limits = std::fs::read_to_string("/proc/self/limits").expect("there");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("there");
    let limit = files.split_ascii_whitespace().nth(4).expect("a number");
    let mut command = Command::new("podman");
    command
        .args(how)
        .args(["run", "--rm", "--network", "none", "--log-driver", "none"])
        .arg(format!("--ulimit=nofile={limit}:{limit}"))
        .arg("--ulimit=nproc=4096:4096")
        .args(["-v", "/usr:/usr:ro"])
        .args(options)
        .arg("--rootfs")
        .arg(root)
        .args(["sh", "-c", script]);
    command
}

#[test]
fn a_container_with_a_claim_has_socket_library_group_and_limit_whatever_its_image_sets() {
    let root = tempfile::tempdir_in("/tmp").expect("there is room");
    let Some(how) = podman(root.path()) else {
        return;
    };
    let Some(mut node) = Node::new() else { return };
    // The directory that podman searches. The UID belongs to this run.
    node.cdi = "/var/run/cdi".into();
    let uid = format!("11112222-3333-4444-5555-{:012x}", std::process::id());
    node.serve();
    node.drive(&[]);
    let Some(mut kubelet) = Kubelet::registering(&node, "v1.DRAPlugin") else {
        return;
    };
    let claim = node.claim(
        &uid,
        json!([allocated("gpushare.dev", "limits", Some("7Gi"))]),
        json!([]),
    );
    let prepared = kubelet.prepare(&claim);
    assert_eq!(prepared.error, "");
    let options = [
        "--device",
        &prepared.devices[0].cdi_device_ids[0],
        "-e",
        "GPUSHARE_MEMORY=none",
        "-e",
        "LD_PRELOAD=",
    ];
    let script = "echo memory $GPUSHARE_MEMORY group $GPUSHARE_GROUP; ls /run/gpushare; \
                  grep -q /opt/gpushare/libgpushare.so /proc/self/maps && echo loaded";
    let said = Watched::spawn(&mut container(&how, root.path(), &options, script)).wait_output();
    assert_eq!(kubelet.unprepare(&claim), "");
    let out = String::from_utf8_lossy(&said.stdout).into_owned();
    let group: String = uid.chars().filter(|c| *c != '-').take(27).collect();
    for wanted in [
        &*format!("memory 7GiB group k8s-{group}"),
        "socket",
        "loaded",
    ] {
        assert!(out.contains(wanted), "{wanted}: {said:?}");
    }
}
