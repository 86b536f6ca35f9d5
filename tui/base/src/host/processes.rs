//! Child processes that get a SIGTERM before they are killed.

use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::wait;

/// Maximum time for a child to end after SIGTERM, before it is killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Children that end when this is dropped.
#[derive(Debug, Default)]
pub struct Children {
    running: Vec<Child>,
}

impl Children {
    /// Adds a child.
    pub fn adopt(&mut self, child: Child) {
        self.running.push(child);
    }

    /// Returns the children that have ended by themselves, as (position, exit code).
    pub fn ended(&mut self) -> Vec<(usize, Option<i32>)> {
        let look = |(at, child): (usize, &mut Child)| {
            child
                .try_wait()
                .ok()
                .flatten()
                .map(|status| (at, status.code()))
        };
        self.running
            .iter_mut()
            .enumerate()
            .filter_map(look)
            .collect()
    }

    /// Ends all children: SIGTERM, a pause, SIGKILL.
    pub fn end(&mut self) {
        for child in &self.running {
            // The child is not reaped yet, so no other process has its pid.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        let running = &mut self.running;
        wait::until(PATIENCE, || !running.iter_mut().any(is_running));
        for child in running {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.running.clear();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_that_ignores_the_request_is_ended_all_the_same() {
        let mut children = Children::default();
        let shell = Command::new("sh")
            .args(["-c", "trap '' TERM; while :; do sleep 0.05; done"])
            .spawn();
        let child = shell.expect("sh is everywhere");
        let pid = child.id();
        children.adopt(child);
        drop(children);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
