//! NVIDIA's MPS with its pipes and logs in the segment directory. It needs no root and no compute mode, and is no other
//! user's daemon.
//!
//! ```text
//! $GPUSHARE_DIR/mps/pipe    CUDA_MPS_PIPE_DIRECTORY: sockets, and the daemon's pid in a file
//! $GPUSHARE_DIR/mps/log     CUDA_MPS_LOG_DIRECTORY: control.log, server.log
//! ```
//!
//! A user who can write the sockets can send work to the server, and a user who can replace the directory receives our
//! work. So both directories are opened like everything in the segment directory ([`Dir`]) and belong to the user, with
//! mode 0700.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use shm_layout::dir::Dir;
use shm_layout::{OpenError, variables};

use super::wait;
use crate::host::procfs;
use crate::text::exit::Failure;

mod control;

pub use control::{Control, PROGRAM};

/// Variable with the directory of the daemon's sockets.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Variable with the directory of the daemon's and the server's logs.
pub const LOG_DIRECTORY: &str = "CUDA_MPS_LOG_DIRECTORY";
pub use shm_layout::variables::MPS_CLIENT_PRIORITY as CLIENT_PRIORITY;
/// Variable with the share of the SMs that a program may use; MPS reads it when the program starts.
pub const ACTIVE_THREAD_PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

const FOLDER: &str = "mps";
const PIPE: &str = "pipe";
const LOG: &str = "log";
/// File with the daemon's pid. The daemon removes it when it ends.
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";
/// File that the simulator's daemon writes beside it.
const SIMULATED: &str = gpushare_sim::mps::SERVER;
/// The longest name of a socket in the pipe directory.
const SOCKET: &str = "control_privileged";
/// The longest path of a unix socket, without the zero at its end.
const SOCKET_PATH: usize = 107;

/// Maximum time for one answer of the daemon.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Pause before a rejected command is sent again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The directories of a segment directory's MPS, as absolute paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Directory of the sockets and of the file with the daemon's pid.
    pub pipe: PathBuf,
    /// Directory of the logs.
    pub log: PathBuf,
}

/// The state of the daemon.
#[derive(Debug)]
pub enum State {
    /// The daemon does not run.
    Off,
    /// The daemon answers.
    On {
        /// Pid of the daemon.
        pid: u32,
        /// Pids of the servers: one for each user with clients, and none before the first client.
        servers: Vec<u32>,
    },
    /// The daemon runs and does not answer correctly.
    Silent {
        /// Pid of the daemon.
        pid: u32,
        /// Description of the error.
        why: String,
    },
}

impl Place {
    /// Returns the directories' paths, which need not exist.
    pub fn of(dir: &Path) -> std::io::Result<Self> {
        let folder = std::path::absolute(dir)?.join(FOLDER);
        Ok(Self {
            pipe: folder.join(PIPE),
            log: folder.join(LOG),
        })
    }

    /// Opens the directories. Returns `None` if they do not exist, or if the segment directory belongs to root, whose MPS
    /// is for root alone.
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

    /// Makes the directories that are missing.
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

    /// Returns the daemon's pid if a process with it runs.
    pub fn pid(&self) -> Option<u32> {
        let file = Dir::open(&self.pipe).ok()?.read(PID_FILE).ok()?;
        let text = std::io::read_to_string(std::io::Read::take(file, 32)).ok()?;
        let pid = text.trim().parse().ok()?;
        is_running(pid).then_some(pid)
    }

    /// Returns the state of the daemon. If it does not run, this takes no time.
    pub fn state(&self, limit: Duration) -> State {
        let Some(pid) = self.pid() else {
            return State::Off;
        };
        let silent = |why| State::Silent { pid, why };
        let control = match Control::of(self) {
            Ok(control) => control,
            Err(failure) => return silent(failure.sentence),
        };
        // The daemon may have rejected the command because another program sent one.
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let answer = match control.ask(self, "get_server_list", left) {
                Ok(answer) => answer,
                Err(why) => return silent(why),
            };
            match answer.pids() {
                Some(servers) => return State::On { pid, servers },
                // If the daemon was killed, another program may have its pid.
                None if !is_daemon(pid) => return State::Off,
                None if left > ASK_AGAIN => std::thread::sleep(ASK_AGAIN),
                None => return silent(format!("{PROGRAM} answered: {}", answer.words())),
            }
        }
    }

    /// Returns true if the daemon belongs to the simulator.
    pub fn is_simulated(&self) -> bool {
        Dir::open(&self.pipe).is_ok_and(|pipe| pipe.read(SIMULATED).is_ok())
    }

    /// Returns the pids of a server's clients.
    pub fn clients(&self, server: u32) -> Result<Vec<u32>, String> {
        let control = Control::of(self).map_err(|failure| failure.sentence)?;
        let command = format!("get_client_list {server}");
        let answer = control.ask(self, &command, PATIENCE)?;
        answer
            .pids()
            .ok_or_else(|| format!("{PROGRAM} answered to {command}: {}", answer.words()))
    }

    /// Ends a daemon whose owner is gone: by its control program, or if that is not found, by a signal.
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

    /// Returns the state that a server reports: `ACTIVE`, or `FAULT` while it takes no new client. Returns `None` if the
    /// server does not answer.
    pub fn status(&self, server: u32) -> Option<String> {
        let control = Control::of(self).ok()?;
        let answer = control.ask(self, &format!("get_server_status {server}"), PATIENCE);
        let answer = answer.ok().filter(|answer| answer.status.success())?;
        let word = answer.text.trim();
        let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        is_word.then(|| word.to_owned())
    }

    /// Waits until the daemon with this pid has ended. Returns false if it has not after `limit`.
    pub fn gone(&self, pid: u32, limit: Duration) -> bool {
        wait::until(limit, || self.pid() != Some(pid))
    }
}

/// Returns true if a process with this pid runs.
fn is_running(pid: u32) -> bool {
    let stat = procfs::text(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = procfs::stat_fields(&stat).and_then(|mut fields| fields.next());
    state.is_some_and(|state| !matches!(state, "Z" | "X"))
}

fn is_daemon(pid: u32) -> bool {
    // The kernel keeps only the first 15 bytes of a name.
    command(pid).is_some_and(|name| !name.is_empty() && PROGRAM.starts_with(&name))
}

/// Returns the kernel's name of a process.
pub fn command(pid: u32) -> Option<String> {
    let name = procfs::text(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}
