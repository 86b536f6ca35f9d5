//! The helper program: started for each step and limited in time, because Slurm waits for the plugin.

use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time limit of the program. It usually takes some milliseconds; Slurm waits a minute or more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of bytes read; every valid output is shorter.
const MOST: usize = 1 << 16;

/// Runs the program and returns its output.
pub fn answer(command: &mut Command) -> Result<String, String> {
    answer_within(command, PATIENCE)
}

fn answer_within(command: &mut Command, patience: Duration) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let spawned = command.spawn();
    let mut child = spawned.map_err(|error| format!("{program} cannot be started: {error}"))?;
    let until = Instant::now() + patience;
    let read = read(&mut child, until);
    let ended = read.is_ok() && ends(&mut child, until);
    if !ended {
        let _ = child.kill();
        let _ = child.wait();
    }
    match read {
        Ok(text) if ended => Ok(text),
        Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(format!("{program}: {error}")),
        _ => Err(format!(
            "{program} did not end within {} s",
            patience.as_secs()
        )),
    }
}

/// Reads its output until it closes it.
fn read(child: &mut Child, until: Instant) -> io::Result<String> {
    let mut out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut text = Vec::new();
    let mut part = [0; 4096];
    while text.len() < MOST {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&out, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match out.read(&mut part)? {
            0 => break,
            count => text.extend_from_slice(&part[..count]),
        }
    }
    String::from_utf8(text).map_err(io::Error::other)
}

/// Returns true if the program ends in time. A program that another part of Slurm has reaped counts as ended.
fn ends(child: &mut Child, until: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(_)) | Err(_) => return true,
            Ok(None) if Instant::now() >= until => return false,
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_prints_is_the_answer() {
        assert_eq!(
            answer(Command::new("sh").args(["-c", "echo one; echo two"])),
            Ok("one\ntwo\n".into())
        );
    }

    #[test]
    fn one_that_hangs_is_ended_and_one_that_is_not_there_is_named() {
        let soon = Duration::from_millis(50);
        let mut hangs = Command::new("sh");
        hangs.args(["-c", "echo x; exec sleep 1000"]);
        let why = answer_within(&mut hangs, soon);
        assert!(why.expect_err("late").contains("did not end"));
        let why = answer(&mut Command::new("/nonexistent/gpushare"));
        assert!(
            why.expect_err("absent")
                .starts_with("/nonexistent/gpushare")
        );
    }
}
