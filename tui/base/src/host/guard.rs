//! A guard runs a program that a user named, and ends it with all its children when this process ends.
//!
//! The guard is a process of our own executable between this process and the program. It adopts the processes that the
//! program leaves behind. Its standard input is a pipe that closes when this process ends, even by SIGKILL. When that pipe
//! closes or the program ends, the guard ends all processes that are left. It does not reap the program, so the program's
//! pid is not reused before the guard has ended. A byte in the pipe stops them all, or lets them go on.
//!
//! ```text
//! gpushare ──pipe──▶ guard ──▶ program ──▶ …
//!     ◀──────stdout, stderr──────┘
//! ```

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, kill_process, kill_process_group,
    set_child_subreaper, waitid,
};

use super::wait;
use crate::host::procfs;
use crate::host::programs::OWN;
use crate::text::plain::Plain;

/// The first argument that makes our executable a guard; the program and its arguments follow. It is not a documented
/// option, because only this module uses it.
const WORD: &str = "--guard";
/// The bytes in the pipe.
const STOP: u8 = b's';
const GO_ON: u8 = b'g';
/// Maximum time for a program to end after SIGTERM, before it is killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Additional time for the guard itself.
const MARGIN: Duration = Duration::from_secs(8);
/// Maximum number of bytes that are kept from the end of a program's output.
const KEPT: usize = 1 << 20;

/// A program behind its guard. Dropping it ends the program and its children.
#[derive(Debug)]
pub struct Guarded {
    guard: Child,
    /// Pipe that is open while the program may run.
    pipe: Option<ChildStdin>,
    /// Standard output of the program.
    pub said: Tail,
    /// Standard error of the program.
    pub errors: Tail,
}

impl Guarded {
    /// Starts a program; `prepare` sets its environment and directory.
    pub fn start(words: &[OsString], prepare: impl FnOnce(&mut Command)) -> io::Result<Self> {
        let mut command = Command::new(OWN);
        command.arg(WORD).args(words);
        prepare(&mut command);
        let mut guard = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // In its own group, so that the terminal's signals do not reach it. The guard ends when this process does.
            .process_group(0)
            .spawn()?;
        Ok(Self {
            pipe: guard.stdin.take(),
            said: Tail::of(guard.stdout.take()),
            errors: Tail::of(guard.stderr.take()),
            guard,
        })
    }

    /// Returns the exit code of the program if it has ended. A signal is 128 plus its number, as in shells.
    pub fn ended(&mut self) -> io::Result<Option<i32>> {
        let code = |status: ExitStatus| status.code().unwrap_or(1);
        Ok(self.guard.try_wait()?.map(code))
    }

    /// Stops the program and the processes below it until it is told to [go on](Self::go_on).
    pub fn stop(&mut self) {
        self.tell(STOP);
    }

    /// Lets the program go on.
    pub fn go_on(&mut self) {
        self.tell(GO_ON);
    }

    fn tell(&mut self, word: u8) {
        // An error means that the guard, and so the program, has ended.
        let _ = self.pipe.as_mut().map(|pipe| pipe.write_all(&[word]));
    }

