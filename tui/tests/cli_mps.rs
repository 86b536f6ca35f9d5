//! `gpushare mps` and the programs that join, over a control program of our own that is first in PATH. It keeps the
//! daemon's pid where NVIDIA's does and writes down what it is asked.

mod cli_support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use cli_support::{Said, World, executable};
use serde_json::{Value, json};

/// Beside it lie: `record`, what it was asked; `servers` and `clients-PID`, its answers; and what makes it misbehave,
/// `broken`, `hangs`, `ignores-quit`. The daemon ends when its pid file is gone.
const CONTROL: &str = r#"#!/bin/sh
here=$(dirname "$0")
pid=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid
[ "$1" = -d ] && asked=-d || read -r asked
echo "$asked pipe=$CUDA_MPS_PIPE_DIRECTORY log=$CUDA_MPS_LOG_DIRECTORY preload=$LD_PRELOAD" >> "$here/record"
[ -e "$here/hangs" ] && sleep 600
if [ "$asked" = -d ]; then
    [ -e "$here/broken" ] && { echo "the device is broken"; exit 1; }
    : > "$pid"
    (while [ -e "$pid" ]; do sleep 0.02; done) &
    echo $! > "$pid"
    exit 0
fi
grep -q nvidia-cuda "/proc/$(cat "$pid" 2>/dev/null)/comm" 2>/dev/null || { echo "Cannot find MPS control daemon process"; exit 1; }
case $asked in
get_server_list) cat "$here/servers" 2>/dev/null ;;
get_client_list*) cat "$here/clients-${asked#get_client_list }" 2>/dev/null ;;
quit) [ -e "$here/ignores-quit" ] || rm "$pid" ;;
"quit -t 0") rm "$pid" ;;
esac
exit 0
"#;

/// A world with the control program.
struct Mps {
    world: World,
    bin: tempfile::TempDir,
}

impl Mps {
    fn new() -> Self {
        let bin = tempfile::tempdir().expect("a temporary directory");
        executable(&bin.path().join("nvidia-cuda-mps-control"), CONTROL, "755");
        // Whoever sets the compute mode calls this.
        let smi = "#!/bin/sh\ntouch \"$(dirname \"$0\")/smi-was-called\"\n";
        executable(&bin.path().join("nvidia-smi"), smi, "755");
        let world = World::new();
        Self { world, bin }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut path = self.bin.path().as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").expect("a PATH"));
        let mut command = self.world.command(args);
        command.env("PATH", path).env("GPUSHARE_LIB", library());
        command
    }

    fn gpushare(&self, args: &[&str]) -> Said {
        said(&mut self.command(args))
    }

    /// Started.
    fn started() -> Self {
        let mps = Self::new();
        mps.gpushare(&["mps", "start"]).done();
        mps
    }

    fn pipe(&self) -> PathBuf {
        self.world.dir().join("mps/pipe")
    }

    fn pid_file(&self) -> PathBuf {
        self.pipe().join("nvidia-cuda-mps-control.pid")
    }

    fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.pid_file()).expect("it runs");
        text.trim().parse().expect("a pid")
    }

    /// Puts an answer or a fault beside the control program.
    fn puts(&self, name: &str, content: &str) {
        fs::write(self.bin.path().join(name), content).expect("ours");
    }

    fn takes(&self, name: &str) {
        fs::remove_file(self.bin.path().join(name)).expect("it was put");
    }

    /// What the control program was asked, a line each.
    fn record(&self) -> String {
        fs::read_to_string(self.bin.path().join("record")).unwrap_or_default()
    }

    fn asked(&self, command: &str) -> usize {
        let start = format!("{command} pipe=");
        let record = self.record();
        record
            .lines()
            .filter(|line| line.starts_with(&start))
            .count()
    }

    /// The variables of MPS that a program of `gpushare run` finds, with `-` for one that is not set.
    fn finds(&self, options: &[&str], set: &[(&str, &str)]) -> String {
        let mut command = self.command(&[&["run"], options, &SHOW].concat());
        command.envs(set.iter().copied());
        said(&mut command).done().out.trim().to_owned()
    }
}

const SHOW: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "echo ${CUDA_MPS_PIPE_DIRECTORY--} ${CUDA_MPS_CLIENT_PRIORITY--} ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE--}",
];

impl Drop for Mps {
    fn drop(&mut self) {
        // The daemon ends with it.
        let _ = fs::remove_file(self.pid_file());
    }
}

fn said(command: &mut Command) -> Said {
    command.output().expect("the program is built").into()
}

/// A library that loads everywhere and does nothing.
fn library() -> &'static Path {
    static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty-mps.c");
        fs::write(&source, "int gpushare_test_nothing;\n").expect("ours");
        gpushare_testbed::cc(&source, "libemptymps.so", &["-shared", "-fPIC"])
    });
    &LIBRARY
}

