//! The program `nvidia-cuda-mps-control`: one command, one answer, and never a wait without an end.
//!
//! What it says goes to memory that has no name: a daemon that keeps its output open cannot keep us reading.

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

/// Its name.
pub const PROGRAM: &str = "nvidia-cuda-mps-control";
/// Nobody reads more than this of what it says.
const MOST: u64 = 1 << 20;
/// How long one that asks waits for the others that do.
const IN_LINE: Duration = Duration::from_secs(10);
/// How long a killed child may take to end before it is left to the kernel.
const KILLED: Duration = Duration::from_secs(1);

/// What it said, and how it ended.
pub struct Answer {
    pub status: ExitStatus,
    pub text: String,
}

impl Answer {
    /// Its first line with something in it, for a sentence.
    pub fn words(&self) -> &str {
        let mut lines = self.text.lines().map(str::trim);
        lines.find(|line| !line.is_empty()).unwrap_or("nothing")
    }

    /// The pids that it lists; `None` where it says anything else.
    pub fn pids(&self) -> Option<Vec<u32>> {
        let words = self.text.split_whitespace();
        let pids = words.map(|word| word.parse().ok()).collect();
        self.status.success().then_some(pids).flatten()
    }
}

/// The program, found.
pub struct Control {
    program: PathBuf,
}

impl Control {
    /// The one that the daemon of a place belongs to: the simulator's, or NVIDIA's in PATH.
    pub fn of(place: &Place) -> Result<Self, Failure> {
        match place.is_simulated() {
            true => Self::simulated(),
            false => Self::find(),
        }
    }

    /// The simulator's.
    pub fn simulated() -> Result<Self, Failure> {
        let program = artifacts::find(artifacts::SIM_MPS)?;
        Ok(Self { program })
    }

    /// Finds NVIDIA's in PATH.
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

    /// Starts the daemon of a place. It forks, so this ends when it has.
    pub fn daemon(&self, place: &Place, limit: Duration) -> Result<Answer, String> {
        self.run(place, &["-d"], "", limit)
    }

    /// Gives the daemon of a place one command. It turns away who comes while another asks (driver 580.159: "Cannot send command
    /// to MPS control daemon process"), so all of our programs ask one at a time.
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
            // The server is no workload.
            .env_remove("LD_PRELOAD")
            // A daemon keeps its directory busy, and our group would take the terminal's keys to it.
            .current_dir(Path::new("/"))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(said.try_clone().map_err(failed)?)
            .stderr(said.try_clone().map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that has ended says why itself. A line is shorter than a pipe, so this never waits.
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

/// Holds the place's lock while it lives; `None` where one that has it is stopped, or there is no place.
fn alone(place: &Place) -> Option<File> {
    let folder = File::open(&place.pipe).ok()?;
    let lock = || flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok();
    wait::until(IN_LINE, lock).then_some(folder)
}

/// How it ended, or `None` when it was killed because it did not.
fn outcome(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let ended = ended_within(child, limit)?;
    if ended.is_none() {
        // Not yet waited for, so the number is still its own, and its group's.
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
