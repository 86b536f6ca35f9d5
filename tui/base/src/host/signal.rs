//! A signal to one process: the signals a person chooses from, and how one is sent to the process meant and no other.

use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::pids;

/// The signals, each with what it does to a program that does not expect it.
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

/// A signal, and the one life of one pid that it is for.
#[derive(Clone, Debug)]
pub struct Signalled {
    /// Whom to.
    pub pid: u32,
    /// When that process began, in the kernel's ticks.
    pub started: u64,
    /// Which.
    pub signal: Signal,
    /// Its name.
    pub word: &'static str,
    /// The process as a person knows it.
    pub title: String,
}

/// Why a signal was not sent.
#[derive(Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The process has ended.
    Gone(String),
    /// It belongs to another user.
    NotPermitted(String),
    /// The kernel says something else.
    Failed(String),
}

impl NotSent {
    /// The same, borrowed.
    pub fn sentence(&self) -> &str {
        match self {
            Self::Gone(why) | Self::NotPermitted(why) | Self::Failed(why) => why,
        }
    }

    /// The sentence.
    pub fn why(self) -> String {
        match self {
            Self::Gone(why) | Self::NotPermitted(why) | Self::Failed(why) => why,
        }
    }
}

/// When a process began, in the kernel's ticks.
pub fn started(pid: u32) -> Option<u64> {
    pids::start_time(&PathBuf::from(format!("/proc/{pid}")))
}

impl Signalled {
    /// Sends it, if the pid is still the same process; what was done, as a sentence.
    pub fn send(&self) -> Result<String, NotSent> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let gone = || NotSent::Gone(format!("{} has ended; nothing was sent", self.title));
        let pid = pid.ok_or_else(gone)?;
        // The descriptor keeps the number from being used again between the look and the signal.
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