#[test]
fn a_start_makes_directories_for_the_user_alone_and_a_second_one_finds_it_running() {
    let mps = Mps::new();
    let mut start = mps.command(&["mps", "start"]);
    let first = said(start.env("LD_PRELOAD", library())).done();
    let pid = mps.pid();
    assert!(
        first.out.contains(&format!("control daemon {pid}")),
        "{first:?}"
    );
    let second = mps.gpushare(&["mps", "start"]).done();
    assert!(second.out.contains("already runs"), "{second:?}");
    assert_eq!(mps.asked("-d"), 1);
    assert_eq!(mps.pid(), pid);
    let log = mps.world.dir().join("mps/log");
    let line = format!(
        "-d pipe={} log={} preload=\n",
        mps.pipe().display(),
        log.display()
    );
    assert!(mps.record().starts_with(&line), "{}", mps.record());
    for dir in [&mps.world.dir().join("mps"), &mps.pipe(), &log] {
        let mode = fs::metadata(dir).expect("made").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{}", dir.display());
    }
    mps.gpushare(&["mps", "stop"]).done();
    assert!(!mps.bin.path().join("smi-was-called").exists());
}

#[test]
fn a_directory_that_others_may_enter_is_closed_to_them() {
    let mps = Mps::new();
    fs::create_dir_all(mps.pipe()).expect("ours");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(mps.pipe(), open).expect("ours");
    mps.gpushare(&["mps", "start"]).done();
    let mode = fs::metadata(mps.pipe())
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o700);
}

#[test]
fn without_the_control_program_a_start_says_what_to_install() {
    let mps = Mps::new();
    let bare = |verb: &str| {
        let mut command = mps.command(&["mps", verb]);
        said(command.env("PATH", "/nonexistent"))
    };
    bare("start").refused(
        1,
        &[
            "nvidia-cuda-mps-control is not in PATH",
            "nvidia-compute-utils",
        ],
    );
    assert!(bare("status").done().out.contains("does not run"));
    assert!(bare("stop").done().out.contains("does not run"));
}

#[test]
fn a_start_that_fails_says_why_and_where_the_log_is() {
    let mps = Mps::new();
    mps.puts("broken", "");
    mps.gpushare(&["mps", "start"])
        .refused(1, &["the device is broken", "mps/log/control.log"]);
}

#[test]
fn a_control_program_that_hangs_hangs_no_verb_and_no_program() {
    let mps = Mps::started();
    mps.puts("hangs", "");
    let begun = Instant::now();
    let silent = ["does not answer", "did not answer to get_server_list"];
    mps.gpushare(&["mps", "status"]).refused(1, &silent);
    mps.gpushare(&["mps", "start"]).refused(1, &silent);
    mps.gpushare(&["mps", "stop"])
        .refused(1, &["does not answer", "--force"]);
    let shown = said(&mut mps.command(&["mps", "status", "--json"]));
    assert_eq!(shown.code, 1);
    let shown = shown.json();
    assert_eq!(shown["running"], Value::Null);
    assert_eq!(shown["servers"], Value::Null);
    assert!(
        shown["problem"]
            .as_str()
            .is_some_and(|why| why.contains("did not answer")),
        "{shown}"
    );
    let run = mps.gpushare(&["run", "--", "echo", "started"]).done();
    assert_eq!(run.out, "started\n");
    assert!(run.err.contains("does not join MPS"), "{run:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(120),
        "each wait has an end"
    );
    mps.takes("hangs");
    mps.gpushare(&["mps", "stop"]).done();
}

#[test]
fn a_daemon_that_hangs_at_its_start_does_not_hang_the_start() {
    let mps = Mps::new();
    mps.puts("hangs", "");
    mps.gpushare(&["mps", "start"])
        .refused(1, &["did not answer to start"]);
}

#[test]
fn a_stop_names_the_programs_that_run_under_it_and_force_ends_it() {
    let mps = Mps::started();
    let _train = mps.world.actor("train");
    let us = std::process::id();
    mps.puts("servers", "4000\n");
    mps.puts("clients-4000", &format!("{us}\n"));
    mps.gpushare(&["mps", "stop"])
        .refused(1, &[&format!("{us} train"), "--force"]);
    assert_eq!(mps.asked("quit"), 0);
    mps.puts("clients-4000", "1\n");
    mps.gpushare(&["mps", "stop"])
        .refused(1, &["1 ", "(unmanaged)"]);
    let stopped = mps.gpushare(&["mps", "stop", "--force"]).done();
    assert!(stopped.out.contains("no longer runs"), "{stopped:?}");
    assert!(!mps.pid_file().exists());
    let again = mps.gpushare(&["mps", "stop"]).done();
    assert!(again.out.contains("does not run"), "{again:?}");
}

