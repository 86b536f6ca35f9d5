//! A pseudo-terminal in which the dashboard runs.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gpushare_testbed::eventually;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Watchdog, long enough for the slowest machine.
pub const LIMIT: Duration = Duration::from_secs(60);
/// The sequences that switch a terminal to its alternate screen and back.
pub const ENTER: &str = "\x1b[?1049h";
pub const LEAVE: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

pub struct Session {
    child: Child,
    /// Our end: writing types keys, reading returns the drawn output.
    ours: File,
    theirs: OwnedFd,
    seen: Arc<Mutex<String>>,
    modes: LocalModes,
}

impl Session {
    /// Starts the dashboard for the segments in `dir`.
    pub fn start(dir: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut dashboard = Command::new(env!("CARGO_BIN_EXE_gpushare-top"));
        dashboard
            .arg("--no-nvml")
            .args(arguments)
            .envs(environment.iter().copied());
        Self::of(dashboard, dir)
    }

    /// Starts a program in a new terminal, for the segments in `dir`.
    pub fn of(program: Command, dir: &Path) -> Self {
        let session = Self::deaf(program, dir);
        session.listen();
        session
    }

    /// Starts a program in a terminal that does not read its output.
    pub fn deaf(mut program: Command, dir: &Path) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let theirs = open(name.as_c_str(), flags, Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: 40,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&theirs, size).unwrap();
        let modes = tcgetattr(&theirs).unwrap().local_modes;
        let end = || Stdio::from(theirs.try_clone().unwrap());
        if !program.get_envs().any(|(name, _)| name == "TERM") {
            program.env("TERM", "xterm-256color");
        }
        let child = program
            .env_remove("NO_COLOR")
            .env("GPUSHARE_DIR", dir)
            .env("XDG_STATE_HOME", dir.join("past"))
            .env("LC_ALL", "C.UTF-8")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self {
            child,
            ours: File::from(ours),
            theirs,
            seen: Arc::default(),
            modes,
        }
    }

    /// Collects the output, so that the dashboard never waits for a reader.
    fn listen(&self) {
        let mut ours = self.ours.try_clone().unwrap();
        let seen = Arc::clone(&self.seen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = ours.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                seen.lock().unwrap().push_str(&text);
            }
        });
    }

    pub fn seen(&self) -> String {
        self.seen.lock().unwrap().clone()
    }

    pub fn count(&self, text: &str) -> usize {
        self.seen.lock().unwrap().matches(text).count()
    }

    pub fn wait_for(&self, text: &str) {
        eventually(&format!("\"{text}\" is drawn"), LIMIT, || {
            self.count(text) > 0
        });
    }

    /// Returns true if the terminal's modes are as they were before the dashboard started.
    pub fn is_as_before(&self) -> bool {
        tcgetattr(&self.theirs).unwrap().local_modes == self.modes
    }

    /// Closes our end of the terminal, so that no process reads it.
    pub fn hang_up(&mut self) {
        self.ours = File::open("/dev/null").unwrap();
    }

    pub fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Resizes the terminal as a window manager does.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.theirs, size).unwrap();
        // The terminal is not its controlling terminal, so the kernel does not send the signal.
        self.send(Signal::WINCH);
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the kernel's letter for the process's state; `T` is stopped.
    pub fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        rest.chars().next().unwrap()
    }

    /// Waits for the end of the program, whatever the state of the terminal.
    pub fn gone(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the dashboard ends", LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Waits for the end of the program and checks that the terminal is as it was.
    pub fn end(&mut self) -> ExitStatus {
        let status = self.gone();
        eventually("the screen is given back", LIMIT, || {
            let seen = self.seen();
            seen.rfind(LEAVE) > seen.rfind(ENTER)
        });
        assert!(self.count(SHOW_CURSOR) > 0, "the cursor is shown");
        assert!(self.is_as_before(), "the modes are as they were");
        status
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It has ended already, unless an assertion failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
