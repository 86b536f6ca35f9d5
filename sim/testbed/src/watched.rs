//! A child process with a time limit, which ends with its test at the latest.
//!
//! The child leads its own process group. The group is killed when the limit has passed, when the test waits for the child, and
//! when the [`Watched`] is dropped. The child is reaped only after that, so its pid cannot have been reused.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

const LIMIT: Duration = Duration::from_secs(300);

/// A running program with a time limit, whose output can be read line by line.
pub struct Watched {
    name: String,
    child: Child,
    group: Pid,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The lines that [`Watched::line`] has returned, for the complete output at the end.
    taken: String,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    watchdog: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watched {
    /// Starts the command with a limit of five minutes.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        Self::spawn_for(command, LIMIT)
    }

    /// Starts the command with this limit.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn spawn_for(command: &mut Command, limit: Duration) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} could not be started: {error}"));
        let group = Pid::from_child(&child);
        let (send_line, lines) = channel();
        let stdout = child.stdout.take().expect("piped above");
        let errors = child.stderr.take().expect("piped above");
        let stderr = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&stderr);
        let readers = vec![
            std::thread::spawn(move || forward(stdout, &send_line)),
            std::thread::spawn(move || collect(errors, &sink)),
        ];
        let (stand_down, told) = channel();
        let said = Arc::clone(&stderr);
        let watchdog = std::thread::spawn(move || {
            if told.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                said.push_str(&format!(
                    "[killed after {limit:?}, the limit of this test]\n"
                ));
                drop(said);
                kill_group(group);
            }
        });
        Self {
            name,
            stdin: child.stdin.take(),
            child,
            group,
            lines,
            taken: String::new(),
            stderr,
            readers,
            watchdog: Some((stand_down, watchdog)),
        }
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line of its output, without the newline.
    ///
    /// # Panics
    ///
    /// When it ended or wrote nothing for five minutes; its stderr is in the message.
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => self.take(line),
            Err(why) => panic!(
                "{} gave no line ({why}); stderr: {}",
                self.name,
                self.stderr()
            ),
        }
    }

    /// Returns the next line if there is one within `limit`.
    pub fn line_within(&mut self, limit: Duration) -> Option<String> {
        let line = self.lines.recv_timeout(limit).ok()?;
        Some(self.take(line))
    }

    /// Writes one line to its input.
    ///
    /// # Panics
    ///
    /// When it no longer reads.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its input is still open");
        if let Err(error) = writeln!(stdin, "{line}").and_then(|()| stdin.flush()) {
            panic!(
                "{} took no input ({error}); stderr: {}",
                self.name,
                self.stderr()
            );
        }
    }

    /// Writes one line and returns the line that answers it.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line()
    }

    /// Closes its input, which ends a program that reads commands.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Returns what it has written to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sends a signal to the child itself, not to its group.
    pub fn signal(&self, signal: Signal) {
        // The child is reaped only when `self` is dropped, so the pid is still its own.
        let _ = rustix::process::kill_process(self.group, signal);
    }

    /// Stops the child and waits until none of its threads runs: right after the signal some still may.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = rustix::process::waitid(WaitId::Pid(self.group), options);
    }

    /// Returns true if the child has ended by itself.
    pub fn ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        matches!(
            rustix::process::waitid(WaitId::Pid(self.group), options),
            Ok(Some(_))
        )
    }

    /// Closes its input, waits for its end, and returns all its output.
    ///
    /// A child that reached its limit appears as killed by SIGKILL.
    pub fn wait_output(mut self) -> Output {
        self.close_input();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = rustix::process::waitid(WaitId::Pid(self.group), options);
        let status = self.finish();
        let mut stdout = std::mem::take(&mut self.taken);
        for line in self.lines.try_iter() {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        Output {
            status,
            stdout: stdout.into_bytes(),
            stderr: self.stderr().into_bytes(),
        }
    }

    /// Waits for its end and returns its output and its stderr.
    ///
    /// # Panics
    ///
    /// The time of the failure.
    pub fn succeed(self) -> (String, String) {
        let name = self.name.clone();
        let output = self.wait_output();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the readers take text");
        let (printed, said) = (text(output.stdout), text(output.stderr));
        assert!(
            output.status.success(),
            "{name}: {}: {printed}\n{said}",
            output.status
        );
        (printed, said)
    }

    fn take(&mut self, line: String) -> String {
        self.taken.push_str(&line);
        self.taken.push('\n');
        line
    }

    /// Kills the rest of the group, then reaps the child. A second call does nothing.
    fn finish(&mut self) -> ExitStatus {
        let Some((stand_down, watchdog)) = self.watchdog.take() else {
            return ExitStatus::from_raw(0);
        };
        kill_group(self.group);
        let _ = stand_down.send(());
        let _ = watchdog.join();
        let status = self.child.wait().expect("our own child, not yet reaped");
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        status
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.finish();
    }
}

fn kill_group(group: Pid) {
    // The leader stays a zombie until it is reaped, so the group's number is still valid.
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
}

fn forward(stdout: impl Read, lines: &Sender<String>) {
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        if lines
            .send(String::from_utf8_lossy(&line).into_owned())
            .is_err()
        {
            return;
        }
    }
}

fn collect(stderr: impl Read, sink: &Mutex<String>) {
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        sink.push_str(&String::from_utf8_lossy(&line));
        sink.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_are_read_one_by_one_and_the_output_is_whole() {
        let mut cat = Watched::spawn(&mut shell("echo first; cat; echo last; echo oops >&2"));
        assert_eq!(cat.line(), "first");
        assert_eq!(cat.ask("hello"), "hello");
        let output = cat.wait_output();
        assert!(output.status.success());
        assert_eq!(output.stdout, b"first\nhello\nlast\n");
        assert_eq!(output.stderr, b"oops\n");
    }

    #[test]
    fn a_program_that_hangs_is_ended_at_its_limit() {
        let hung = Watched::spawn_for(&mut shell("exec sleep 1000"), Duration::from_millis(50));
        let output = hung.wait_output();
        assert_eq!(output.status.signal(), Some(9));
        assert_eq!(
            output.stderr,
            b"[killed after 50ms, the limit of this test]\n"
        );
    }

    #[test]
    fn grandchildren_end_with_the_test() {
        let mut parent = Watched::spawn(&mut shell("sleep 1000 & echo $!; wait"));
        let grandchild = parent.line();
        drop(parent);
        crate::eventually("the grandchild is gone", LIMIT, || {
            match std::fs::read(format!("/proc/{grandchild}/stat")) {
                Ok(stat) => stat.windows(3).any(|part| part == b") Z"),
                Err(_) => true,
            }
        });
    }
}
