//! Detection of a hang-up of the terminal, at once.
//!
//! crossterm 0.29 reads a terminal that has hung up in an endless loop, so the hang-up is detected outside the reader.

use std::io;
use std::process;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

/// The exit status that a shell reports for a program ended by a hang-up.
const HANGUP: i32 = 129;
/// Time that the loop has to end by itself.
const PATIENCE: Duration = Duration::from_millis(500);

/// Returns a receiver that fires when the terminal of standard output hangs up. If the process still exists a moment
/// later, it is ended: there is no terminal left to restore.
pub fn watch() -> io::Result<oneshot::Receiver<()>> {
    let (tell, told) = oneshot::channel();
    thread::Builder::new()
        .name("hangup".into())
        .stack_size(64 << 10)
        .spawn(move || {
            let out = io::stdout();
            // No events are requested: the kernel reports a hang-up all the same.
            let mut wanted = [PollFd::new(&out, PollFlags::empty())];
            while !hung_up(&mut wanted, None) {}
            if tell.send(()).is_ok() {
                thread::sleep(PATIENCE);
            }
            process::exit(HANGUP);
        })?;
    Ok(told)
}

/// Returns true if the terminal of standard output has hung up. An error of the terminal may be seen before [`watch`] fires.
pub fn has_gone() -> bool {
    let out = io::stdout();
    hung_up(
        &mut [PollFd::new(&out, PollFlags::empty())],
        Some(&Timespec::default()),
    )
}

fn hung_up(wanted: &mut [PollFd<'_>], limit: Option<&Timespec>) -> bool {
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    match poll(wanted, limit) {
        Ok(_) => wanted.iter().any(|fd| fd.revents().intersects(gone)),
        Err(_) => false,
    }
}
