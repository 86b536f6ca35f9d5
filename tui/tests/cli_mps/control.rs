//! The verbs of `gpushare mps`, and their behaviour with a control program that fails, hangs or is missing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli_support::Run as _;
use crate::support::{Mps, finding, library};

#[test]
fn a_daemon_that_sees_some_devices_says_how_its_programs_count() {
    for (list, is_said) in [("0", false), ("0,1", false), ("GPU-1", false), ("1", true)] {
        let mps = Mps::new();
        let mut start = mps.command(&["mps", "start"]);
        let said = start.env("CUDA_VISIBLE_DEVICES", list).said().done();
        assert_eq!(said.out.contains("count from 0"), is_said, "{said:?}");
    }
}

#[test]
fn a_start_makes_directories_for_the_user_alone_and_a_second_one_finds_it_running() {
    let mps = Mps::new();
    let mut start = mps.command(&["mps", "start"]);
    let first = start.env("LD_PRELOAD", library()).said().done();
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
        command.env("PATH", "/nonexistent").said()
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
    let shown = mps.gpushare(&["mps", "status", "--json"]);
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
    let client = json!({"pid": us, "name": "train", "managed": true, "submission_ns": null});
    let servers = json!([
        {"pid": 4000, "status": null, "clients": [client]},
        {"pid": 4001, "status": null, "clients": []},
    ]);
    assert_eq!(on["servers"], servers);
}

#[test]
fn what_a_killed_daemon_left_is_not_taken_for_a_daemon() {
    let mps = Mps::new();
    fs::create_dir_all(mps.pipe()).expect("ours");
    fs::create_dir_all(mps.world.dir().join("mps/log")).expect("ours");
    // No process has the first pid; the second now belongs to another program.
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
fn the_doctor_says_whether_mps_runs_and_what_works_on_top_of_it() {
    let mps = Mps::new();
    let look = |set: &[(&str, &str)]| {
        let mut command = mps.command(&["doctor", "--json"]);
        let found = finding(&command.envs(set.iter().copied()).said().json());
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
