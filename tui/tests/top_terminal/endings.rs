//! However it ends, the terminal is as it was.

use std::process::{Command, Stdio};

use gpushare_testbed::eventually;
use rustix::process::Signal;

use crate::session::{ENTER, LEAVE, LIMIT, Session};
use gpushare_tui::top::terminal::Screen;

/// A dashboard that has drawn its first frame.
fn drawn(dir: &tempfile::TempDir) -> Session {
    let session = Session::start(dir.path(), &[], &[]);
    session.wait_for("No process uses a GPU");
    assert!(!session.is_as_before(), "it runs in raw mode");
    session
}

#[test]
fn q_gives_the_terminal_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = drawn(&dir);
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn sigterm_and_sighup_give_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let dir = tempfile::tempdir().unwrap();
        let mut session = drawn(&dir);
        session.send(signal);
        assert_eq!(session.end().code(), Some(code));
    }
}

#[test]
fn tied_to_who_started_it_it_ends_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    // Of a thread the kernel says the same as of a process that was killed.
    let starter = std::thread::spawn(move || {
        let session = Session::start(&path, &["--tied"], &[]);
        session.wait_for("No process uses a GPU");
        session
    });
    let mut session = starter.join().unwrap();
    assert_eq!(session.end().code(), Some(143));
}

/// In the environment of a child: draw one frame and panic.
const PANIC: &str = "GPUSHARE_TEST_PANIC";

#[test]
fn a_panic_gives_the_terminal_back_before_it_is_reported() {
    if std::env::var_os(PANIC).is_some() {
        let mut screen = Screen::take().unwrap();
        screen.draw(|_| {}).unwrap();
        panic!("asked for by the test");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut this_test = Command::new(std::env::current_exe().unwrap());
    this_test
        .args([
            "--exact",
            "--nocapture",
            "endings::a_panic_gives_the_terminal_back_before_it_is_reported",
        ])
        .envs([(PANIC, "1"), ("RUST_BACKTRACE", "0")]);
    let mut session = Session::of(this_test, dir.path());
    assert_eq!(session.end().code(), Some(101));
    session.wait_for("panicked at");
    let seen = session.seen();
    assert!(
        seen.find(LEAVE) < seen.find("panicked at"),
        "the report would be lost on the other screen"
    );
}

#[test]
fn a_stopped_dashboard_lends_the_terminal_to_the_shell_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = drawn(&dir);
    session.send(Signal::TSTP);
    eventually("it stops", LIMIT, || session.state() == 'T');
    assert!(session.is_as_before(), "the shell has its modes");
    session.wait_for(LEAVE);
    session.send(Signal::CONT);
    eventually("it takes the screen again", LIMIT, || {
        session.count(ENTER) >= 2
    });
    eventually("in raw mode", LIMIT, || !session.is_as_before());
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let output = Command::new(env!("CARGO_BIN_EXE_gpushare-top"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("--once"), "{told}");
}
