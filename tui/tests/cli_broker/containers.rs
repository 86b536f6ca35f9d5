//! Containers, with podman where it works: one mount is enough, and the broker's promises hold.

use gpushare_testbed::{Need, needs};
use std::process::{Command, Stdio};

use crate::support::*;

/// The path of the only mount.
const INSIDE: &str = "/run/gpushare";

/// A podman that can run containers on this machine.
struct Podman {
    root: tempfile::TempDir,
    limit: String,
    runtime: Option<&'static str>,
}

impl Podman {
    /// Returns `None` if podman is missing or cannot run containers.
    fn new() -> Option<Self> {
        let root = tempfile::tempdir_in("/tmp").expect("there is room");
        for dir in ["usr", "proc", "sys", "dev", "run", "tmp", "etc", "var"] {
            std::fs::create_dir(root.path().join(dir)).expect("ours");
        }
        // Mount points: a container with mapped users cannot create them.
        std::fs::create_dir(root.path().join("run/gpushare")).expect("ours");
        std::fs::write(root.path().join("test"), "").expect("ours");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(root.path(), open).expect("ours");
        for name in ["bin", "lib", "lib64"] {
            let to = format!("usr/{name}");
            std::os::unix::fs::symlink(to, root.path().join(name)).expect("ours");
        }
        let limits = std::fs::read_to_string("/proc/self/limits").expect("there");
        let files = limits
            .lines()
            .find(|line| line.starts_with("Max open files"))
            .expect("there");
        let limit = files
            .split_ascii_whitespace()
            .nth(4)
            .expect("a number")
            .to_owned();
        let mut podman = Self {
            root,
            limit,
            runtime: None,
        };
        for runtime in [None, Some("runc"), Some("crun")] {
            podman.runtime = runtime;
            let tried = podman.command(&[], &["true"]).stdin(Stdio::null()).output();
            if tried.is_ok_and(|tried| tried.status.success()) {
                return needs(Need::Works("podman", true)).then_some(podman);
            }
        }
        needs(Need::Works("podman", false));
        None
    }

    /// Returns a program's command in a container that has the host's `/usr` and only the given mounts.
    fn command(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.args(
            self.runtime
                .iter()
                .flat_map(|runtime| ["--runtime", runtime]),
        );
        command
            .args([
                "run",
                "--rm",
                "-i",
                "--network",
                "none",
                "--log-driver",
                "none",
            ])
            .arg(format!("--ulimit=nofile={0}:{0}", self.limit))
            .arg("--ulimit=nproc=4096:4096")
            .args(["-v", "/usr:/usr:ro"])
            .args(options)
            .arg("--rootfs")
            .arg(self.root.path())
            .args(program);
        command
    }

    /// Starts a test role in a container.
    fn plays(&self, machine: &Machine, name: &str, options: &[&str], role: &str) -> Tenant {
        let mut command = self.playing(machine, name, options, role);
        Tenant::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
    }

    fn playing(&self, machine: &Machine, name: &str, options: &[&str], role: &str) -> Command {
        let mount = format!("{}:{INSIDE}:ro", machine.dir().display());
        let test = format!("{}:/test:ro", machine.path("test").display());
        let role = format!("{ROLE}={role}");
        let mut all = vec!["--name", name, "-v", &mount, "-v", &test, "-e", &role];
        all.extend(["-e", "GPUSHARE_DIR=/run/gpushare"]);
        all.extend(options);
        let program = ["/test", "--exact", "plays_a_role", "--nocapture"];
        self.command(&all, &program)
    }

    fn kill(&self, name: &str) {
        let _ = Command::new("podman").args(["kill", name]).output();
    }
}

/// Returns a name that no other run uses.
fn name(what: &str) -> String {
    format!("gpushare-test-{what}-{}", std::process::id())
}

