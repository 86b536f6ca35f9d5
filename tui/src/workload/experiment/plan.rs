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
//! [[condition]]
//! preload = "$HAMI_CORE"
//! program.training.env = { CUDA_DEVICE_SM_LIMIT = "30" }
//! ```
//!
//! Everything is read and checked before anything runs; what is wrong is named with its line. A program runs in the
//! file's directory. One without figures is only a load: it is ended when the others have ended.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use shm_layout::text::PathText as _;

use super::figure::{Figure, Place};
use crate::edit::manifest::Value;
use crate::host::artifacts;
use crate::host::programs::find_program;
use crate::text::exit::Failure;
use crate::text::names::check_label;
use crate::text::units;
use crate::workload::launch::Settings;

/// A plan that makes sense.
#[derive(Debug)]
pub struct Plan {
    /// Where it was read from.
    pub path: PathBuf,
    /// Its text, so that a result tells what was measured.
    pub text: String,
    /// What the table and the plot are called.
    pub title: String,
    /// `{seconds}` in a command.
    pub seconds: f64,
    /// Rounds that count.
    pub repeats: u32,
    /// Rounds before them that do not.
    pub warm_up: u32,
    /// How long one run may take.
    timeout: Option<Duration>,
    /// The simulated machine on which the programs can run, where there is no real one.
    pub scenario: Option<String>,
    /// What runs.
    pub programs: Vec<Program>,
    /// Under what.
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

/// A program, or several of the same.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What the table calls it, and its label under gpushare.
    pub name: String,
    /// The program and its arguments.
    pub command: Place<Vec<String>>,
    /// How many run.
    #[serde(default = "one")]
    pub count: u32,
    /// A line of its output that matches says that it waits for the file `$START_FILE`.
    pub ready: Option<Place<String>>,
    /// What is read from its output.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Variables, under every condition.
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

/// What a condition changes of a program.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    env: BTreeMap<String, String>,
    memory: Option<Value>,
    weight: Option<Value>,
    priority: Option<Value>,
    cap: Option<Value>,
}

/// One way to share the device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// What the table calls it.
    #[serde(default)]
    pub name: String,
    /// Each program with figures runs by itself, one of it.
    #[serde(default)]
    pub alone: bool,
    /// NVIDIA's MPS runs underneath.
    #[serde(default)]
    pub mps: bool,
    /// Under gpushare, with this policy of the operator's.
    pub policy: Option<Place<String>>,
    /// Under gpushare, with the policy that the programs' own variables ask for.
    #[serde(default)]
    pub gpushare: bool,
    /// Another library in gpushare's place: a path, or `$NAME` for the path in a variable.
    pub preload: Option<String>,
    /// Variables of every program.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What it changes of single programs.
    #[serde(default)]
    pub program: BTreeMap<Place<String>, Change>,
}

/// What is wrong, and at which byte of the file.
struct Wrong {
    at: Option<usize>,
    why: String,
}

impl Wrong {
    fn at(span: Range<usize>, why: impl Into<String>) -> Self {
        Self {
            at: Some(span.start),
            why: why.into(),
        }
    }
}

impl Plan {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = crate::text::files::read_text(path)
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
            repeats: file.repeats.into_inner(),
            warm_up: file.warm_up.into_inner(),
            timeout,
            scenario: file.scenario,
            programs: file.program.into_iter().map(Place::into_inner).collect(),
            conditions: file.condition.into_iter().map(Place::into_inner).collect(),
        })
    }

    /// Whether `seconds` may be so long.
    pub fn check_seconds(seconds: f64) -> Result<(), String> {
        match (0.1..=86_400.0).contains(&seconds) {
            true => Ok(()),
            false => Err(format!(
                "{seconds} is out of range; must be between 0.1 and 86400"
            )),
        }
    }

    /// How long one run may take.
    pub fn timeout(&self) -> Duration {
        /// A program may load a model first.
        const START: Duration = Duration::from_secs(180);
        self.timeout
            .unwrap_or_else(|| Duration::from_secs_f64(self.seconds * 2.0) + START)
    }

    /// Where the programs run.
    pub fn folder(&self) -> PathBuf {
        folder(&self.path)
    }

    /// The programs that print figures.
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

fn within(span: Range<usize>, what: &str, value: u32, least: u32, most: u32) -> Result<(), Wrong> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(Wrong::at(
            span,
            format!("{what} = {value} is out of range; must be between {least} and {most}"),
        )),
    }
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

impl Program {
    fn check(&self, span: Range<usize>, folder: &Path) -> Result<(), Wrong> {
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

    /// The file that is run: the workload that is installed with gpushare, or what a shell would find.
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

    /// The command line, with the seconds filled in.
    pub fn words(&self, folder: &Path, seconds: f64) -> Result<Vec<OsString>, Failure> {
        let seconds = seconds.to_string();
        let filled = |word: &String| OsString::from(word.replace("{seconds}", &seconds));
        let arguments = self.command.get_ref().iter().skip(1).map(filled);
        Ok(std::iter::once(self.program(folder)?.into_os_string())
            .chain(arguments)
            .collect())
    }

    /// What `gpushare run` starts it with.
    pub fn settings(&self, change: Option<&Change>) -> Settings {
        let of = |own: &Option<Value>, theirs: fn(&Change) -> &Option<Value>| {
            let theirs = change.and_then(|change| theirs(change).as_ref());
            theirs.or(own.as_ref()).map(Value::text)
        };
        Settings {
            memory: of(&self.memory, |change| &change.memory),
            weight: of(&self.weight, |change| &change.weight),
            priority: of(&self.priority, |change| &change.priority),
            cap: of(&self.cap, |change| &change.cap),
            ..Settings::default()
        }
    }

    /// The names of its processes, when so many run.
    pub fn names(&self, count: u32) -> Vec<String> {
        match count {
            1 => vec![self.name.clone()],
            count => (1..=count)
                .map(|number| format!("{}-{number}", self.name))
                .collect(),
        }
    }
}

impl Condition {
    /// Whether the programs run under gpushare.
    pub fn is_ours(&self) -> bool {
        self.gpushare || self.policy.is_some()
    }

