//! The file of `gpushare apply`: quotas, groups and policies.
//!
//! ```toml
//! [policy]                     # "all", a device's number or its UUID
//! all = "timeslice=5ms order=fair evict-after=15m overcommit=on"
//! "1" = "launches=10"
//!
//! [limit]                      # maximum for all processes together on a device
//! "0" = "64GiB"
//!
//! [group.team-a]
//! memory = "16GiB"
//! weight = 200
//! cap = "30%"
//!
//! [[rule]]                     # for all processes that match, later ones too; the first rule that matches applies
//! label = "train-*"            # and user, group, executable, container; all given ones must match; all = true for every process
//! memory = "8GiB"
//! evict-after = "15m"
//!
//! [[process]]                  # a running process
//! target = "name:train"
//! memory = "8GiB"
//! weight = 50
//! ```
//!
//! The whole file is checked before anything is changed; an unknown key is an error.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use shm_layout::text::PathText as _;
use shm_layout::{QuotaValue, ShareEdit};

use super::quota::MEMORY;
use super::{quota, share};

use gpushare_base::text::exit::Failure;
use gpushare_base::text::files;

/// The file of `gpushare apply`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Manifest {
    /// Lock policies by device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policy: BTreeMap<String, String>,
    /// Limits by device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limit: BTreeMap<String, Value>,
    /// Groups by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub group: BTreeMap<String, Words>,
    /// Rules; the first that matches applies. They replace all rules in force; without the key those are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Vec<RuleEntry>>,
    /// Weights for `gpushare pick`; only used in the boot settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pick: Option<Pick>,
    /// Settings of processes that run now.
    #[serde(skip_serializing)]
    pub process: Vec<Process>,
}

/// The settings of a table by their words: the quota, and those of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Words(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let words = BTreeMap::<String, Value>::deserialize(from)?;
        match words.keys().find(|word| !is_known(word)) {
            None => Ok(Self(words)),
            Some(word) => {
                let known = share::words::<ShareEdit>().collect::<Vec<_>>().join(", ");
                Err(D::Error::custom(format!(
                    "unknown key `{word}`; the settings are {MEMORY}, {known}; a rule also has name, user, group, executable, container, label, all"
                )))
            }
        }
    }
}

fn is_known(word: &str) -> bool {
    word == MEMORY || share::words::<ShareEdit>().any(|known| known == word)
}

impl<W: Into<String>, V: Into<String>> FromIterator<(W, V)> for Words {
    fn from_iter<I: IntoIterator<Item = (W, V)>>(words: I) -> Self {
        let words = words.into_iter();
        Self(
            words
                .map(|(word, text)| (word.into(), Value::of(text.into())))
                .collect(),
        )
    }
}

impl Words {
    /// Returns the settings as they are typed on a command line: `weight=200`.
    pub fn typed(&self) -> Vec<String> {
        let words = self.0.iter();
        words
            .map(|(word, value)| format!("{word}={}", value.text()))
            .collect()
    }

    /// Reads the quota and the other settings.
    pub fn read(&self) -> Result<(Option<QuotaValue>, ShareEdit), Failure> {
        let mut share = ShareEdit::default();
        let mut memory = None;
        for (word, value) in &self.0 {
            match word.as_str() {
                MEMORY => memory = Some(quota::parse(&value.text())?),
                word => share::read(&mut share, &format!("{word}={}", value.text()))?,
            }
        }
        Ok((memory, share))
    }
}

/// A rule: conditions and the settings of processes that meet them. In a text `*` stands for any number of characters.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct RuleEntry {
    /// Name of the rule in `ps` and the log.
    pub name: Option<String>,
    /// User of the process.
    pub user: Option<Value>,
    /// Group of the process.
    pub group: Option<String>,
    /// Executable of the process: a path, or a file name.
    pub executable: Option<String>,
    /// Container of the process.
    pub container: Option<String>,
    /// Label of the process.
    pub label: Option<String>,
    /// True for a rule without conditions, so that a forgotten condition does not limit the whole machine.
    pub all: Option<bool>,
    /// Settings of the processes.
    #[serde(flatten)]
    pub settings: Words,
}

