//! A program joins the MPS of its segment directory: which daemon it finds, and what MPS fixes when it starts.
//!
//! MPS knows two priorities, and most programs ask for none. So a priority above 0 is the normal one and all others are
//! below it: one `--priority 5` is enough to put a program before those that were started without a word.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use shm_layout::environment::Environment;

use super::{Launch, Settings};
use crate::host::mps::{
    ACTIVE_THREAD_PERCENTAGE, CLIENT_PRIORITY, LOG_DIRECTORY, PIPE_DIRECTORY, Place, State,
};

/// A start does not wait longer than this for a daemon that is there and does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What an outer `gpushare run` leaves in the environment when it joins.
const OURS: [&str; 4] = [
    PIPE_DIRECTORY,
    LOG_DIRECTORY,
    CLIENT_PRIORITY,
    ACTIVE_THREAD_PERCENTAGE,
];

impl Launch {
    /// Joins the MPS that runs in this directory, if one does. A daemon that the user named is left to them; one that
    /// does not answer is not joined, and a warning says so.
    pub fn join_mps(&mut self, dir: &Path, settings: &Settings, environment: &Environment) {
        let Ok(ours) = Place::of(dir) else {
            return;
        };
        let named = std::env::var_os(PIPE_DIRECTORY);
        let inherited = named.as_ref().is_some_and(|named| ours.pipe == *named);
        if settings.no_mps {
            if inherited {
                self.removed.extend(OURS);
            }
            return;
        }
        if named.is_some() && !inherited {
            return;
        }
        let place = match Place::existing(dir) {
            Ok(Some(place)) => place,
            Ok(None) => return,
            Err(failure) => {
                let why = failure.sentence;
                self.warnings
                    .push(format!("the program does not join MPS: {why}"));
                return;
            }
        };
        match place.state(PATIENCE) {
            State::Off => return,
            State::On { .. } => {}
            State::Silent { pid, why } => {
                self.warnings.push(format!(
                    "the program does not join MPS, whose control daemon {pid} does not answer: {why}"
                ));
                return;
            }
        }
        self.set(PIPE_DIRECTORY, place.pipe);
        self.set(LOG_DIRECTORY, place.log);
        // What an outer run set gives way to an option of this one; what the user set does not.
        let mut fix = |name: &'static str, value: Option<String>, said: bool| {
            let keep = std::env::var_os(name).is_some() && !(inherited && said);
            if let Some(value) = value.filter(|_| !keep) {
                self.set(name, OsString::from(value));
            }
        };
        let limits = &environment.limits;
        let below = limits.priority.unwrap_or(0) <= 0;
        let priority = if below { "1" } else { "0" };
        let said = settings.priority.is_some();
        fix(CLIENT_PRIORITY, Some(priority.to_owned()), said);
        let cap = limits.cap.filter(|cap| *cap < 100 || inherited);
        let said = settings.cap.is_some();
        fix(
            ACTIVE_THREAD_PERCENTAGE,
            cap.map(|cap| cap.to_string()),
            said,
        );
    }
}
