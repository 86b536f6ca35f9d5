//! Quotas, groups and policies written down in a file, for `gpushare apply`.
//!
//! ```toml
//! [policy]                     # "all", a device's number or its UUID
//! all = "timeslice=5ms order=fair evict-after=15m overcommit=on"
//! "1" = "launches=10"
//!
//! [limit]                      # what all processes together may hold on a device
//! "0" = "64GiB"
//!
//! [group.team-a]
//! memory = "16GiB"
//! weight = 200
//! cap = "30%"
//!
//! [[rule]]                     # all that match, later ones too; the first that matches holds
//! label = "train-*"            # and user, group, executable, container; all that are given must match; all = true for every process
//! memory = "8GiB"
//! evict-after = "15m"
//!
//! [[process]]                  # those that run now
//! target = "name:train"
//! memory = "8GiB"
//! weight = 50
//! ```
//!
//! Everything is read and checked before anything is changed; an unknown key is an error.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use shm_layout::text::PathText as _;

use gpushare_base::text::exit::Failure;
use gpushare_base::text::files;

/// The file.
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
    pub group: BTreeMap<String, Group>,
    /// Rules, the first that matches holds. They take the place of all that are in force; without the key those stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Vec<RuleEntry>>,
    /// How `gpushare pick` chooses; only in the standing settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pick: Option<Pick>,
    /// Settings of processes that run now.
    #[serde(skip_serializing)]
    pub process: Vec<Process>,
}

/// A group's settings.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// For all members together, on each device.
    pub memory: Option<Value>,
    /// Each member's.
    pub weight: Option<Value>,
    /// Each member's.
    pub cap: Option<Value>,
}

/// A rule: who, and what holds for them. In a text `*` stands for any number of characters.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct RuleEntry {
    /// What `ps` and the log call it.
    pub name: Option<String>,
    /// The processes of this user.
    pub user: Option<Value>,
    /// Those of this group.
    pub group: Option<String>,
    /// Those of this executable: a path, or a file's name.
    pub executable: Option<String>,
    /// Those in this container.
    pub container: Option<String>,
    /// Those with this label.
    pub label: Option<String>,
    /// Every process: for a rule without any of these conditions, so that a forgotten one does not limit the whole machine.
    pub all: Option<bool>,
    /// On each device.
    pub memory: Option<Value>,
    /// Of each.
    pub weight: Option<Value>,
    /// Of each.
    pub priority: Option<Value>,
    /// Of each.
    pub cap: Option<Value>,
    /// What they do when memory is refused.
    pub on_full: Option<Value>,
    /// After which idle time they are evicted.
    pub evict_after: Option<Value>,
}

/// What a device's business is made of, for `gpushare pick`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Pick {
    /// The worth of each claim of another pick; 0.5.
    pub claims: Option<f64>,
    /// Of each process in the lock's queue; 0.25.
    pub queue: Option<f64>,
    /// Of full utilisation; 1.
    pub utilisation: Option<f64>,
    /// Of full memory; 1.
    pub memory: Option<f64>,
    /// For how long NVML's figures may be used again; `1s`.
    pub max_age: Option<String>,
    /// For how many picks; 100.
    pub max_uses: Option<u32>,
}

/// A process's settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// pid, name:LABEL, group:G, user:U or all.
    pub target: String,
    /// Its quota.
    pub memory: Option<Value>,
    /// Its weight.
    pub weight: Option<Value>,
    /// Its priority.
    pub priority: Option<Value>,
    /// Its cap.
    pub cap: Option<Value>,
    /// Whether it is kept from the GPU.
    pub paused: Option<bool>,
    /// Do nothing when no such process runs.
    #[serde(default)]
    pub optional: bool,
}

/// `8GiB` or `200`: a person may leave the quotes off a number.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Without quotes.
    Number(i64),
    /// With quotes.
    Text(String),
}

impl Value {
    /// The value as typed on a command line.
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl Manifest {
    /// Reads a file; a mistake in it names the line.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = files::read_text(path)
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.shown())))?;
        Self::parse(&text).map_err(|error| {
            let error = error.to_string();
            Failure::usage(format!("{}: {}", path.shown(), error.trim_end()))
        })
    }

    /// Both together: what this one says stands above the same of the other, and its rules come first.
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
            manifest.group["team-a"].weight.as_ref().map(Value::text),
            Some("200".into())
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
    }
}
