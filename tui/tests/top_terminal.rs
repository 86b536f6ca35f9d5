//! Whatever ends the dashboard, the terminal is as it was: on a real pseudo-terminal, with the real program.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gpushare_testbed::eventually;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

const LIMIT: Duration = Duration::from_secs(60);
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// A terminal with the dashboard running in it.
struct Session {
    child: Child,
    /// Our end: what we write is typed, what is drawn we read.
    ours: File,
    theirs: OwnedFd,
    seen: Arc<Mutex<String>>,
    modes: LocalModes,
    _dir: tempfile::TempDir,
}

impl Session {
    fn start(environment: &[(&str, &str)]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = open(
            name.as_c_str(),
            OFlags::RDWR | OFlags::NOCTTY,
            Mode::empty(),
        )
        .unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&theirs, size).unwrap();
        let modes = tcgetattr(&theirs).unwrap().local_modes;
        let dir = tempfile::tempdir().unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_gpushare-top"))
            .arg("--no-nvml")
            .env("GPUSHARE_DIR", dir.path())
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .envs(environment.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let session = Self {
            child,
            ours: File::from(ours),
            theirs,
            seen: Arc::default(),
            modes,
            _dir: dir,
        };
        session.listen();
        session
    }

    /// Collects what is drawn, so that the dashboard never has to wait for a reader.
    fn listen(&self) {
        let mut ours = self.ours.try_clone().unwrap();
        let seen = Arc::clone(&self.seen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = ours.read(&mut bytes) {
                seen.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
    }

    fn saw(&self, text: &str) -> bool {
        self.seen.lock().unwrap().contains(text)
    }

    fn count(&self, text: &str) -> usize {
        self.seen.lock().unwrap().matches(text).count()
    }

    fn wait_for_a_frame(&self) {
        eventually("the dashboard draws", LIMIT, || {
            self.saw("No process uses a GPU")
        });
        assert!(!self.is_as_before(), "it runs in raw mode");
    }

    fn is_as_before(&self) -> bool {
        tcgetattr(&self.theirs).unwrap().local_modes == self.modes
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        rest.chars().next().unwrap()
    }

    /// Waits for the end and for the terminal to be as it was.
    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the dashboard ends", LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        eventually("the screen is given back", LIMIT, || {
            self.count(LEAVE) == self.count(ENTER)
        });
        assert!(self.saw(SHOW_CURSOR), "the cursor is shown");
        assert!(self.is_as_before(), "the modes are as they were");
        status.unwrap()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Already ended, unless an assertion failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn q_gives_the_terminal_back() {
    let mut session = Session::start(&[]);
    session.wait_for_a_frame();
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn sigterm_and_sighup_give_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut session = Session::start(&[]);
        session.wait_for_a_frame();
        session.send(signal);
        assert_eq!(session.end().code(), Some(code));
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_panic_gives_the_terminal_back_before_it_is_reported() {
    let mut session = Session::start(&[("GPUSHARE_TOP_PANIC", "1"), ("RUST_BACKTRACE", "0")]);
    assert_eq!(session.end().code(), Some(101));
    let seen = session.seen.lock().unwrap();
    let left = seen.find(LEAVE).expect("it left the screen");
    let told = seen.find("panicked at").expect("it told why");
    assert!(left < told, "the report would be lost on the other screen");
}

#[test]
fn a_stopped_dashboard_lends_the_terminal_to_the_shell_and_comes_back() {
    let mut session = Session::start(&[]);
    session.wait_for_a_frame();
    session.send(Signal::TSTP);
    eventually("it stops", LIMIT, || session.state() == 'T');
    assert!(session.is_as_before(), "the shell has its modes");
    assert_eq!(session.count(LEAVE), 1);
    session.send(Signal::CONT);
    eventually("it takes the screen again", LIMIT, || {
        session.count(ENTER) >= 2
    });
    eventually("in raw mode", LIMIT, || !session.is_as_before());
    session.press("q");
    let mut status = None;
    eventually("the dashboard ends", LIMIT, || {
        status = session.child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
    assert!(session.is_as_before());
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