#[test]
fn a_process_in_a_container_is_managed_from_the_host_under_the_containers_name() {
    let Some(podman) = Podman::new() else { return };
    let Some(machine) = Machine::new() else {
        return;
    };
    let name = name("web");
    let mut inside = podman.plays(&machine, &name, &[], "tenant inside");
    assert!(inside.hear().starts_with("slot "));
    let seen = machine.process("inside");
    assert_eq!(seen["container"], name.as_str());
    assert_eq!(seen["ns_pid"], 1);
    assert_ne!(seen["pid"], 1);
    machine
        .run(0, &["quota", "set", "name:inside", "4GiB"])
        .done();
    assert_eq!(inside.ask("quota"), format!("Some({})", 4 * GIB));
    assert_eq!(inside.ask("take 5GiB"), "denied");
    machine.run(0, &["pause", "name:inside"]).done();
    machine.run(0, &["resume", "name:inside"]).done();
    // When the container dies, the lock goes from it to the process on the host.
    machine.run(0, &["policy", "set", "all", "always"]).done();
    let mut alice = machine.tenant(ALICE, "outside");
    alice.hear();
    assert_eq!(inside.ask("lock"), "held");
    podman.kill(&name);
    assert_eq!(alice.ask("lock"), "held");
    eventually("its slot is given back", PATIENCE, || {
        machine.processes().len() == 1
    });
}

#[test]
fn root_in_a_container_is_a_tenant_too() {
    let Some(podman) = Podman::new() else { return };
    let Some(machine) = Machine::new() else {
        return;
    };
    let _alice = machine.joined(ALICE, "victim");
    let vandal = podman.plays(&machine, &name("vandal"), &[], "vandal");
    assert_eq!(vandal.hear(), "did ");
    drop(vandal);
    let root = machine.tenant(0, "outside");
    assert!(root.hear().starts_with("slot "));
    // Root's user id, with the id of an administrators' group.
    let group = format!("--user=0:{ADMINS}");
    let meddler = podman.plays(&machine, &name("meddler"), &[&group], "meddler");
    assert_eq!(meddler.hear(), "did ");
}

#[test]
fn a_container_with_mapped_users_registers_as_the_user_that_it_is_on_the_host() {
    let Some(podman) = Podman::new() else { return };
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.kill_broker();
    machine.serve_everyone();
    let mapped = ["--uidmap", "0:700000:65536", "--gidmap", "0:700000:65536"];
    let tried = podman
        .command(&mapped, &["true"])
        .stdin(Stdio::null())
        .output();
    let maps = tried.is_ok_and(|tried| tried.status.success());
    if !needs(Need::Works("podman-users", maps)) {
        return;
    }
    let name = name("mapped");
    let mut inside = podman.plays(&machine, &name, &mapped, "tenant mapped");
    let said = inside.hear();
    assert!(said.starts_with("slot "), "{said}");
    let seen = machine.process("mapped");
    assert_eq!(seen["user"], "700000");
    assert_eq!(seen["container"], name.as_str());
    machine
        .run(0, &["quota", "set", "name:mapped", "4GiB"])
        .done();
    assert_eq!(inside.ask("quota"), format!("Some({})", 4 * GIB));
}

/// A file that is removed on drop.
struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_cdi_device_mounts_socket_and_library_and_sets_the_limit() {
    let Some(podman) = Podman::new() else { return };
    let Some(machine) = Machine::new() else {
        return;
    };
    let file = std::path::Path::new("/etc/cdi").join(name("cdi") + ".json");
    let _removed = Removed(file.clone());
    let path = file.display().to_string();
    let mut generate = machine.command(0, &["cdi", "generate", "-o", &path, "7g", "8g"]);
    generate.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
    said(&mut generate).done();
    let test = format!("{}:/test:ro", machine.path("test").display());
    let role = format!("{ROLE}=environment");
    let options = [
        "--device",
        "gpushare.dev/share=7g",
        "-v",
        &test,
        "-e",
        &role,
    ];
    let program = ["/test", "--exact", "plays_a_role", "--nocapture"];
    let mut command = podman.command(&options, &program);
    let inside = Tenant::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let said = inside.hear();
    assert_eq!(said, format!("Bytes({}) socket library", 7 * GIB));
}

/// Runs a command as an ordinary user with mapped ids, in a mount namespace whose files allow the mapping.
const ROOTLESS: &str = r#"
set -e
place=$1; shift
mount -t tmpfs -o mode=755 none "$place/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    name=${device%:*}
    mknod -m 666 "$place/dev/$name" c 1 "${device#*:}"
    mount --bind "$place/dev/$name" "/dev/$name"
