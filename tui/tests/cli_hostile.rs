//! An attack on the segment directory: another user of the machine makes it first, or puts a link in its place. No verb of root
//! or of a third user follows, writes, loads or executes anything there. Each test has two or three real users, so it needs
//! root.

mod cli_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cli_support::{Said, copy};
use gpushare_testbed::{Need, Watched, artifact, cc, needs};
use serde_json::Value;

const STRANGER: u32 = 61_235;
/// A user whose default directory no process uses.
const TENANT: u32 = 61_236;
/// The words of a refusal.
const WHOSE: [&str; 2] = ["belongs to user", "61235"];

/// A directory that every user may write, with the control program for all users.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// Returns `None` if this test cannot run as other users.
    fn new() -> Option<Self> {
        if !needs(Need::Root) {
            return None;
        }
        // A command without a directory would find a broker of this machine.
        gpushare_testbed::own_run();
        // Short, because a path in it must fit into a group's name.
        let dir = tempfile::Builder::new()
            .prefix("h")
            .tempdir_in("/tmp")
            .expect("there is room");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).expect("ours");
        copy(
            env!("CARGO_BIN_EXE_gpushare"),
            &dir.path().join("gpushare"),
            "755",
        );
        Some(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Copies the other parts of an installation beside the control program.
    fn install(&self) {
        for part in [
            "libgpushare.so",
            "libcuda.so",
            "libnvidia_ml.so",
            "gpushare-workload",
        ] {
            symlink(artifact(part), self.path(part)).expect("there is room");
        }
    }

    /// Makes a directory that belongs to the stranger, with segments, settings and an audit log of the stranger.
    fn planted(&self) -> PathBuf {
        let dir = self.path("planted");
        self.stranger(&format!("mkdir -m 755 {}", dir.display()));
        let group = format!("$(touch {})", self.path("x").display());
        let made = self.run(STRANGER, Some(&dir), &["group", "create", &group]);
        made.done();
        dir
    }

    fn stranger(&self, script: &str) {
        let mut sh = Command::new("sh");
        sh.args(["-c", script]).uid(STRANGER).gid(STRANGER);
        assert!(sh.status().expect("there is a shell").success(), "{script}");
    }

    /// Returns a command of the control program as this user; without a directory it uses the user's default.
    fn command(&self, uid: u32, dir: Option<&Path>, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("gpushare"));
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("GPUSHARE_ALLOWED_GPUS", "/nonexistent/ids")
            .env("MARK", self.path("x"))
            .args(args)
            .uid(uid)
            .gid(uid)
            .current_dir("/");
        if let Some(dir) = dir {
            command.env("GPUSHARE_DIR", dir);
        }
        command
    }

    fn run(&self, uid: u32, dir: Option<&Path>, args: &[&str]) -> Said {
        said(&mut self.command(uid, dir, args))
    }

    /// Checks that nothing written by the stranger was executed.
    fn nothing_was_executed(&self, by: &str) {
        assert!(!self.path("x").exists(), "executed by {by}");
    }
}

/// Runs a command that must not wait for another process, and returns its output.
fn said(command: &mut Command) -> Said {
    Watched::spawn(command).wait_output().into()
}

/// Verbs that read or change segments.
const VERBS: [&[&str]; 11] = [
    &["ps"],
    &["policy", "set", "all", "always"],
    &["quota", "show"],
    &["group", "create", "mine", "memory=1GiB"],
    &["group", "show"],
    &["pause", "all"],
    &["undo"],
    &["audit"],
    &["trace", "show"],
    &["pick"],
    &["init"],
];

#[test]
fn roots_verbs_write_through_no_link_in_a_directory_that_a_stranger_made() {
    let Some(place) = Place::new() else { return };
    let dir = place.planted();
    let victim = place.path("profile");
    fs::write(&victim, "# precious\n").expect("ours");
    fs::set_permissions(&victim, Permissions::from_mode(0o600)).expect("ours");
    place.stranger(&format!(
        "cd {} && mv audit.jsonl kept && ln -s {} audit.jsonl",
        dir.display(),
        victim.display()
    ));
    for verb in VERBS {
        let said = place.run(0, Some(&dir), verb);
        let text = fs::read_to_string(&victim).expect("there");
        assert_eq!(text, "# precious\n", "{verb:?} wrote to it: {said:?}");
        said.refused(4, &WHOSE);
    }
    // Root's next login reads this file.
    let mut shell = Command::new("sh");
    assert!(shell.arg(&victim).status().expect("a shell").success());
    place.nothing_was_executed("a shell");
}

