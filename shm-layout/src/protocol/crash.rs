//! Places where a test makes its process die, to prove that the survivors cope. Nothing of it is in a release build.

use std::sync::OnceLock;

static ARMED: OnceLock<String> = OnceLock::new();

/// Makes this process kill itself when it reaches the named point. Only in debug builds.
pub fn arm(name: &str) {
    let _ = ARMED.set(name.to_owned());
}

/// Reached a named point.
#[cfg(debug_assertions)]
pub(crate) fn point(name: &str) {
    if ARMED.get().is_some_and(|armed| armed == name) {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Names a place where a test may kill the process.
macro_rules! crash_point {
    ($name:literal) => {
        #[cfg(debug_assertions)]
        $crate::protocol::crash::point($name);
    };
}
pub(crate) use crash_point;
