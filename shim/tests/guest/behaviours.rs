//! Unusual behaviour of managed processes, one program each.

use std::{path::Path, process::Output};

use gpushare_testbed::{Need, Watched, cc, eventually, needs};
use rustix::process::Signal;
use shm_layout::{Segments, clock, reap};

use super::stage::{PATIENCE, Stage};

/// Runs a program and returns its output and its stderr.
pub fn says(stage: &Stage, source: &str, words: &[&str]) -> (String, String) {
    let mut command = stage.program(source, "timeslice=5ms");
    told(source, Watched::spawn(command.args(words)))
}

/// Waits for a program's end and returns its output and its stderr.
pub fn told(name: &str, program: Watched) -> (String, String) {
    in_words(name, &program.wait_output())
}

/// Returns a program's output and its stderr.
pub fn in_words(name: &str, output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{name}: {} {said} {complained}",
        output.status
    );
    (said, complained)
}

/// Checks that the program prints this line and that stderr is empty. If a sandbox forbids the behaviour itself, the test says
/// so.
fn in_peace(source: &str, words: &[&str], says_this: &str) {
    let (said, complained) = says(&Stage::new(), source, words);
    assert_eq!(complained, "", "{source} {words:?}");
    if !needs(Need::Works(source, said != "not allowed")) {
        return;
    }
    assert_eq!(said, says_this, "{source} {words:?}");
}

#[test]
fn it_may_leave_for_a_directory_without_files() {
    let empty = tempfile::tempdir().expect("a temporary directory");
    let place = empty.path().to_str().expect("a plain path");
    in_peace("chroot_after_start.c", &[place], "answers 0");
}

#[test]
fn it_may_close_what_it_did_not_open_whenever_it_likes() {
    for when in ["before", "after", "both"] {
        in_peace("closes_everything.c", &[when], "answers 0");
    }
}

#[test]
fn it_starts_other_programs_in_every_way() {
    in_peace("spawns.c", &[], "answers 0");
}

#[test]
fn a_storm_of_signals_on_small_stacks_passes() {
    in_peace("signal_storm.c", &[], "answers 0");
}

#[test]
fn a_small_stack_is_enough_for_the_first_use() {
    in_peace("first_on_a_small_stack.c", &[], "answers 0");
}

#[test]
fn its_threads_may_be_cancelled_wherever_they_are() {
    in_peace("cancels_threads.c", &[], "answers 0 cancelled 50");
}

#[test]
fn a_thread_may_be_cancelled_inside_any_function_of_the_driver() {
    let rounds = 100;
    let stage = Stage::with_driver(&["-DCANCELS", "-finstrument-functions"]);
    let mut command = stage.program("cancel_chaos.c", "timeslice=5ms");
    command.env("GPUSHARE_MEMORY", "8GiB");
    let said = told("cancelled", Watched::spawn(command.arg(rounds.to_string())));
    let all = format!("answers 0 cancelled {}", 4 * rounds);
    assert_eq!(said, (all, String::new()));
}

#[test]
fn it_may_drop_its_rights() {
    in_peace("drops_rights.c", &[], "answers 0");
}

#[test]
fn a_debugger_may_stop_it_at_every_signal_and_thread() {
    in_peace("under_a_debugger.c", &[], "answers 0 threads seen");
}

#[test]
fn it_may_live_in_namespaces_of_its_own() {
    in_peace("in_namespaces.c", &[], "answers 0");
}

#[test]
fn it_may_fork_without_exec_while_its_threads_launch() {
    let stage = Stage::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/forking.py");
    let mut command = stage.started_by("python3", "timeslice=5ms");
    let said = told("forking.py", Watched::spawn(command.arg(script)));
    assert_eq!(said, ("answers 0".to_owned(), String::new()));
}

#[test]
fn a_child_that_another_thread_forks_during_the_start_does_not_keep_the_slot() {
    let stage = Stage::new();
    let mut program = Watched::spawn(&mut stage.program("forks_at_start.c", ""));
    assert_eq!(program.line(), "answers 0 forked");
    assert_eq!(stage.snapshot().processes.len(), 1);
    program.signal(Signal::KILL);
    eventually("its slot is free while its child lives", PATIENCE, || {
        let segments = Segments::open_workload(&stage.segments()).expect("our own segments");
        reap(&segments, clock::now());
        stage.snapshot().processes.is_empty()
    });
}

#[test]
fn a_constructor_may_be_the_first_to_use_the_driver() {
    let stage = Stage::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/constructor.c");
    let library = cc(&source, "constructor.so", &["-shared", "-fPIC", "-w"]);
    let ours = gpushare_testbed::artifact("libgpushare.so");
    for order in [[&library, &ours], [&ours, &library]] {
        let order = order.map(|path| path.display().to_string()).join(":");
        let mut command = stage.started_by("true", "timeslice=5ms");
        let said = told(&order, Watched::spawn(command.env("LD_PRELOAD", &order)));
        assert_eq!(
            said,
            ("early 0\nlate 0".to_owned(), String::new()),
            "{order}"
        );
    }
}

#[test]
fn it_needs_no_home_and_no_environment() {
    let stage = Stage::new();
    let mut command = stage.program("peace.c", "");
    let keep = ["LD_PRELOAD", "LD_LIBRARY_PATH", "GPUSHARE_DIR"];
    let kept: Vec<_> = command
        .get_envs()
        .filter(|(name, _)| keep.iter().any(|kept| name == kept))
        .map(|(name, value)| (name.to_owned(), value.unwrap_or_default().to_owned()))
        .collect();
    command.env_clear().envs(kept).arg("plain");
    let said = told("plain", Watched::spawn(&mut command));
    assert_eq!(said, ("answers 0".to_owned(), String::new()));
}
