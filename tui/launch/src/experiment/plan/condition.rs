//! A condition of a plan.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use shm_layout::text::PathText as _;

use super::super::figure::Place;
use super::program::{Change, Program};
use super::wrong::{Wrong, check_variable};
use gpushare_control::device_memory;

/// A condition is one way to share the device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Name in the table.
    #[serde(default)]
    pub name: String,
    /// Each program with figures runs by itself, in one copy.
    #[serde(default)]
    pub alone: bool,
    /// The programs run under NVIDIA's MPS.
    #[serde(default)]
    pub mps: bool,
    /// The programs run under gpushare with this operator's policy, and with memory settings typed beside it.
    pub policy: Option<Place<String>>,
    /// The programs run under gpushare with the policy that their own variables ask for.
    #[serde(default)]
    pub gpushare: bool,
    /// Another library in gpushare's place: a path, or `$NAME` for the path in a variable.
    pub preload: Option<String>,
    /// Environment variables of every program.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Changes to single programs.
    #[serde(default)]
    pub program: BTreeMap<Place<String>, Change>,
}

impl Condition {
    /// Returns true if the programs run under gpushare.
    pub fn is_ours(&self) -> bool {
        self.gpushare || self.policy.is_some()
    }

    /// Returns true if the programs share only the device: no MPS, no library, no changed settings.
    pub fn is_bare(&self) -> bool {
        let shared = self.mps || self.is_ours() || self.preload.is_some();
        !self.alone && !shared && self.env.is_empty() && self.program.is_empty()
    }

    /// Returns the kind of the condition as a word that programs can compare.
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

    /// Returns the condition's change to a program.
    pub fn change_of(&self, program: &str) -> Option<&Change> {
        let mut changes = self.program.iter();
        let found = changes.find(|(name, _)| name.get_ref() == program);
        found.map(|(_, change)| change)
    }

    /// Returns true if a program runs under NVIDIA's MPS.
    pub fn is_under_mps(&self, program: &str) -> bool {
        let change = self.change_of(program).and_then(|change| change.mps);
        self.mps && change.unwrap_or(true)
    }

    /// Returns the environment variables of a program under this condition. The condition's values replace the program's,
    /// and its change of this program replaces both.
    pub fn variables<'p>(&'p self, program: &'p Program) -> BTreeMap<&'p str, &'p str> {
        let change = self.change_of(&program.name).map(|change| &change.env);
        [Some(&program.env), Some(&self.env), change]
            .into_iter()
            .flatten()
            .flatten()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    /// Sets a name if the file gives none.
    pub(super) fn give_name(&mut self) {
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

    pub(super) fn check(
        &self,
        span: Range<usize>,
        programs: &[Place<Program>],
    ) -> Result<(), Wrong> {
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
            device_memory::with_policy(policy.get_ref()).map_err(|failure| {
                Wrong::at(policy.span(), format!("policy: {}", failure.sentence))
            })?;
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
            if change.mps.is_some() && !self.mps {
                return Err(there(format!(
                    "mps = false keeps a program out of a condition's MPS, and condition {:?} has none; give it mps = true",
                    self.name
                )));
            }
            for variable in change.env.keys() {
                check_variable(variable).map_err(there)?;
            }
        }
        Ok(())
    }

    /// Returns the path of the library to preload. The error says why it cannot be used.
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
