//! Notices at once that the terminal has gone.
//!
//! crossterm 0.29 reads a terminal that has hung up again and again without end, so the one who notices may not be the one
//! who reads.

use std::io;
use std::process;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::oneshot;

/// The status of a program that a hang-up ended, as a shell has it.
const HANGUP: i32 = 129;
/// So long the loop may take to end by itself.
const PATIENCE: Duration = Duration::from_millis(500);

/// Fires when the terminal of standard output hangs up. If the process has not ended a moment later, it is ended: there is
/// no terminal any more to give back.
pub fn watch() -> io::Result<oneshot::Receiver<()>> {
    let (tell, told) = oneshot::channel();
    thread::Builder::new()
        .name("hangup".into())
        .stack_size(64 << 10)
        .spawn(move || {
            let out = io::stdout();
            // Nothing is asked for: the kernel reports a hang-up all the same.
            let mut wanted = [PollFd::new(&out, PollFlags::empty())];
            while !hung_up(&mut wanted) {}
            if tell.send(()).is_ok() {
                thread::sleep(PATIENCE);
            }
            process::exit(HANGUP);
        })?;
    Ok(told)
}

fn hung_up(wanted: &mut [PollFd<'_>]) -> bool {
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    match poll(wanted, None) {
        Ok(_) => wanted.iter().any(|fd| fd.revents().intersects(gone)),
        Err(_) => false,
    }
}
