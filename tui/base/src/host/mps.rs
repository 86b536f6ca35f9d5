//! NVIDIA's MPS with its pipes and logs in the segment directory: no root, no compute mode, nobody else's daemon.
//!
//! ```text
//! $GPUSHARE_DIR/mps/pipe    CUDA_MPS_PIPE_DIRECTORY: sockets, and the daemon's pid in a file
//! $GPUSHARE_DIR/mps/log     CUDA_MPS_LOG_DIRECTORY: control.log, server.log
//! ```
//!
//! Whoever may write the sockets may send the server work, and whoever replaces the directory receives ours, so both are
//! opened as everything in the segment directory is ([`Dir`]) and are the user's own, 0700.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use shm_layout::dir::Dir;
use shm_layout::{OpenError, procfs, variables};

use super::wait;
use crate::text::exit::Failure;

mod control;

pub use control::{Control, PROGRAM};

/// Where a program looks for the daemon's sockets.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Where daemon and server write what happened.
pub const LOG_DIRECTORY: &str = "CUDA_MPS_LOG_DIRECTORY";
pub use shm_layout::variables::MPS_CLIENT_PRIORITY as CLIENT_PRIORITY;
/// The share of the SMs that a program may use; read when it starts.
pub const ACTIVE_THREAD_PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

const FOLDER: &str = "mps";
const PIPE: &str = "pipe";
const LOG: &str = "log";
/// The daemon writes its pid there, and removes the file when it ends.
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";
/// The simulator's daemon writes this file beside it.
const SIMULATED: &str = gpushare_sim::mps::SERVER;
/// The longest name of a socket in the pipe directory.
const SOCKET: &str = "control_privileged";
/// The longest path of a unix socket, without the zero at its end.
const SOCKET_PATH: usize = 107;

/// How long the daemon may take for one answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A question that was turned away is asked again so much later.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The directories of one segment directory's MPS, absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Sockets, and the daemon's pid in a file.
    pub pipe: PathBuf,
    /// What daemon and servers wrote.
    pub log: PathBuf,
}

/// Whether the daemon runs.
#[derive(Debug)]
pub enum State {
    /// It does not.
    Off,
    /// It answers.
    On {
        /// Its pid.
        pid: u32,
        /// The servers' pids: one for each user with clients, and none before the first client.
        servers: Vec<u32>,
    },
    /// It is there and does not answer as it should.
    Silent {
        /// Its pid.
        pid: u32,
        /// What happened instead.
        why: String,
    },
}

impl Place {
    /// Where it would be.
    pub fn of(dir: &Path) -> std::io::Result<Self> {
        let folder = std::path::absolute(dir)?.join(FOLDER);
        Ok(Self {
            pipe: folder.join(PIPE),
            log: folder.join(LOG),
        })
    }

