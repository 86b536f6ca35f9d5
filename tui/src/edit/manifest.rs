//! Quotas, groups and policies written down in a file, for `gpushare apply`.
//!
//! ```toml
//! [policy]                     # "all", a device's number or its UUID
//! all = "timeslice=5ms order=fair"
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
//! [[process]]                  # those that run now
//! target = "name:train"
//! memory = "8GiB"
//! weight = 50
//! ```
//!
//! Everything is read and checked before anything is changed; an unknown key is an error.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use shm_layout::text::PathText as _;

use crate::text::exit::Failure;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Manifest {
    /// Lock policies by device.
    pub policy: BTreeMap<String, String>,
    /// Limits by device.
    pub limit: BTreeMap<String, Value>,
    /// Groups by name.
    pub group: BTreeMap<String, Group>,
    /// Settings of processes that run now.
    pub process: Vec<Process>,
}

/// A group's settings.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// For all members together, on each device.
    pub memory: Option<Value>,
    /// Each member's.
    pub weight: Option<Value>,
    /// Each member's.
    pub cap: Option<Value>,
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
#[derive(Debug, Clone, Deserialize)]
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
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.shown())))?;
        Self::parse(&text).map_err(|error| {
            let error = error.to_string();
            Failure::usage(format!("{}: {}", path.shown(), error.trim_end()))
        })
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
    }

    #[test]
    fn an_unknown_key_is_an_error_and_not_ignored() {
        assert!(Manifest::parse("[policies]\nall = 'off'").is_err());
        assert!(Manifest::parse("[group.a]\nmem = '1G'").is_err());
        assert!(Manifest::parse("[[process]]\nmemory = '1G'").is_err());
    }
}