done
for name in passwd group subuid subgid; do
    [ -e "/etc/$name" ] || touch "/etc/$name"
    mount --bind "$place/etc/$name" "/etc/$name"
done
exec setpriv --reuid 61301 --regid 61300 --init-groups \
    env -i PATH="$PATH" HOME="$place/home" XDG_RUNTIME_DIR="$place/run" "$@"
"#;

/// A podman that an ordinary user runs.
struct Rootless {
    place: tempfile::TempDir,
    podman: Podman,
}

impl Rootless {
    /// Returns `None` if podman is missing or cannot run containers.
    fn new() -> Option<Self> {
        let podman = Podman::new()?;
        let place = tempfile::tempdir_in("/tmp").expect("there is room");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.path(), open).expect("ours");
        for dir in ["dev", "etc", "home", "run"] {
            std::fs::create_dir(place.path().join(dir)).expect("ours");
        }
        let etc = |name: &str, more: String| {
            let there = std::fs::read_to_string(format!("/etc/{name}")).unwrap_or_default();
            std::fs::write(place.path().join("etc").join(name), there + &more).expect("ours");
        };
        let home = place.path().join("home").display().to_string();
        etc(
            "passwd",
            format!("gpushare-test:x:{ALICE}:{USERS}::{home}:/bin/sh\n"),
        );
        etc("group", format!("gpushare-test:x:{USERS}:\n"));
        for name in ["subuid", "subgid"] {
            etc(name, "gpushare-test:8000000:65536\n".to_owned());
        }
        let owned = Command::new("chown")
            .args(["-R", &format!("{ALICE}:{USERS}")])
            .args([place.path().join("home"), place.path().join("run")])
            .arg(podman.root.path())
            .status();
        assert!(owned.is_ok_and(|owned| owned.success()));
        let mut rootless = Self { place, podman };
        for runtime in [None, Some("runc"), Some("crun")] {
            rootless.podman.runtime = runtime;
            let mut tried = rootless.command(rootless.podman.command(&[], &["true"]));
            let tried = tried.stdin(Stdio::null()).output();
            if tried.is_ok_and(|tried| tried.status.success()) {
                return needs(Need::Works("podman-rootless", true)).then_some(rootless);
            }
        }
        needs(Need::Works("podman-rootless", false));
        None
    }

    /// Returns podman's command as that user.
    fn command(&self, podman: Command) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", ROOTLESS, "sh"])
            .arg(self.place.path())
            .arg(podman.get_program())
            .arg("--cgroup-manager=cgroupfs")
            .args(podman.get_args())
            .current_dir("/");
        command
    }
}

/// The process that keeps the user's namespace outlives each podman, so it is ended here.
impl Drop for Rootless {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.place.path().join("run/libpod/tmp/pause.pid"));
        let pid = pid.ok().and_then(|pid| pid.trim().parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn a_rootless_container_registers_as_its_user_and_reaches_no_process_outside() {
    let Some(rootless) = Rootless::new() else {
        return;
    };
    let Some(machine) = Machine::new() else {
        return;
    };
    let outside = machine.tenant(ALICE, "outside");
    assert_eq!(outside.hear(), "slot 0 1");
    let plays = |role: &str| {
        let name = name(role.split(' ').next().expect("a word"));
        let inside = rootless.podman.playing(&machine, &name, &[], role);
        let mut command = rootless.command(inside);
        Tenant::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
    };
    let mut inside = plays("tenant rootless");
    let said = inside.hear();
    assert!(said.starts_with("slot "), "{said}");
    let seen = machine.process("rootless");
    // The container's name is the user's own choice.
    let container = seen["container"].as_str().expect("it has a name");
    let (user, short) = container.split_once('/').expect("behind the user's name");
    assert_eq!(user, ALICE.to_string());
    assert!(short.starts_with("gpushare-test-tenant-"), "{container}");
    assert_eq!(seen["user"], ALICE.to_string());
    assert_eq!(seen["ns_pid"], 1);
    machine
        .run(0, &["quota", "set", "name:rootless", "4GiB"])
        .done();
    assert_eq!(inside.ask("take 5GiB"), "denied");
    // The user may do it from outside the container.
    machine.run(ALICE, &["pause", "name:rootless"]).done();
    drop(inside);
    assert_eq!(plays("meddler").hear(), "did ");
}
