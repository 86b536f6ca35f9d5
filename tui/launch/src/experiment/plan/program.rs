//! A program of a plan.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::super::figure::{Figure, Place};
use super::wrong::{Wrong, check_variable, within};
use crate::program::Settings;
use gpushare_base::host::artifacts;
use gpushare_base::host::programs::find_program;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::names::check_label;
use gpushare_control::manifest::Value;
use shm_layout::variables;

/// A program, with the number of copies to run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Name in the table, and label under gpushare.
    pub name: String,
    /// The program and its arguments.
    pub command: Place<Vec<String>>,
    /// Number of copies.
    #[serde(default = "one")]
    pub count: u32,
    /// Pattern of the output line that says that the program waits for the file `$START_FILE`.
    pub ready: Option<Place<String>>,
    /// Figures that are read from its output.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Environment variables under every condition.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Quota under gpushare.
    pub memory: Option<Value>,
    /// Weight under gpushare.
    pub weight: Option<Value>,
    /// Priority under gpushare.
    pub priority: Option<Value>,
    /// Cap under gpushare.
    pub cap: Option<Value>,
}

fn one() -> u32 {
    1
}

/// A condition's change to a program.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    pub(super) env: BTreeMap<String, String>,
    pub(super) memory: Option<Value>,
    pub(super) weight: Option<Value>,
    pub(super) priority: Option<Value>,
    pub(super) cap: Option<Value>,
    pub(super) mps: Option<bool>,
}

impl Program {
    pub(super) fn check(&self, span: Range<usize>, folder: &Path) -> Result<(), Wrong> {
        let here = |why: String| {
            let why = format!("program {:?}: {why}", self.name);
            Wrong::at(span.clone(), why)
        };
        check_label("name", &self.name).map_err(|failure| here(failure.sentence))?;
        within(span.clone(), "count", self.count, 1, 64)?;
        self.program(folder)
            .map_err(|failure| Wrong::at(self.command.span(), failure.sentence))?;
        for variable in self.env.keys() {
            check_variable(variable).map_err(here)?;
        }
        for figure in &self.figures {
            figure.check().map_err(|(at, why)| Wrong {
                at: Some(at.unwrap_or(span.start)),
                why,
            })?;
        }
        let mut names = HashSet::new();
        if let Some(twice) = self
            .figures
            .iter()
            .find(|figure| !names.insert(&figure.name))
        {
            return Err(here(format!("there are two figures {:?}", twice.name)));
        }
        if let Some(ready) = &self.ready {
            regex_lite::Regex::new(ready.get_ref()).map_err(|_| {
                let why = format!("ready {:?} is no regular expression", ready.get_ref());
                Wrong::at(ready.span(), why)
            })?;
        }
        self.settings(None)
            .variables()
            .map_err(|failure| here(failure.sentence))?;
        Ok(())
    }

    /// Finds the file to run: the workload that is installed with gpushare, or what a shell would find.
    fn program(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let word = self.command.get_ref().first();
        let word = word.ok_or_else(|| Failure::usage("command is empty"))?;
        if word == artifacts::WORKLOAD {
            return artifacts::find(word);
        }
        let word = if word.contains('/') {
            folder.join(word).into_os_string()
        } else {
            OsString::from(word)
        };
        find_program(&word)
    }

    /// Returns the command line, with the seconds filled in.
    pub fn words(&self, folder: &Path, seconds: f64) -> Result<Vec<OsString>, Failure> {
        let seconds = seconds.to_string();
        let filled = |word: &String| OsString::from(word.replace("{seconds}", &seconds));
        let arguments = self.command.get_ref().iter().skip(1).map(filled);
        Ok(std::iter::once(self.program(folder)?.into_os_string())
            .chain(arguments)
            .collect())
    }

    /// Returns the settings for `gpushare run`.
    pub fn settings(&self, change: Option<&Change>) -> Settings {
        let of = |own: &Option<Value>, theirs: fn(&Change) -> &Option<Value>| {
            let theirs = change.and_then(|change| theirs(change).as_ref());
            theirs.or(own.as_ref()).map(Value::text)
        };
        Settings::default()
            .with(variables::MEMORY, of(&self.memory, |change| &change.memory))
            .with(variables::WEIGHT, of(&self.weight, |change| &change.weight))
            .with(
                variables::PRIORITY,
                of(&self.priority, |change| &change.priority),
            )
            .with(variables::CAP, of(&self.cap, |change| &change.cap))
    }

    /// Returns the names of its `count` copies.
    pub fn names(&self, count: u32) -> Vec<String> {
        match count {
            1 => vec![self.name.clone()],
            count => (1..=count)
                .map(|number| format!("{}-{number}", self.name))
                .collect(),
        }
    }
}
