//! Signals that a user can choose, and their delivery to one process only.

use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::pids;

/// The signals, each with its effect on a program that does not handle it.
pub const SIGNALS: [(&str, Signal, &str); 6] = [
    ("TERM", Signal::TERM, "asks it to end; it may save its work"),
    ("INT", Signal::INT, "as ^C: most programs end"),
    (
        "KILL",
        Signal::KILL,
        "ends it at once; what it has not saved is lost",
    ),
    (
        "STOP",
        Signal::STOP,
        "stops it; it keeps its memory, and may lose the lock by force",
    ),
    ("CONT", Signal::CONT, "lets it go on after a stop"),
    (
        "USR1",
        Signal::USR1,
        "whatever the program made of it; else it ends",
    ),
];

/// A signal for one process, identified by pid and start time.
#[derive(Clone, Debug)]
pub struct Signalled {
    /// Pid of the process.
    pub pid: u32,
    /// Start time of the process in clock ticks.
    pub started: u64,
    /// Signal to send.
    pub signal: Signal,
    /// Name of the signal.
    pub word: &'static str,
    /// Title of the process for the user.
    pub title: String,
}

/// The reason why a signal was not sent, as a sentence.
#[derive(Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The process has ended.
    Gone(String),
    /// The process belongs to another user.
    NotPermitted(String),
    /// The kernel returned another error.
    Failed(String),
}

impl NotSent {
    /// Returns the sentence.
    pub fn sentence(&self) -> &str {
        match self {
            Self::Gone(why) | Self::NotPermitted(why) | Self::Failed(why) => why,
        }
    }

    /// Returns the sentence by value.
    pub fn why(self) -> String {
        match self {
            Self::Gone(why) | Self::NotPermitted(why) | Self::Failed(why) => why,
        }
    }
}

/// Returns the start time of a process in clock ticks.
pub fn started(pid: u32) -> Option<u64> {
    pids::start_time(&PathBuf::from(format!("/proc/{pid}")))
}

impl Signalled {
    /// Sends the signal if the pid still has the same start time. Returns a sentence about the result.
    pub fn send(&self) -> Result<String, NotSent> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let gone = || NotSent::Gone(format!("{} has ended; nothing was sent", self.title));
        let pid = pid.ok_or_else(gone)?;
        // The descriptor prevents that the pid is reused between the check and the signal.
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
        if started(self.pid) != Some(self.started) {
            return Err(gone());
        }
        match pidfd_send_signal(process, self.signal).map_err(io::Error::from) {
            Ok(()) => Ok(format!("SIG{} was sent to {}", self.word, self.title)),
            Err(error) => {
                let why = format!(
                    "SIG{} could not be sent to {}: {error}",
                    self.word, self.title
                );
                Err(match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        NotSent::NotPermitted(format!("{why}; only its user and root may end it"))
                    }
                    _ => NotSent::Failed(why),
                })
            }
        }
    }
}
