//! `gpushare doctor -- CMD`: reports whether the library reaches a program, without starting the program.

mod cli_support;

use std::fs;
use std::path::Path;

use cli_support::{Run as _, Said, World};
use gpushare_testbed::{Need, needs, own_run};
use serde_json::Value;

fn doctor(world: &World, program: &str) -> Said {
    world
        .command(&["doctor", "--json", "--", program, "--an-option"])
        .said()
}

fn finding(said: &Said, check: &str) -> Value {
    let findings = said.json()["findings"].as_array().expect("a list").clone();
    let wanted = |finding: &Value| finding["check"] == check;
    findings.into_iter().find(wanted).unwrap_or(Value::Null)
}

#[test]
fn a_program_within_reach_is_said_to_be_so_and_is_not_started() {
    let world = World::new();
    let mark = world.dir().join("started");
    let script = world.dir().join("script");
    let content = format!("#!/usr/bin/env sh\ntouch {}\n", mark.display());
    cli_support::executable(&script, &content, "755");
    let said = doctor(&world, &script.display().to_string());
    assert_eq!(finding(&said, "program")["level"], "ok", "{said:?}");
    assert!(!mark.exists());
}

#[test]
fn who_the_library_does_not_reach_is_told_why() {
    let world = World::new();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unreached.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("ours");
    let cc = |name: &str, flag: &str| {
        let program = gpushare_testbed::cc(&source, name, &[flag]);
        program.display().to_string()
    };
    let musl = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    for (program, level, words) in [
        (
            cc("unreached-static", "-static"),
            "warn",
            "statically linked",
        ),
        (cc("unreached-musl", musl), "warn", "musl C library"),
        ("/nonexistent/program".into(), "fail", "no such file"),
        ("no-such-program-here".into(), "fail", "not in PATH"),
    ] {
        let found = finding(&doctor(&world, &program), "program");
        assert_eq!(found["level"], level, "{found}");
        let text = found["found"].as_str().unwrap_or_default();
        assert!(text.contains(words), "{found}");
        assert!(found["fix"].is_string(), "{found}");
    }
}

#[test]
fn the_glibc_that_is_here_is_new_enough_for_the_library_that_was_built_here() {
    let world = World::new();
    let mut command = world.command(&["doctor", "--json"]);
    command.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
    let said = command.said();
    let glibc = finding(&said, "glibc");
    // Nothing is reported about a library that needs no version.
    assert!(glibc.is_null() || glibc["level"] == "ok", "{glibc}");
    assert!(finding(&said, "program").is_null(), "none was named");
}

#[test]
fn whether_the_kernels_log_names_the_process_of_an_error_is_told() {
    let log = finding(&doctor(&World::new(), "sh"), "kernel log");
    let level = match fs::File::open("/dev/kmsg") {
        Ok(_) => "ok",
        Err(_) => "warn",
    };
    assert_eq!(log["level"], level, "{log}");
    let text = log.to_string();
    assert!(
        text.contains(if level == "ok" {
            "readable; "
        } else {
            "dmesg_restrict"
        }),
        "{log}"
    );
}

#[test]
fn an_installation_without_the_workload_is_not_said_to_lack_a_driver() {
    let world = World::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alone");
    let own = folder.join(format!("gpushare-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("ours");
    fs::hard_link(env!("CARGO_BIN_EXE_gpushare"), &own).expect("one file system");
    let said = std::process::Command::new(&own)
        .args(["doctor", "--json"])
        .env("GPUSHARE_DIR", world.dir())
        .env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"))
        .said();
    fs::remove_file(&own).expect("ours");
    assert_eq!(finding(&said, "parts")["level"], "warn", "{said:?}");
    let driver = finding(&said, "driver");
    let found = driver["found"].as_str().unwrap_or_default();
    assert!(
        found.contains("gpushare-workload is not installed"),
        "{driver}"
    );
    assert!(finding(&said, "interposition").is_null(), "{said:?}");
}

#[test]
fn a_dead_broker_of_the_machine_is_no_failure_to_who_has_a_directory_of_their_own() {
    if !needs(Need::Root) || !needs(Need::Works("mount-namespace", own_run())) {
        return;
    }
    let place = Path::new("/run/gpushare");
    fs::create_dir(place).expect("nothing is there");
    // A socket that is bound and closed, as a killed broker leaves it.
    let socket = rustix::net::SocketAddrUnix::new(place.join("socket")).expect("short");
    let dead = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )
    .expect("a socket");
    rustix::net::bind(&dead, &socket).expect("nothing is there");
    drop(dead);
    let world = World::new();
    let examined = |command: &mut std::process::Command| {
        let said = command.said();
        finding(&said, "broker")
    };
    let own = examined(&mut world.command(&["doctor", "--json"]));
    assert_eq!(own["level"], "warn", "{own}");
    let found = own["found"].as_str().unwrap_or_default();
    assert!(found.contains("GPUSHARE_DIR is set"), "{own}");
    let mut command = world.command(&["doctor", "--json"]);
    let depends = examined(command.env_remove("GPUSHARE_DIR"));
    assert_eq!(depends["level"], "fail", "{depends}");
}

#[test]
fn the_room_is_that_of_the_directory_that_the_first_program_makes() {
    let world = World::new();
    let room = |dir: &Path| {
        let mut command = world.command(&["doctor", "--json"]);
        finding(&command.env("GPUSHARE_DIR", dir).said(), "room")
    };
    let above = world.dir().parent().expect("it is in a directory");
    let found = room(&world.dir().join("to-be-made"))["found"].to_string();
    assert!(found.contains(&above.display().to_string()), "{found}");
    let nowhere = room(Path::new("/nonexistent/gpushare"));
    assert_eq!(nowhere["level"], "fail", "{nowhere}");
}