#[test]
fn a_daemon_that_ignores_quit_is_told_to_end_at_once() {
    let mps = Mps::started();
    mps.puts("ignores-quit", "");
    mps.gpushare(&["mps", "stop"]).done();
    assert_eq!((mps.asked("quit"), mps.asked("quit -t 0")), (1, 1));
    assert!(!mps.pid_file().exists());
}

#[test]
fn the_status_shows_daemon_servers_and_clients() {
    let mps = Mps::new();
    let off = mps.gpushare(&["mps", "status", "--json"]).done().json();
    assert_eq!(off["running"], false);
    for key in ["pid", "servers", "problem"] {
        assert_eq!(off[key], Value::Null, "{key}");
    }
    assert!(
        !mps.world.dir().join("mps").exists(),
        "asking makes nothing"
    );
    mps.gpushare(&["mps", "start"]).done();
    let idle = mps.gpushare(&["mps", "status"]).done().out;
    assert!(
        idle.contains(&format!("control daemon {}", mps.pid())) && idle.contains("no clients"),
        "{idle}"
    );
    let _train = mps.world.actor("train");
    let us = std::process::id();
    mps.puts("servers", "4000\n4001\n");
    mps.puts("clients-4000", &format!("{us}\n"));
    let text = mps.gpushare(&["mps", "status"]).done().out;
    assert!(
        text.contains(&format!("client {us} train of server 4000")),
        "{text}"
    );
    let on = mps.gpushare(&["mps", "status", "--json"]).done().json();
    assert_eq!(on["running"], true);
    assert_eq!(on["pid"], mps.pid());
    assert_eq!(on["pipe_directory"], mps.pipe().display().to_string());
    let client = json!({"pid": us, "name": "train", "managed": true});
    let servers = json!([{"pid": 4000, "clients": [client]}, {"pid": 4001, "clients": []}]);
    assert_eq!(on["servers"], servers);
}

#[test]
fn what_a_killed_daemon_left_is_not_taken_for_a_daemon() {
    let mps = Mps::new();
    fs::create_dir_all(mps.pipe()).expect("ours");
    fs::create_dir_all(mps.world.dir().join("mps/log")).expect("ours");
    // No process has the first pid; the second is another program's now.
    for pid in [4_194_305, 1] {
        fs::write(mps.pid_file(), format!("{pid}\n")).expect("ours");
        let status = mps.gpushare(&["mps", "status", "--json"]).done().json();
        assert_eq!(status["running"], false, "{status}");
        assert!(mps.finds(&[], &[]).starts_with("- "));
    }
    mps.gpushare(&["mps", "start"]).done();
    assert_eq!(mps.asked("-d"), 1);
}

#[test]
fn a_program_joins_and_its_priority_and_cap_become_those_of_mps() {
    let mps = Mps::new();
    assert_eq!(
        mps.finds(&["--priority=5", "--cap=30%"], &[]),
        "- - -",
        "it does not run"
    );
    mps.gpushare(&["mps", "start"]).done();
    let pipe = mps.pipe().display().to_string();
    for (options, priority, percentage) in [
        (&[][..], "1", "-"),
        (&["--priority=0"][..], "1", "-"),
        (&["--priority=-5"][..], "1", "-"),
        (&["--priority=1"][..], "0", "-"),
        (&["--priority=5", "--cap=30%"][..], "0", "30"),
        (&["--cap=100%"][..], "1", "-"),
    ] {
        let found = mps.finds(options, &[]);
        assert_eq!(
            found,
            format!("{pipe} {priority} {percentage}"),
            "{options:?}"
        );
    }
    let found = mps.finds(
        &[],
        &[("GPUSHARE_PRIORITY", "3"), ("CUDA_DEVICE_SM_LIMIT", "40")],
    );
    assert_eq!(
        found,
        format!("{pipe} 0 40"),
        "what is inherited counts as what is typed"
    );
    assert_eq!(mps.finds(&["--no-mps", "--priority=5"], &[]), "- - -");
    mps.gpushare(&["mps", "stop"]).done();
    assert_eq!(
        mps.finds(&["--priority=5"], &[]),
        "- - -",
        "it no longer runs"
    );
}

#[test]
fn what_the_user_set_for_mps_stays() {
    let mps = Mps::started();
    let pipe = mps.pipe().display().to_string();
    let options = ["--priority=5", "--cap=30%"];
    let own = [
        ("CUDA_MPS_CLIENT_PRIORITY", "1"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "70"),
    ];
    assert_eq!(mps.finds(&options, &own), format!("{pipe} 1 70"));
    let other = [("CUDA_MPS_PIPE_DIRECTORY", "/tmp/other")];
    assert_eq!(mps.finds(&options, &other), "/tmp/other - -");
    assert_eq!(mps.finds(&["--no-mps"], &other), "/tmp/other - -");
}

