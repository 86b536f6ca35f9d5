//! The program `nvidia-cuda-mps-control`: it gets one command and gives one answer within a time limit.
//!
//! Its output goes to an unnamed file in memory, so that a daemon that keeps the output open does not delay the reader.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{LOG_DIRECTORY, PIPE_DIRECTORY, Place};
use crate::host::artifacts;
use crate::host::programs::search_path;
use crate::host::wait;
use crate::text::exit::Failure;

/// Name of the program.
pub const PROGRAM: &str = "nvidia-cuda-mps-control";
/// Maximum number of bytes that are read from its output.
const MOST: u64 = 1 << 20;
/// Maximum time to wait for other programs that send commands.
const IN_LINE: Duration = Duration::from_secs(10);
/// Maximum time to wait for a killed child before the kernel is left to end it.
const KILLED: Duration = Duration::from_secs(1);

/// The output and exit status of the program.
pub struct Answer {
    pub status: ExitStatus,
    pub text: String,
}

impl Answer {
    /// Returns the first line that is not empty, for a message.
    pub fn words(&self) -> &str {
        let mut lines = self.text.lines().map(str::trim);
        lines.find(|line| !line.is_empty()).unwrap_or("nothing")
    }

    /// Returns the pids that the answer lists, or `None` if it contains anything else.
    pub fn pids(&self) -> Option<Vec<u32>> {
        let words = self.text.split_whitespace();
        let pids = words.map(|word| word.parse().ok()).collect();
        self.status.success().then_some(pids).flatten()
    }
}

/// The path of the program.
pub struct Control {
    program: PathBuf,
}

impl Control {
    /// Returns the control program of a directory's daemon: the simulator's, or NVIDIA's in PATH.
    pub fn of(place: &Place) -> Result<Self, Failure> {
        match place.is_simulated() {
            true => Self::simulated(),
            false => Self::find(),
        }
    }

    /// Returns the simulator's program.
    pub fn simulated() -> Result<Self, Failure> {
        let program = artifacts::find(artifacts::SIM_MPS)?;
        Ok(Self { program })
    }

    /// Finds NVIDIA's program in PATH.
    pub fn find() -> Result<Self, Failure> {
        let Some(program) = search_path(OsStr::new(PROGRAM)) else {
            return Err(Failure::failed(format!(
                "{PROGRAM} is not in PATH; it comes with NVIDIA's driver: install nvidia-compute-utils (Ubuntu), \
                 nvidia-cuda-mps (Debian) or nvidia-driver-cuda (Fedora, RHEL) of the driver's version"
            )));
        };
        let program = std::path::absolute(program)?;
        Ok(Self { program })
    }

    /// Starts the daemon. The daemon forks, so the program ends once it runs.
    pub fn daemon(&self, place: &Place, limit: Duration) -> Result<Answer, String> {
        self.run(place, &["-d"], "", limit)
    }

    /// Sends one command to the daemon. The daemon rejects a client while it serves another (driver 580.159: "Cannot send
    /// command to MPS control daemon process"), so all programs of gpushare take a lock first.
    pub fn ask(&self, place: &Place, command: &str, limit: Duration) -> Result<Answer, String> {
        let _alone = alone(place);
        self.run(place, &[], command, limit)
    }

    fn run(
        &self,
        place: &Place,
        arguments: &[&str],
        input: &str,
        limit: Duration,
    ) -> Result<Answer, String> {
        let failed =
            |error: io::Error| format!("{} cannot be started: {error}", self.program.display());
        let mut said = memfd_create("mps-control", MemfdFlags::CLOEXEC)
            .map(File::from)
            .map_err(|errno| failed(errno.into()))?;
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env(PIPE_DIRECTORY, &place.pipe)
            .env(LOG_DIRECTORY, &place.log)
            // The server is no workload, so it does not get the library.
            .env_remove("LD_PRELOAD")
            // A daemon keeps its directory busy, and in our group it would receive the terminal's signals.
            .current_dir(Path::new("/"))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(said.try_clone().map_err(failed)?)
            .stderr(said.try_clone().map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that has ended reports its error itself. A line is shorter than a pipe's buffer, so this write
            // never blocks.
            let _ = writeln!(stdin, "{input}");
        }
        let what = if input.is_empty() { "start" } else { input };
        let Some(status) = outcome(&mut child, limit).map_err(failed)? else {
            return Err(format!(
                "{PROGRAM} did not answer to {what} in {} s",
                limit.as_secs()
            ));
        };
        let mut bytes = Vec::new();
        said.rewind().map_err(failed)?;
        said.take(MOST).read_to_end(&mut bytes).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Answer { status, text })
    }
}

/// Takes the lock of the directory. Returns `None` if the owner of the lock is stopped, or if there is no directory.
fn alone(place: &Place) -> Option<File> {
    let folder = File::open(&place.pipe).ok()?;
    let lock = || flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok();
    wait::until(IN_LINE, lock).then_some(folder)
}

/// Returns the exit status, or `None` if the program exceeded the limit and was killed.
fn outcome(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let ended = ended_within(child, limit)?;
    if ended.is_none() {
        // The child is not reaped yet, so no other process has its pid or its group.
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        ended_within(child, KILLED)?;
    }
    Ok(ended)
}

fn ended_within(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || start.elapsed() >= limit {
            return Ok(ended);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
