//! The causes that end a search early: a signal, or a key where standard input is a terminal.

use std::io::{IsTerminal as _, stdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::runtime::Runtime;

use crate::signals::Ends;
use gpushare_base::text::exit::Failure;

/// Time between two looks.
const PACE: Duration = Duration::from_millis(100);

/// A watch of the signals, and of the keys where there are any. Dropping it restores the terminal.
pub struct Stop {
    runtime: Runtime,
    ends: std::cell::RefCell<Ends>,
    /// The modes of the terminal at the start.
    modes: Option<Termios>,
}

impl Stop {
    /// Starts the watch.
    pub fn watch() -> Result<Self, Failure> {
        let (runtime, ends) = Ends::watch()?;
        Ok(Self {
            runtime,
            ends: ends.into(),
            modes: single_keys(),
        })
    }

    /// Waits for a moment. Returns the reason to end, if one came.
    pub fn wait(&self) -> Result<Option<String>, Failure> {
        let mut ends = self.ends.borrow_mut();
        let signal = self.runtime.block_on(async {
            tokio::select! {
                signal = ends.come() => Some(signal),
                () = tokio::time::sleep(PACE) => None,
            }
        });
        Ok(match signal {
            Some(signal) => Some(format!("ended by {signal}")),
            None if self.modes.is_some() && has_key() => Some("ended by a key".into()),
            None => None,
        })
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        if let Some(modes) = &self.modes {
            // The key is for this program and not for the shell.
            let _ = tcsetattr(stdin(), OptionalActions::Flush, modes);
        }
    }
}

/// Has the terminal pass on each key at once. Returns its earlier modes; `None` if there is no terminal.
fn single_keys() -> Option<Termios> {
    // A program in the background would be stopped by the change.
    let is_ours = rustix::termios::tcgetpgrp(stdin()).ok()? == rustix::process::getpgrp();
    let before = tcgetattr(stdin())
        .ok()
        .filter(|_| is_ours && stdin().is_terminal())?;
    let mut modes = before.clone();
    modes
        .local_modes
        .remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(stdin(), OptionalActions::Now, &modes).ok()?;
    Some(before)
}

fn has_key() -> bool {
    let stdin = stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
