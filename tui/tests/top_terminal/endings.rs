//! The end of the dashboard: in every case the terminal is as it was.

use std::process::{Command, Stdio};

use gpushare_testbed::eventually;
use rustix::process::Signal;

use crate::session::{ENTER, LEAVE, LIMIT, Session};
use gpushare_top::terminal::Screen;

/// Starts a dashboard and waits for its first frame.
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
fn every_signal_that_ends_it_gives_the_terminal_back() {
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
        (Signal::USR2, 140),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut session = drawn(&dir);
        session.send(signal);
        assert_eq!(session.end().code(), Some(code));
    }
}

fn dashboard() -> Command {
    let mut dashboard = Command::new(env!("CARGO_BIN_EXE_gpushare-top"));
    dashboard.args(["--no-nvml", "-d", "0.05"]);
    dashboard
}

#[test]
fn a_terminal_that_does_not_read_does_not_keep_it_from_ending() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = Session::deaf(dashboard(), dir.path());
    eventually("it has the terminal", LIMIT, || !session.is_as_before());
    // Whole screens, until the terminal's buffer is full.
    for _ in 0..40 {
        session.press("\x0c");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    session.send(Signal::TERM);
    assert_eq!(session.gone().code(), Some(143));
    assert!(session.is_as_before(), "the modes are as they were");
}

#[test]
fn a_terminal_that_has_gone_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = Session::deaf(dashboard(), dir.path());
    eventually("it has the terminal", LIMIT, || !session.is_as_before());
    session.hang_up();
    assert_eq!(session.gone().code(), Some(129), "as after a hang-up");
}

#[test]
fn a_dumb_terminal_gets_lines() {
    let dir = tempfile::tempdir().unwrap();
    let mut dashboard = dashboard();
    dashboard.env("TERM", "dumb");
    let mut session = Session::of(dashboard, dir.path());
    eventually("it prints again and again", LIMIT, || {
        session.count("gpushare-top") > 2
    });
    session.send(Signal::TERM);
    assert!(
        session.gone().code().is_none(),
        "it has nothing to give back"
    );
    assert!(!session.seen().contains('\x1b'), "{}", session.seen());
}

#[test]
fn interrupt_quits_or_says_how() {
    let dir = tempfile::tempdir().unwrap();
    for overlay in ["?", "/", "a", "!", "/user=", "p"] {
        let mut session = drawn(&dir);
        session.press(overlay);
        session.press("\x03\x03");
        assert_eq!(session.end().code(), Some(0), "{overlay}");
    }
}

#[test]
fn tied_to_who_started_it_it_ends_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    // The kernel sends the same signal when the starting thread ends as when the starting process is killed.
    let starter = std::thread::spawn(move || {
        let session = Session::start(&path, &["--tied"], &[]);
        session.wait_for("No process uses a GPU");
        session
    });
    let mut session = starter.join().unwrap();
    assert_eq!(session.end().code(), Some(143));
}

/// The variable that makes a child draw one frame and panic.
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
