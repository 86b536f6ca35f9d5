//! The file of an experiment: programs, and the conditions to run them under.
//!
//! ```toml
//! title = "An inference beside two trainings"
//! seconds = 10                     # {seconds} in a command
//! repeats = 3                      # rounds that count
//! warm-up = 1                      # rounds before them that do not
//!
//! [[program]]
//! name = "training"
//! command = ["python3", "programs/training.py", "{seconds}"]
//! count = 2
//! ready = "^ready"                 # a line that says: I wait for the file $START_FILE
//! memory = "20GiB"                 # with weight, priority and cap: under gpushare
//! figures = [{ name = "steps", pattern = 'steps_per_s=([0-9.]+)', unit = "/s", better = "higher" }]
//!
//! [[condition]]
//! alone = true                     # each program by itself
//! [[condition]]
//! name = "bare"                    # nothing is shared but the device
//! [[condition]]
//! mps = true
//! policy = "overlap order=priority"
//! program.training.priority = -5
//! program.training.mps = false     # this one without MPS
//! [[condition]]
//! preload = "$HAMI_CORE"
//! program.training.env = { CUDA_DEVICE_SM_LIMIT = "30" }
//! ```
//!
//! The whole file is checked before anything runs, and an error names the line. A program runs in the file's directory. A
//! program without figures only makes load: it is ended when the others have ended. The programs of all runs share the folder
//! `$EXPERIMENT_DIR`, which is removed at the end.

mod condition;
mod program;
mod wrong;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use shm_layout::text::PathText as _;

use super::figure::Place;
pub use condition::Condition;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::units;
pub use program::{Change, Program};
use wrong::{Wrong, within};

/// A checked plan.
#[derive(Debug)]
pub struct Plan {
    /// Path of the file.
    pub path: PathBuf,
    /// Text of the file. A result includes it to document what was measured.
    pub text: String,
    /// Title of the table.
    pub title: String,
    /// Value of `{seconds}` in a command.
    pub seconds: f64,
    /// The programs of all conditions run at once, in turns of so many seconds; `None` if they run one condition after another.
    pub switch: Option<f64>,
    /// Number of copies of each condition that run beside the others then.
    pub copies: u32,
    /// Number of rounds that are measured.
    pub repeats: u32,
    /// Number of rounds before them that are not measured.
    pub warm_up: u32,
    /// Maximum time of one run.
    timeout: Option<Duration>,
    /// Scenario of the simulated machine on which the programs can run if there is no real GPU.
    pub scenario: Option<String>,
    /// The programs.
    pub programs: Vec<Program>,
    /// The conditions to run them under.
    pub conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    title: Option<String>,
    seconds: Place<f64>,
    #[serde(default = "three")]
    repeats: Place<u32>,
    #[serde(default = "none")]
    warm_up: Place<u32>,
    timeout: Option<Place<String>>,
    scenario: Option<String>,
    program: Vec<Place<Program>>,
    condition: Vec<Place<Condition>>,
}

fn three() -> Place<u32> {
    Place::new(0..0, 3)
}

fn none() -> Place<u32> {
    Place::new(0..0, 0)
}

impl Plan {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = gpushare_base::text::files::read_text(path)
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.shown())))?;
        Self::parse(path, &text).map_err(|wrong| {
            let line = wrong
                .at
                .map(|at| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1);
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            Failure::usage(format!("{}{line}: {}", path.shown(), wrong.why))
        })
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Wrong> {
        let mut file: File = toml::from_str(text).map_err(|error| Wrong {
            at: error.span().map(|span| span.start),
            why: error.message().trim_end().replace('\n', "; "),
        })?;
        for condition in &mut file.condition {
            condition.get_mut().give_name();
        }
        let timeout = file.check(&folder(path))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self {
            path: path.to_owned(),
            text: text.to_owned(),
            title: file.title.unwrap_or_else(|| stem.into_owned()),
            seconds: file.seconds.into_inner(),
            switch: None,
            copies: 1,
            repeats: file.repeats.into_inner(),
            warm_up: file.warm_up.into_inner(),
            timeout,
            scenario: file.scenario,
            programs: file.program.into_iter().map(Place::into_inner).collect(),
            conditions: file.condition.into_iter().map(Place::into_inner).collect(),
        })
    }

    /// Checks that `seconds` is within its limits.
    pub fn check_seconds(seconds: f64) -> Result<(), String> {
        match (0.1..=86_400.0).contains(&seconds) {
            true => Ok(()),
            false => Err(format!(
                "{seconds} is out of range; must be between 0.1 and 86400"
            )),
        }
    }

    /// Returns the maximum time of one run.
    pub fn timeout(&self) -> Duration {
        /// Extra time for the start, because a program may load a model.
        const START: Duration = Duration::from_secs(180);
        self.timeout
            .unwrap_or_else(|| Duration::from_secs_f64(self.seconds * 2.0) + START)
    }

    /// Returns the directory in which the programs run.
    pub fn folder(&self) -> PathBuf {
        folder(&self.path)
    }

    /// Returns the programs that print figures.
    pub fn measured(&self) -> impl Iterator<Item = &Program> {
        self.programs
            .iter()
            .filter(|program| !program.figures.is_empty())
    }
}

fn folder(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    std::path::absolute(folder.join(".")).unwrap_or_else(|_| folder.to_owned())
}

impl File {
    fn check(&self, folder: &Path) -> Result<Option<Duration>, Wrong> {
        Plan::check_seconds(*self.seconds.get_ref())
            .map_err(|why| Wrong::at(self.seconds.span(), format!("seconds = {why}")))?;
        within(
            self.repeats.span(),
            "repeats",
            *self.repeats.get_ref(),
            1,
            1000,
        )?;
        within(
            self.warm_up.span(),
            "warm-up",
            *self.warm_up.get_ref(),
            0,
            1000,
        )?;
        let timeout = self.timeout.as_ref().map(|timeout| {
            units::parse_duration(timeout.get_ref())
                .map(Duration::from_nanos)
                .map_err(|error| Wrong::at(timeout.span(), format!("timeout: {error}")))
        });
        let mut names = HashSet::new();
        for program in &self.program {
            program.get_ref().check(program.span(), folder)?;
            if !names.insert(&program.get_ref().name) {
                let why = format!("there are two programs {:?}", program.get_ref().name);
                return Err(Wrong::at(program.span(), why));
            }
        }
        let measured = |program: &Place<Program>| !program.get_ref().figures.is_empty();
        if !self.program.iter().any(measured) {
            return Err(Wrong {
                at: None,
                why: "no program has figures, so there is nothing to measure".into(),
            });
        }
        let mut names = HashSet::new();
        for condition in &self.condition {
            let (span, condition) = (condition.span(), condition.get_ref());
            condition.check(span.clone(), &self.program)?;
            if !names.insert(&condition.name) {
                let why = format!(
                    "there are two conditions {:?}; give one a name",
                    condition.name
                );
                return Err(Wrong::at(span, why));
            }
        }
        if self.condition.is_empty() {
            return Err(Wrong {
                at: None,
                why: "there is no [[condition]] to run the programs under".into(),
            });
        }
        timeout.transpose()
    }
}

#[cfg(test)]
pub(super) mod tests;