#[test]
fn a_program_inside_another_run_is_joined_by_its_own_options() {
    let mps = Mps::started();
    let pipe = mps.pipe().display().to_string();
    let gpushare = env!("CARGO_BIN_EXE_gpushare");
    let inside = |outer: &[&str], inner: &[&str]| {
        let inner = [&["--", gpushare, "run"], inner].concat();
        mps.finds(&[outer, &inner].concat(), &[])
    };
    assert_eq!(
        inside(&["--cap=30%"], &["--priority=5"]),
        format!("{pipe} 0 30")
    );
    assert_eq!(
        inside(&["--priority=5"], &["--cap=20%"]),
        format!("{pipe} 0 20")
    );
    assert_eq!(inside(&["--cap=30%"], &["--no-mps"]), "- - -");
}

#[test]
fn a_link_or_a_directory_of_another_user_is_refused_and_stays_as_it_is() {
    let mps = Mps::new();
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let planted = mps.world.dir().join("mps");
    let refused = |words: &[&str]| {
        for verb in ["start", "stop", "status"] {
            mps.gpushare(&["mps", verb]).refused(4, words);
        }
        let run = mps.gpushare(&["run", "--", "echo", "started"]).done();
        assert_eq!(run.out, "started\n");
        assert!(run.err.contains("does not join MPS"), "{run:?}");
        let doctor = mps.gpushare(&["doctor", "--json"]).json();
        assert_eq!(finding(&doctor)["level"], "fail", "{doctor}");
        assert_eq!(mps.asked("-d"), 0);
    };
    symlink(elsewhere.path(), &planted).expect("ours");
    refused(&["symbolic link"]);
    let written = fs::read_dir(elsewhere.path()).expect("ours").count();
    assert_eq!(written, 0, "nothing goes through the link");
    fs::remove_file(&planted).expect("ours");
    fs::create_dir(&planted).expect("ours");
    symlink(elsewhere.path(), planted.join("pipe")).expect("ours");
    refused(&["symbolic link"]);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give a directory away");
        return;
    }
    fs::remove_file(planted.join("pipe")).expect("ours");
    chown(&planted, Some(61_235), Some(61_235)).expect("given");
    refused(&["belongs to user", "61235"]);
}

#[test]
fn a_directory_whose_path_is_too_long_for_a_socket_is_refused_with_both_lengths() {
    let mps = Mps::new();
    let long = mps.world.dir().join("l".repeat(90));
    fs::create_dir(&long).expect("ours");
    let length = long.join("mps/pipe/control_privileged").as_os_str().len();
    let mut start = mps.command(&["mps", "start"]);
    let said = said(start.env("GPUSHARE_DIR", &long));
    said.refused(
        1,
        &[&format!("{length} bytes"), "at most 107", "GPUSHARE_DIR"],
    );
    assert!(!long.join("mps").exists());
}

fn finding(doctor: &Value) -> Value {
    let findings = doctor["findings"].as_array().expect("a list");
    let found = findings.iter().find(|finding| finding["check"] == "mps");
    found.cloned().unwrap_or(Value::Null)
}

#[test]
fn the_doctor_says_whether_mps_runs_and_what_works_on_top_of_it() {
    let mps = Mps::new();
    let look = |set: &[(&str, &str)]| {
        let mut command = mps.command(&["doctor", "--json"]);
        let found = finding(&said(command.envs(set.iter().copied())).json());
        let text = found["found"].as_str().expect("a sentence").to_owned();
        (found["level"].as_str().expect("a level").to_owned(), text)
    };
    let (level, text) = look(&[]);
    assert!(
        level == "ok" && text.contains("gpushare mps start"),
        "{text}"
    );
    let (level, text) = look(&[("PATH", "/nonexistent")]);
    assert!(level == "ok" && text.contains("is not in PATH"), "{text}");
    mps.gpushare(&["mps", "start"]).done();
    let (level, text) = look(&[]);
    assert!(
        level == "ok" && text.contains("quota, overlap and pause"),
        "{text}"
    );
    let (level, text) = look(&[("CUDA_MPS_PIPE_DIRECTORY", "/tmp/other")]);
    assert!(level == "warn" && text.contains("/tmp/other"), "{text}");
    mps.puts("hangs", "");
    let (level, text) = look(&[]);
    assert!(
        level == "warn" && text.contains("does not answer"),
        "{text}"
    );
}
