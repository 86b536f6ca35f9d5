//! Joining the MPS of the program's segment directory, and the settings that MPS fixes at the program's start.
//!
//! MPS has two priorities, and most programs ask for none. So a priority above 0 is MPS's normal one, and all others are
//! below it: one `--priority 5` is enough to put a program before those without a priority.
//!
//! A cap is enforced by the library, which limits the time and follows each edit. MPS's percentage of the SMs cannot change
//! while a program runs and would limit it a second time. It is therefore set only for users who ask for it.

use std::path::Path;
use std::time::Duration;

use shm_layout::environment::Environment;
use shm_layout::variables;

use super::{Launch, Settings};
use gpushare_base::host::mps::{
    ACTIVE_THREAD_PERCENTAGE, CLIENT_PRIORITY, LOG_DIRECTORY, PIPE_DIRECTORY, Place, State,
};
use gpushare_base::text::exit::Failure;

/// Maximum time that a start waits for a daemon that runs and does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Variables that an outer `gpushare run` sets in the environment when it joins.
const OURS: [&str; 4] = [
    PIPE_DIRECTORY,
    LOG_DIRECTORY,
    CLIENT_PRIORITY,
    ACTIVE_THREAD_PERCENTAGE,
];

/// The MPS that a program joins.
enum Joins {
    /// The MPS of its segment directory.
    Ours { place: Place, inherited: bool },
    /// An MPS that the user named.
    Theirs,
    /// No MPS; the reason is the end of a sentence.
    None(String),
}

impl Launch {
    /// Joins the MPS that runs in this directory, if there is one. An MPS that the user named in the environment is kept
    /// instead. A daemon that does not answer is not joined, and a warning says so. A share of the SMs that was asked for
    /// needs an MPS.
    pub fn join_mps(
        &mut self,
        dir: &Path,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<(), Failure> {
        let threads = settings.mps_threads()?;
        let joins = self.joins(dir, settings);
        if let Joins::Ours { place, inherited } = &joins {
            self.set(PIPE_DIRECTORY, &place.pipe);
            self.set(LOG_DIRECTORY, &place.log);
            // A variable that an outer `gpushare run` set gives way to an option of this one; a variable that the user set
            // does not.
            let said = *inherited && settings.said(variables::PRIORITY).is_some();
            if said || std::env::var_os(CLIENT_PRIORITY).is_none() {
                let below = environment.limits.settings.priority.unwrap_or(0) <= 0;
                self.set(CLIENT_PRIORITY, if below { "1" } else { "0" });
            }
        }
        let needs = match (settings.mps, threads) {
            (true, _) => "--mps",
            (false, Some(_)) => "--mps-threads",
            (false, None) => return Ok(()),
        };
        if let Joins::None(why) = joins {
            let why = format!("{needs} needs MPS, and {why}");
            if !settings.best_effort {
                return Err(Failure::failed(format!(
                    "the program was not started, because {why} (--best-effort starts it without)"
                )));
            }
            self.warnings.push(why);
            return Ok(());
        }
        if let Some(threads) = threads {
            self.set(ACTIVE_THREAD_PERCENTAGE, threads.to_string());
        }
        Ok(())
    }

    fn joins(&mut self, dir: &Path, settings: &Settings) -> Joins {
        let ours = match Place::of(dir) {
            Ok(ours) => ours,
            Err(error) => return Joins::None(error.to_string()),
        };
        let named = std::env::var_os(PIPE_DIRECTORY);
        let inherited = named.as_ref().is_some_and(|named| ours.pipe == *named);
        if settings.no_mps {
            if inherited {
                self.removed.extend(OURS);
            }
            return Joins::None("--no-mps keeps the program out of it".into());
        }
        if named.is_some() && !inherited {
            return Joins::Theirs;
        }
        let silent = |why: String| format!("the program does not join MPS{why}");
        let why = match Place::existing(dir) {
            Ok(Some(place)) => match place.state(PATIENCE) {
                State::On { .. } => return Joins::Ours { place, inherited },
                State::Silent { pid, why } => silent(format!(
                    ", whose control daemon {pid} does not answer: {why}"
                )),
                State::Off => return Joins::off(dir),
            },
            Ok(None) => return Joins::off(dir),
            Err(failure) => silent(format!(": {}", failure.sentence)),
        };
        self.warnings.push(why.clone());
        Joins::None(why)
    }
}

impl Joins {
    fn off(dir: &Path) -> Self {
        let dir = dir.display();
        Self::None(format!(
            "it does not run for {dir}: run gpushare mps start first"
        ))
    }
}