    /// The directories as they are; `None` where they were never made, and in a directory of root's, whose MPS is
    /// root's alone.
    pub fn existing(dir: &Path) -> Result<Option<Self>, Failure> {
        let opened = Dir::open(dir).and_then(|dir| {
            if !dir.is_ours() {
                return Ok(false);
            }
            let folder = dir.inner(FOLDER)?;
            folder.inner(PIPE)?;
            folder.inner(LOG)?;
            Ok(true)
        });
        match opened {
            Ok(ours) => Ok(ours.then(|| Self::of(dir)).transpose()?),
            Err(OpenError::Missing { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The directories, made where they are missing.
    pub fn make(dir: &Path) -> Result<Self, Failure> {
        let place = Self::of(dir)?;
        let socket = place.pipe.join(SOCKET);
        let length = socket.as_os_str().len();
        if length > SOCKET_PATH {
            return Err(Failure::failed(format!(
                "MPS cannot run in {}: the path of its socket, {}, has {length} bytes and that of a unix socket at \
                 most {SOCKET_PATH}; set {} to a directory with a shorter path",
                dir.display(),
                socket.display(),
                variables::DIR
            )));
        }
        let dir = Dir::open(dir)?;
        if !dir.is_ours() {
            return Err(Failure::not_permitted(format!(
                "{} belongs to root, and MPS runs for one user; set {} to a directory of your own",
                dir.path().display(),
                variables::DIR
            )));
        }
        let folder = dir.inner_private(FOLDER)?;
        folder.inner_private(PIPE)?;
        folder.inner_private(LOG)?;
        Ok(place)
    }

    /// The pid that the daemon wrote, while a process has it.
    pub fn pid(&self) -> Option<u32> {
        let file = Dir::open(&self.pipe).ok()?.read(PID_FILE).ok()?;
        let text = std::io::read_to_string(std::io::Read::take(file, 32)).ok()?;
        let pid = text.trim().parse().ok()?;
        is_running(pid).then_some(pid)
    }

    /// Whether the daemon runs, and answers. Costs nothing where it does not run.
    pub fn state(&self, limit: Duration) -> State {
        let Some(pid) = self.pid() else {
            return State::Off;
        };
        let silent = |why| State::Silent { pid, why };
        let control = match Control::of(self) {
            Ok(control) => control,
            Err(failure) => return silent(failure.sentence),
        };
        // Another program that asks may have had it turn the question away.
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let answer = match control.ask(self, "get_server_list", left) {
                Ok(answer) => answer,
                Err(why) => return silent(why),
            };
            match answer.pids() {
                Some(servers) => return State::On { pid, servers },
                // The pid of a daemon that was killed may be another program's now.
                None if !is_daemon(pid) => return State::Off,
                None if left > ASK_AGAIN => std::thread::sleep(ASK_AGAIN),
                None => return silent(format!("{PROGRAM} answered: {}", answer.words())),
            }
        }
    }

    /// Whether the daemon there is the simulator's.
    pub fn is_simulated(&self) -> bool {
        Dir::open(&self.pipe).is_ok_and(|pipe| pipe.read(SIMULATED).is_ok())
    }

    /// The clients of a server.
    pub fn clients(&self, server: u32) -> Result<Vec<u32>, String> {
        let control = Control::of(self).map_err(|failure| failure.sentence)?;
        let command = format!("get_client_list {server}");
        let answer = control.ask(self, &command, PATIENCE)?;
        answer
            .pids()
            .ok_or_else(|| format!("{PROGRAM} answered to {command}: {}", answer.words()))
    }

    /// Ends a daemon whose owner is gone: by its control program, or where that is not found, by a signal.
    pub fn end(&self) {
        let Some(pid) = self.pid().filter(|pid| is_daemon(*pid)) else {
            return;
        };
        let asked = Control::of(self).map(|control| control.ask(self, "quit -t 0", PATIENCE));
        let asked = asked.is_ok_and(|answer| answer.is_ok());
        if asked && self.gone(pid, PATIENCE) || !is_daemon(pid) {
            return;
        }
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// What a server says of itself, in a word: `ACTIVE`, or `FAULT` while it takes no new client. `None` where it does not
    /// say.
    pub fn status(&self, server: u32) -> Option<String> {
        let control = Control::of(self).ok()?;
        let answer = control.ask(self, &format!("get_server_status {server}"), PATIENCE);
        let answer = answer.ok().filter(|answer| answer.status.success())?;
        let word = answer.text.trim();
        let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        is_word.then(|| word.to_owned())
    }

    /// Waits until the daemon that had this pid is gone; says whether it is.
    pub fn gone(&self, pid: u32, limit: Duration) -> bool {
        wait::until(limit, || self.pid() != Some(pid))
    }
}

/// Whether a process has this pid and has not ended.
fn is_running(pid: u32) -> bool {
    let stat = procfs::text(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = procfs::stat_fields(&stat).and_then(|mut fields| fields.next());
    state.is_some_and(|state| !matches!(state, "Z" | "X"))
}

fn is_daemon(pid: u32) -> bool {
    // The kernel keeps the first 15 bytes of a name.
    command(pid).is_some_and(|name| !name.is_empty() && PROGRAM.starts_with(&name))
}

/// What the kernel calls a process.
pub fn command(pid: u32) -> Option<String> {
    let name = procfs::text(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}
