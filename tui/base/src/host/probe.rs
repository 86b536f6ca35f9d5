//! The probe is a small program that uses the driver on command. It finds out if there is a GPU and if it is under
//! gpushare.
//!
//! The driver is loaded in a child process with a time limit, so that a driver that hangs does not hang the tool.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::host::artifacts;
use crate::host::processes::Children;
use shm_layout::text::PathText as _;

/// Maximum time for one answer of the driver; a real one takes seconds to start.
const LIMIT: Duration = Duration::from_secs(30);

/// The running child. Dropping it ends it.
pub struct Probe {
    stdin: ChildStdin,
    lines: Receiver<String>,
    pid: u32,
    _child: Children,
}

/// Reason for a failure, as a sentence.
pub type Why = String;

impl Probe {
    /// Starts the probe; `prepare` extends its environment.
    pub fn start(prepare: impl FnOnce(&mut Command)) -> Result<Self, Why> {
        let program = artifacts::find("gpushare-workload").map_err(|failure| failure.sentence)?;
        let mut command = Command::new(program);
        command.arg("--script");
        prepare(&mut command);
        Self::of(command)
    }

    /// Starts the probe from a command of the workload program with `--script`.
    pub fn of(mut command: Command) -> Result<Self, Why> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| {
            format!(
                "{} cannot be started: {error}",
                Path::new(command.get_program()).shown()
            )
        })?;
        Self::greet(child)
    }

    fn greet(mut child: Child) -> Result<Self, Why> {
        let pid = child.id();
        let (Some(stdin), Some(stdout), Some(mut stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("the probe has no pipes".into());
        };
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut children = Children::default();
        children.adopt(child);
        let probe = Self {
            stdin,
            lines,
            pid,
            _child: children,
        };
        match probe.lines.recv_timeout(LIMIT) {
            Ok(line) if line.starts_with("ready") => Ok(probe),
            Ok(line) => Err(format!("the probe answered {line:?}")),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Err(format!(
                "the driver did not answer in {} s",
                LIMIT.as_secs()
            )),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                drop(probe);
                let mut words = String::new();
                // The child has ended, so its output has an end.
                let _ = stderr.read_to_string(&mut words);
                let last = words.lines().rev().find(|line| !line.trim().is_empty());
                let last = last.unwrap_or("the probe ended without an answer");
                Err(last.trim_start_matches("gpushare-workload: ").to_owned())
            }
        }
    }

    /// Returns the pid of the probe.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends one command and returns the answer.
    pub fn ask(&mut self, command: &str) -> Result<String, Why> {
        writeln!(self.stdin, "{command}").map_err(|error| format!("the probe ended: {error}"))?;
        self.lines
            .recv_timeout(LIMIT)
            .map_err(|_| format!("the probe gave no answer to {command:?}"))
    }
}

/// Returns true if there is a driver with a device and the environment does not name a simulated one.
pub fn real_gpu() -> bool {
    !artifacts::is_simulation_asked() && Probe::start(|_| {}).is_ok()
}
