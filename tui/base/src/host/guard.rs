//! A program that somebody named, and all that it starts: ended with us, however we end.
//!
//! Between us and the program stands a guard, a process of our own executable. It adopts what the program leaves
//! behind, and its standard input is a pipe that closes when we end, even by SIGKILL. Then, and when the program has
//! ended, it ends all that is left. It never waits for the program as a parent does, so the program's number stays its
//! own until the guard is gone.
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
use shm_layout::procfs;

use super::wait;
use crate::text::plain::Plain;

/// The first argument that makes our executable a guard; the program and its arguments follow. It is no option of
/// any verb, for no person needs it.
const WORD: &str = "--guard";
/// How long a program may take after SIGTERM before it is killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much longer the guard itself may take.
const MARGIN: Duration = Duration::from_secs(8);
/// What is kept of a program's output: the end of it.
const KEPT: usize = 1 << 20;

/// A program behind its guard. Dropping it ends the program and what it started.
#[derive(Debug)]
pub struct Guarded {
    guard: Child,
    /// Open for as long as the program may run.
    pipe: Option<ChildStdin>,
    /// What it wrote to standard output.
    pub said: Tail,
    /// What it wrote to standard error.
    pub errors: Tail,
}

impl Guarded {
    /// Starts a program; `prepare` gives it its environment and directory.
    pub fn start(words: &[OsString], prepare: impl FnOnce(&mut Command)) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WORD).args(words);
        prepare(&mut command);
        let mut guard = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The terminal's keys are for us; the guard ends when we do.
            .process_group(0)
            .spawn()?;
        Ok(Self {
            pipe: guard.stdin.take(),
            said: Tail::of(guard.stdout.take()),
            errors: Tail::of(guard.stderr.take()),
            guard,
        })
    }

    /// How the program ended, if it has; a signal is 128 and its number, as shells say it.
    pub fn ended(&mut self) -> io::Result<Option<i32>> {
        let code = |status: ExitStatus| status.code().unwrap_or(1);
        Ok(self.guard.try_wait()?.map(code))
    }

    /// Asks the program to end, and does not wait.
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

/// The end of what a program writes, read as it comes.
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

    /// What there is so far.
    pub fn text(&self) -> String {
        let mut kept = self.lock();
        String::from_utf8_lossy(kept.bytes.make_contiguous()).into_owned()
    }

    /// Waits until the program's end of the pipe is closed, at most `limit`: something else may keep it open.
    pub fn settle(&self, limit: Duration) {
        wait::until(limit, || self.lock().closed);
    }
}

/// Is the guard, if the command line asks for one: runs the program, ends all of it when standard input closes, and
/// returns its exit code.
pub fn asked(words: impl Iterator<Item = OsString>) -> Option<u8> {
    let mut words = words.skip(1);
    words.next().filter(|word| word == WORD)?;
    let program = words.next()?;
    let code = stand(&program, words);
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

fn stand(program: &OsStr, arguments: impl Iterator<Item = OsString>) -> i32 {
    // Without it only a process that left the program's group would outlive us.
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
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
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

/// How a child of ours ended; it stays a child, so its number passes to no other process.
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
    wait::until(PATIENCE, || look(child, WaitIdOptions::NOHANG).is_some());
    let _ = kill_process_group(child, Signal::KILL);
}

/// Kills what the program left: each becomes our child when its parent has ended.
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
    let own = std::process::id();
    let is_child = |pid: &i32| {
        let stat = procfs::text(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = procfs::stat_fields(&stat).and_then(|mut fields| fields.nth(1)?.parse().ok());
        parent == Some(own)
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_child)
        .filter_map(Pid::from_raw)
        .collect()
}