#[test]
fn roots_verbs_load_no_library_that_a_stranger_planted() {
    let Some(place) = Place::new() else { return };
    let dir = place.planted();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted.c");
    let code = "#include <fcntl.h>\n#include <stdlib.h>\n\
                __attribute__((constructor)) static void planted(void) {\n\
                  if (getenv(\"MARK\")) open(getenv(\"MARK\"), O_CREAT | O_WRONLY, 0600);\n}\n";
    fs::write(&source, code).expect("ours");
    let library = cc(&source, "planted.so", &["-shared", "-fPIC"]);
    let theirs = place.path("planted.so");
    fs::copy(&library, &theirs).expect("there is room");
    // The library is executed if it is loaded, or the test would show nothing.
    let mut control = Command::new("true");
    control
        .env("LD_PRELOAD", &theirs)
        .env("MARK", place.path("x"));
    assert!(control.status().expect("started").success());
    fs::remove_file(place.path("x")).expect("the constructor made it");

    place.install();
    let names = [
        "libcuda.so",
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "libgcc_s.so.1",
    ];
    let links = names.map(|name| format!("cp {} sim-lib/{name}", theirs.display()));
    place.stranger(&format!(
        "cd {} && mkdir sim-lib && {}",
        dir.display(),
        links.join(" && ")
    ));
    let verbs: [&[&str]; 5] = [
        &["ps"],
        &["pick"],
        &["doctor"],
        &["run", "--sim", "true"],
        &["run", "--sim", "--memory", "1GiB", "true"],
    ];
    for verb in verbs {
        let said = place.run(0, Some(&dir), verb);
        place.nothing_was_executed(&format!("{verb:?}"));
        assert_ne!(said.code, 0, "{verb:?}: {said:?}");
    }
}

#[test]
fn on_a_strangers_directory_a_program_with_a_limit_is_not_started_and_another_runs_uncounted() {
    let Some(place) = Place::new() else { return };
    let dir = place.planted();
    let mark = place.path("started").display().to_string();
    let run = |limit: &[&str]| {
        let args = [&["run"], limit, &["touch", &mark]].concat();
        let mut command = place.command(0, Some(&dir), &args);
        command.env("GPUSHARE_LIB", artifact("libgpushare.so"));
        said(&mut command)
    };
    for limit in [["--memory", "1GiB"], ["--group", "x"]] {
        run(&limit).refused(4, &WHOSE);
        assert!(!Path::new(&mark).exists(), "{limit:?}");
    }
    let uncounted = ["uncounted", WHOSE[0], WHOSE[1]];
    run(&[]).refused(0, &uncounted);
    assert!(Path::new(&mark).exists());
}

#[test]
fn a_link_to_a_directory_that_everybody_may_write_is_not_followed() {
    let Some(place) = Place::new() else { return };
    let open = place.path("open");
    fs::create_dir(&open).expect("there is room");
    fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("ours");
    let link = place.path("link");
    place.stranger(&format!("ln -s {} {}", open.display(), link.display()));
    for uid in [0, TENANT] {
        for verb in VERBS {
            let said = place.run(uid, Some(&link), verb).refused(4, &WHOSE);
            let made = fs::read_dir(&open).expect("a directory").count();
            assert_eq!(made, 0, "{uid} {verb:?}: {said:?}");
        }
    }
    // The directory itself, and a directory of the user's own that its group may write.
    let own = place.path("own");
    fs::create_dir(&own).expect("there is room");
    chown(&own, Some(TENANT), Some(TENANT)).expect("given");
    fs::set_permissions(&own, Permissions::from_mode(0o770)).expect("ours");
    for dir in [&open, &own] {
        for verb in VERBS {
            let said = place.run(TENANT, Some(dir), verb);
            assert_eq!(fs::read_dir(dir).expect("a directory").count(), 0);
            said.refused(4, &[&dir.display().to_string()]);
        }
    }
}

/// A link or directory that is removed on drop.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_default_directory_that_a_stranger_made_first_is_refused_and_another_one_offered() {
    let Some(place) = Place::new() else { return };
    let path = PathBuf::from(format!("/dev/shm/gpushare-{TENANT}"));
    let _removed = Removed(path.clone());
    let open = place.path("open");
    fs::create_dir(&open).expect("there is room");
    fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("ours");
    let plants = [
        format!("mkdir -m 777 {0}", path.display()),
        format!("rmdir {0}; ln -s {1} {0}", path.display(), open.display()),
    ];
    for plant in plants {
        place.stranger(&plant);
        for verb in VERBS {
            let said = place.run(TENANT, None, verb);
            assert_eq!(fs::read_dir(&open).expect("a directory").count(), 0);
            said.refused(4, &[WHOSE[0], WHOSE[1], "GPUSHARE_DIR"]);
        }
    }
    fs::remove_file(&path).expect("the link");
    // A directory of root's own behind the link is refused too.
    symlink(&open, &path).expect("linked");
    place
        .run(TENANT, None, &["policy", "set", "all", "always"])
        .refused(4, &["symbolic link"]);
}

