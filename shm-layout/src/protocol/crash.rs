//! Places where a test makes its process die or stop, to prove that the survivors cope. Nothing of it is in a release build.

use std::sync::OnceLock;

use rustix::process::Signal;

static ARMED: OnceLock<(String, Signal)> = OnceLock::new();

/// Makes this process kill itself when it reaches the named point. Only in debug builds.
pub fn arm(name: &str) {
    let _ = ARMED.set((name.to_owned(), Signal::KILL));
}

/// Makes this process stop itself when it reaches the named point, as if it had lost its processor. Only in debug builds.
pub fn stop_at(name: &str) {
    let _ = ARMED.set((name.to_owned(), Signal::STOP));
}

/// Reached a named point.
#[cfg(debug_assertions)]
pub(crate) fn point(name: &str) {
    if let Some((_, signal)) = ARMED.get().filter(|(armed, _)| armed == name) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), *signal);
        // Another thread may take the signal; this one must not go on until it reaches all of them.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Names a place where a test may kill or stop the process.
macro_rules! crash_point {
    ($name:literal) => {
        #[cfg(debug_assertions)]
        $crate::protocol::crash::point($name);
    };
}
pub(crate) use crash_point;