    /// Whether nothing is shared but the device.
    pub fn is_bare(&self) -> bool {
        let shared = self.mps || self.is_ours() || self.preload.is_some();
        !self.alone && !shared && self.env.is_empty() && self.program.is_empty()
    }

    /// A word for what it is, for the plot and for programs.
    pub fn kind(&self) -> &'static str {
        match () {
            () if self.alone => "alone",
            () if self.preload.is_some() => "preload",
            () if self.is_ours() && self.mps => "gpushare over MPS",
            () if self.is_ours() => "gpushare",
            () if self.mps => "MPS",
            () if self.is_bare() => "bare",
            () => "variables",
        }
    }

    /// What it changes of a program.
    pub fn change_of(&self, program: &str) -> Option<&Change> {
        let mut changes = self.program.iter();
        let found = changes.find(|(name, _)| name.get_ref() == program);
        found.map(|(_, change)| change)
    }

    /// The variables of a program under it: those of the program, of the condition, and of both.
    pub fn variables<'p>(&'p self, program: &'p Program) -> BTreeMap<&'p str, &'p str> {
        let change = self.change_of(&program.name).map(|change| &change.env);
        [Some(&program.env), Some(&self.env), change]
            .into_iter()
            .flatten()
            .flatten()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    fn give_name(&mut self) {
        if !self.name.is_empty() {
            return;
        }
        let mut parts = Vec::new();
        parts.extend(self.alone.then(|| "alone".to_owned()));
        parts.extend(self.mps.then(|| "MPS".to_owned()));
        parts.extend(self.policy.as_ref().map(|policy| policy.get_ref().clone()));
        if self.gpushare && self.policy.is_none() {
            parts.push("gpushare".into());
        }
        parts.extend(self.preload.clone());
        self.name = if parts.is_empty() {
            "bare".to_owned()
        } else {
            parts.join(", ")
        };
    }

    fn check(&self, span: Range<usize>, programs: &[Place<Program>]) -> Result<(), Wrong> {
        let here = |why: &str| {
            let why = format!("condition {:?}: {why}", self.name);
            Wrong::at(span.clone(), why)
        };
        if self.alone && (self.mps || self.is_ours() || self.preload.is_some()) {
            return Err(here(
                "alone goes with none of mps, policy, gpushare and preload",
            ));
        }
        if self.is_ours() && self.preload.is_some() {
            return Err(here(
                "gpushare's library and another one cannot both be preloaded; leave out policy and gpushare, or preload",
            ));
        }
        if let Some(policy) = &self.policy {
            units::policy(policy.get_ref())
                .map_err(|error| Wrong::at(policy.span(), format!("policy: {error}")))?;
        }
        for variable in self.env.keys() {
            check_variable(variable).map_err(|why| here(&why))?;
        }
        for (name, change) in &self.program {
            let there = |why: String| Wrong::at(name.span(), why);
            let program = programs
                .iter()
                .find(|p| p.get_ref().name == *name.get_ref());
            let Some(program) = program else {
                return Err(there(format!("there is no program {:?}", name.get_ref())));
            };
            let settings = program.get_ref().settings(Some(change)).variables();
            settings.map_err(|failure| there(failure.sentence))?;
            let limits = [
                &change.memory,
                &change.weight,
                &change.priority,
                &change.cap,
            ];
            if limits.iter().any(|limit| limit.is_some()) && !self.is_ours() {
                return Err(there(format!(
                    "memory, weight, priority and cap are gpushare's, and condition {:?} runs without it; give it a \
                     policy (off is one), or set variables in env",
                    self.name
                )));
            }
            for variable in change.env.keys() {
                check_variable(variable).map_err(there)?;
            }
        }
        Ok(())
    }

    /// The library that it preloads; else why it cannot.
    pub fn library(&self, folder: &Path) -> Result<Option<PathBuf>, String> {
        let Some(preload) = &self.preload else {
            return Ok(None);
        };
        let path = match preload.strip_prefix('$') {
            None => PathBuf::from(preload),
            Some(name) => match std::env::var_os(name).filter(|value| !value.is_empty()) {
                Some(path) => PathBuf::from(path),
                None => {
                    return Err(format!(
                        "{name} is not set; set it to the path of the library"
                    ));
                }
            },
        };
        let path = folder.join(path);
        if path.is_file() {
            return Ok(Some(path));
        }
        Err(format!("there is no library {}", path.shown()))
    }
}

fn check_variable(name: &str) -> Result<(), String> {
    let odd = name.is_empty() || name.contains(['=', '\0']);
    match odd {
        false => Ok(()),
        true => Err(format!("{name:?} is no name of a variable")),
    }
}

#[cfg(test)]
pub(super) mod tests;
