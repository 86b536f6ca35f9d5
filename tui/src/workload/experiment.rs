//! Experiments: the same workloads under one lock configuration after another, measured side by side.
//!
//! A plan is a TOML file. One task is the *urgent* one: it is driven from here, round by round, and
//! each round's latency is taken from the first launch to the end of its last kernel. The others run
//! as fast as they are let; their kernels are counted. Every configuration gets a fresh stage, so
//! none inherits the history of the one before.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use shm_layout::text::PathText as _;

use crate::text::exit::Failure;
use crate::text::units;

pub mod play;
pub mod report;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// How long each configuration is measured.
    pub seconds: f64,
    /// The simulated machine, where there is no real one.
    #[serde(default = "one_gpu")]
    pub scenario: String,
    /// The workloads.
    #[serde(rename = "task")]
    pub tasks: Vec<Task>,
    /// The lock configurations.
    #[serde(rename = "config")]
    pub configs: Vec<Config>,
}

fn one_gpu() -> String {
    "one-gpu".into()
}

/// One workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its label.
    pub name: String,
    /// The one whose latency is measured; exactly one task is.
    #[serde(default)]
    pub urgent: bool,
    /// How many of them run.
    #[serde(default = "one")]
    pub count: u32,
    /// Length of a kernel.
    pub kernel_us: u64,
    /// Kernels in a round.
    #[serde(default = "one")]
    pub burst: u32,
    /// Pause after a round.
    #[serde(default)]
    pub gap_us: u64,
    /// Memory held.
    #[serde(default)]
    pub memory: Option<String>,
    /// -20 to 19.
    #[serde(default)]
    pub priority: Option<i64>,
    /// 1 to 1000.
    #[serde(default)]
    pub weight: Option<i64>,
}

fn one() -> u32 {
    1
}

/// One lock configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What the table calls it.
    pub name: String,
    /// The operator's policy.
    #[serde(default)]
    pub policy: Option<String>,
    /// Variables of every task: other tools' names, for instance.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables of the urgent task only.
    #[serde(default)]
    pub urgent_env: BTreeMap<String, String>,
}

impl Plan {
    /// Reads and checks a file; nothing runs before all of it makes sense.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.shown())))?;
        Self::parse(&text).map_err(|why| Failure::usage(format!("{}: {why}", path.shown())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let plan: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), String> {
        if !(0.1..=3600.0).contains(&self.seconds) {
            return Err(format!(
                "seconds = {} is out of range; must be between 0.1 and 3600",
                self.seconds
            ));
        }
        match self.tasks.iter().filter(|task| task.urgent).count() {
            1 => {}
            count => {
                return Err(format!(
                    "{count} tasks are urgent; mark exactly one, whose latency is measured"
                ));
            }
        }
        for task in &self.tasks {
            task.check()
                .map_err(|why| format!("task {:?}: {why}", task.name))?;
        }
        if self.configs.is_empty() {
            return Err("there is no [[config]] to try".into());
        }
        for config in &self.configs {
            if let Some(policy) = &config.policy {
                units::policy(policy)
                    .map_err(|error| format!("config {:?}: policy: {error}", config.name))?;
            }
        }
        Ok(())
    }

    /// The task whose latency is measured.
    pub fn urgent(&self) -> &Task {
        self.tasks
            .iter()
            .find(|task| task.urgent)
            .expect("a plan is checked to have exactly one")
    }

    /// The others.
    pub fn background(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().filter(|task| !task.urgent)
    }
}

impl Task {
    fn check(&self) -> Result<(), String> {
        let within =
            |name: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
                true => Ok(()),
                false => Err(format!(
                    "{name} = {value} is out of range; must be between {least} and {most}"
                )),
            };
        within("kernel_us", self.kernel_us, 1, 60_000_000)?;
        within("burst", self.burst.into(), 1, 100_000)?;
        within("gap_us", self.gap_us, 0, 60_000_000)?;
        within(
            "count",
            self.count.into(),
            1,
            if self.urgent { 1 } else { 64 },
        )?;
        if let Some(memory) = &self.memory {
            units::parse_size(memory).map_err(|error| format!("memory: {error}"))?;
        }
        Ok(())
    }

    /// The names of its processes.
    pub fn names(&self) -> Vec<String> {
        match self.count {
            1 => vec![self.name.clone()],
            count => (1..=count)
                .map(|number| format!("{}-{number}", self.name))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_plan_makes_sense_and_has_the_four_known_modes_beside_ours() {
        let text = include_str!("../../../assets/experiments/priority.toml");
        let plan = Plan::parse(text).expect("the shipped plan");
        for known in ["N_SYNC", "MAX_SYNC_MS", "ALWAYS_LOCK", "SYNC_LOCK_SKIPS"] {
            let has = |config: &Config| {
                config
                    .env
                    .keys()
                    .chain(config.urgent_env.keys())
                    .any(|name| name.ends_with(known))
            };
            assert!(plan.configs.iter().any(has), "{known}");
        }
        assert!(plan.configs.iter().any(|config| config.policy.is_some()));
    }

    #[test]
    fn a_plan_that_makes_no_sense_says_where() {
        let task = "[[task]]\nname = 'a'\nkernel_us = 10\nurgent = true\n[[config]]\nname = 'x'\n";
        assert!(Plan::parse(&format!("seconds = 1\n{task}")).is_ok());
        for (wrong, names) in [
            (format!("seconds = 0\n{task}"), "seconds"),
            (format!("seconds = 1\n{task}policy = 'slice=1'"), "slice"),
            (
                format!("seconds = 1\n{}", task.replace("10", "0")),
                "kernel_us",
            ),
            (
                format!("seconds = 1\n{}", task.replace("true", "false")),
                "urgent",
            ),
            (format!("seconds = 1\nspeed = 1\n{task}"), "speed"),
        ] {
            let why = Plan::parse(&wrong).expect_err(names);
            assert!(why.contains(names), "{why}");
        }
    }
}