    /// Asks the program to end, without waiting for it.
    pub fn dismiss(&mut self) {
        self.pipe = None;
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.dismiss();
        let guard = &mut self.guard;
        wait::until(PATIENCE + MARGIN, || !matches!(guard.try_wait(), Ok(None)));
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// The end of a program's output, which a thread reads.
#[derive(Clone, Debug, Default)]
pub struct Tail(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    closed: bool,
}

impl Tail {
    fn of(from: Option<impl Read + Send + 'static>) -> Self {
        let tail = Self::default();
        let Some(mut from) = from else { return tail };
        let theirs = tail.clone();
        std::thread::spawn(move || {
            let mut chunk = vec![0; 16 << 10];
            loop {
                let count = match from.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => break,
                    Ok(count) => count,
                };
                let mut kept = theirs.lock();
                kept.bytes.extend(&chunk[..count]);
                let over = kept.bytes.len().saturating_sub(KEPT);
                kept.bytes.drain(..over);
            }
            theirs.lock().closed = true;
        });
        tail
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the text so far.
    pub fn text(&self) -> String {
        let mut kept = self.lock();
        String::from_utf8_lossy(kept.bytes.make_contiguous()).into_owned()
    }

    /// Waits until the program's end of the pipe is closed, for at most `limit`, because another process may keep it open.
    pub fn settle(&self, limit: Duration) {
        wait::until(limit, || self.lock().closed);
    }
}

/// Runs this process as a guard if the command line says so. Runs the program, ends all its processes when standard input
/// closes, and returns its exit code.
pub fn asked(words: impl Iterator<Item = OsString>) -> Option<u8> {
    let mut words = words.skip(1);
    words.next().filter(|word| word == WORD)?;
    let program = words.next()?;
    let code = stand(&program, words);
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

fn stand(program: &OsStr, arguments: impl Iterator<Item = OsString>) -> i32 {
    // If this fails, only a process that left the program's group can outlive this one.
    let _ = set_child_subreaper(Some(getpid()));
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    let child = match child {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            let mut errors = Plain::new(io::stderr());
            let _ = writeln!(errors, "{} cannot be executed: {error}", program.display());
            return 126;
        }
    };
    std::thread::spawn(move || {
        // An error also counts as the end.
        for word in io::stdin().lock().bytes().map_while(Result::ok) {
            let signal = if word == STOP {
                Signal::STOP
            } else {
                Signal::CONT
            };
            // Some of its processes leave the group.
            for pid in family() {
                let _ = kill_process(pid, signal);
            }
        }
        end(child);
    });
    let code = match look(child, WaitIdOptions::empty()) {
        Some(status) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => code,
            (None, signal) => 128 + signal.unwrap_or(0),
        },
        None => 1,
    };
    end_orphans(child);
    code
}

/// Returns the status of an ended child without reaping it, so its pid is not reused.
fn look(child: Pid, options: WaitIdOptions) -> Option<WaitIdStatus> {
    let options = options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(child), options) {
            Err(rustix::io::Errno::INTR) => {}
            status => return status.ok().flatten(),
        }
    }
}

fn end(child: Pid) {
    let _ = kill_process_group(child, Signal::TERM);
    let _ = kill_process_group(child, Signal::CONT);
    wait::until(PATIENCE, || look(child, WaitIdOptions::NOHANG).is_some());
    let _ = kill_process_group(child, Signal::KILL);
}

/// Kills the processes that the program left. Each becomes our child when its parent has ended.
fn end_orphans(child: Pid) {
    let start = Instant::now();
    loop {
        let orphans: Vec<Pid> = children().into_iter().filter(|pid| *pid != child).collect();
        if orphans.is_empty() || start.elapsed() > PATIENCE {
            return;
        }
        for orphan in orphans {
            let _ = kill_process(orphan, Signal::KILL);
            let _ = waitid(
                WaitId::Pid(orphan),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            );
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn children() -> Vec<Pid> {
    let all = parents().into_iter();
    let own = all.filter(|(_, parent)| *parent == getpid());
    own.map(|(pid, _)| pid).collect()
}

/// Returns all processes below this one.
fn family() -> Vec<Pid> {
    let all = parents();
    let mut found = vec![getpid()];
    let mut at = 0;
    while let Some(of) = found.get(at).copied() {
        let below = all.iter().filter(|(_, parent)| *parent == of);
        found.extend(below.map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// Returns each process that has a parent, with that.
fn parents() -> Vec<(Pid, Pid)> {
    let pid_of = |text: &str| Pid::from_raw(text.parse().ok()?);
    let parent_of = |pid: &str| {
        let stat = procfs::text(format!("/proc/{pid}/stat")).ok()?;
        pid_of(procfs::stat_fields(&stat)?.nth(1)?)
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let name = entry.file_name();
        let name = name.to_str()?;
        Some((pid_of(name)?, parent_of(name)?))
    })
    .collect()
}