/// The weights by which `gpushare pick` chooses a device.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Pick {
    /// Weight of each claim of another pick; 0.5 by default.
    pub claims: Option<f64>,
    /// Weight of each process in the lock's queue; 0.25 by default.
    pub queue: Option<f64>,
    /// Weight of full utilisation; 1 by default.
    pub utilisation: Option<f64>,
    /// Weight of full memory; 1 by default.
    pub memory: Option<f64>,
    /// Maximum age of NVML's cached figures; `1s` by default.
    pub max_age: Option<String>,
    /// Maximum number of picks that use them; 100 by default.
    pub max_uses: Option<u32>,
}

/// The settings of a running process.
#[derive(Debug, Deserialize)]
pub struct Process {
    /// Target: pid, name:LABEL, group:G, user:U or all.
    pub target: String,
    /// True if the process is kept from the GPU.
    pub paused: Option<bool>,
    /// True if a missing process is no error.
    #[serde(default)]
    pub optional: bool,
    /// Settings of the process.
    #[serde(flatten)]
    pub settings: Words,
}

/// A value such as `8GiB` or `200`, because the quotes of a number can be omitted.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A switch without quotes.
    Switch(bool),
    /// A number without quotes.
    Number(i64),
    /// A text with quotes.
    Text(String),
}

impl Value {
    /// Makes the value that is written with as few quotes as possible.
    fn of(text: String) -> Self {
        text.parse().map_or(Self::Text(text), Self::Number)
    }

    /// Returns the value as it is typed on a command line.
    pub fn text(&self) -> String {
        match self {
            Self::Switch(on) => if *on { "yes" } else { "no" }.to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl Manifest {
    /// Reads a file; an error names the line.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = files::read_text(path)
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.shown())))?;
        Self::parse(&text).map_err(|error| {
            let error = error.to_string();
            Failure::usage(format!("{}: {}", path.shown(), error.trim_end()))
        })
    }

    /// Merges two files. Settings of this one override those of `below`, and its rules come first.
    pub fn above(mut self, below: Self) -> Self {
        let (mut policy, mut limit, mut group) = (below.policy, below.limit, below.group);
        policy.append(&mut self.policy);
        limit.append(&mut self.limit);
        group.append(&mut self.group);
        let rule = match (self.rule, below.rule) {
            (None, rule) | (rule, None) => rule,
            (Some(mut first), Some(then)) => {
                first.extend(then);
                Some(first)
            }
        };
        self.process.extend(below.process);
        Self {
            policy,
            limit,
            group,
            rule,
            pick: self.pick.or(below.pick),
            process: self.process,
        }
    }

    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_manual_is_understood() {
        let example: String = include_str!("manifest.rs")
            .lines()
            .skip_while(|line| *line != "//! ```toml")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .map(|line| format!("{}\n", line.trim_start_matches("//!").trim_start()))
            .collect();
        let manifest = Manifest::parse(&example).expect("the documented form");
        assert_eq!(manifest.policy.len(), 2);
        assert_eq!(
            manifest.group["team-a"].typed(),
            ["cap=30%", "memory=16GiB", "weight=200"]
        );
        assert_eq!(manifest.process[0].target, "name:train");
        let rules = manifest.rule.expect("one");
        assert_eq!(rules[0].label.as_deref(), Some("train-*"));
    }

    #[test]
    fn an_unknown_key_is_an_error_and_not_ignored() {
        assert!(Manifest::parse("[policies]\nall = 'off'").is_err());
        assert!(Manifest::parse("[group.a]\nmem = '1G'").is_err());
        assert!(Manifest::parse("[[process]]\nmemory = '1G'").is_err());
        assert!(Manifest::parse("[[process]]\ntarget = 'all'\nmem = '1G'").is_err());
        assert!(Manifest::parse("[[rule]]\nlabels = 'a'\nmemory = '1G'").is_err());
    }
}