#[test]
fn what_a_stranger_put_among_the_stages_neither_stops_doctor_nor_goes() {
    let Some(place) = Place::new() else { return };
    // No process has this pid.
    let stage = |number: u32| PathBuf::from(format!("/dev/shm/gpushare-stage-4194999-{number}"));
    let other = PathBuf::from(format!("/dev/shm/mine-gpushare-stage-{}-0", 4_194_999));
    let _removed = [0, 1, 2].map(|number| Removed(stage(number)));
    let _other = Removed(other.clone());
    place.stranger(&format!(
        "mkdir -m 777 {0} && mkfifo -m 666 {0}/alive && mkfifo -m 666 {1} && ln -s /tmp {2}",
        stage(0).display(),
        stage(1).display(),
        stage(2).display()
    ));
    // Our own directory that is no stage: old, with a mark that no process locks.
    fs::create_dir(&other).expect("there is room");
    fs::write(other.join("alive"), "").expect("ours");
    let own = place.path("own");
    fs::create_dir(&own).expect("there is room");
    fs::set_permissions(&own, Permissions::from_mode(0o700)).expect("ours");
    place.install();
    let said = place.run(0, Some(&own), &["doctor", "--json"]);
    let findings = said.json()["findings"].clone();
    let probed = |finding: &Value| finding["check"] == "interposition" && finding["level"] == "ok";
    let all = findings.as_array().expect("a list");
    assert!(all.iter().any(probed), "{said:?}");
    for path in [&stage(0), &stage(1), &stage(2), &other] {
        assert!(fs::symlink_metadata(path).is_ok(), "{}", path.display());
    }
    assert!(other.join("alive").exists());
}

#[test]
fn what_root_records_and_exports_goes_to_nothing_that_a_stranger_put_there() {
    let Some(place) = Place::new() else { return };
    let own = place.path("own");
    place.run(0, Some(&own), &["group", "create", "g"]).done();
    let victim = place.path("victim");
    fs::write(&victim, "precious").expect("ours");
    let [link, pipe, device, file] =
        ["link", "pipe", "device", "file"].map(|name| place.path(name));
    place.stranger(&format!(
        "ln -s {} {}; mkfifo {}; ln -s /dev/full {}; echo theirs > {}",
        victim.display(),
        link.display(),
        pipe.display(),
        device.display(),
        file.display()
    ));
    let top = |words: &[&str], path: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpushare-top"));
        command.args(words).arg(path).env("GPUSHARE_DIR", &own);
        said(&mut command)
    };
    let record = ["-b", "-n", "1", "--no-nvml", "--no-ring", "--record"];
    for (path, why) in [
        (&link, "symbolic link"),
        (&pipe, "not a file"),
        (&device, "symbolic link"),
        (&file, "belongs to user"),
    ] {
        let said = top(&record, path);
        assert!(said.code == 4 && said.err.contains(why), "{said:?}");
    }
    assert_eq!(fs::read_to_string(&file).expect("theirs"), "theirs\n");
    let recording = place.path("recording");
    top(&record, &recording).done();
    let recording = recording.display().to_string();
    let film = ["--replay", &recording, "--screencast"];
    for path in [&link, &pipe, &device, &file] {
        top(&film, path).done();
        let meta = fs::symlink_metadata(path).expect("made");
        assert!(meta.is_file(), "root's own file is in its place: {meta:?}");
    }
    assert_eq!(fs::read(&victim).expect("there"), b"precious");
}

#[test]
fn a_token_that_a_stranger_chose_protects_nothing() {
    let Some(place) = Place::new() else { return };
    let [token, pipe] = ["token", "tokens"].map(|name| place.path(name));
    place.stranger(&format!(
        "umask 077; echo 0123456789abcdef > {}; mkfifo {}",
        token.display(),
        pipe.display()
    ));
    let serve = |path: &Path| {
        let path = path.display().to_string();
        let words = ["metrics", "--listen", "127.0.0.1:0", "--token-file", &path];
        place.run(0, None, &words)
    };
    serve(&token).refused(2, &["belongs to another user"]);
    chown(&pipe, Some(0), Some(0)).expect("root may");
    serve(&pipe).refused(2, &["it must hold one word"]);
}
