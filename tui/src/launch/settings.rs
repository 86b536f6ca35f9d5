//! The settings a person gives a program at its start, and the variables that carry them.

use std::ffi::OsString;

use clap::Args;

use crate::environment;
use crate::exit::Failure;
use crate::units;

use super::wrong_value;

/// The longest group name a segment can hold.
const GROUP_BYTES: usize = 31;
/// The longest label a segment can hold.
const LABEL_BYTES: usize = 63;

/// What `gpushare run` was asked for; nothing is checked yet.
#[derive(Debug, Clone, Default, Args)]
pub struct Settings {
    /// Run on one device: its number, its UUID, or `auto` for the least busy one
    #[arg(long, value_name = "auto|N|UUID")]
    pub gpu: Option<String>,
    /// Quota: a size (8GiB, 512M), a share of the device (25%), none, or one per device (0:8GiB,1:50%)
    #[arg(long, value_name = "SIZE|%")]
    pub memory: Option<String>,
    /// Share of the device's time against others under order=fair, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub weight: Option<String>,
    /// Place in the queue under order=priority, -20 to 19, higher first [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub priority: Option<String>,
    /// The most of the device's time, 1% to 100%
    #[arg(long, value_name = "%")]
    pub cap: Option<String>,
    /// Share this group's quota, weight and cap
    #[arg(long, value_name = "G")]
    pub group: Option<String>,
    /// Name to show it under and to find it by as name:LABEL
    #[arg(long, value_name = "LABEL")]
    pub name: Option<String>,
    /// Lock policy where the operator has set none, such as "timeslice=5ms order=fair"
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Run on the simulated GPU, perhaps on another scenario than two-gpus (a name or a TOML file)
    #[arg(long, value_name = "SCENARIO", num_args = 0..=1)]
    pub sim: Option<Option<String>>,
}

impl Settings {
    /// The variables that carry the settings, each checked.
    pub fn variables(&self) -> Result<Vec<(&'static str, OsString)>, Failure> {
        let mut variables = Vec::new();
        let mut carry =
            |variable, text: &Option<String>, check: &dyn Fn(&str) -> Result<(), Failure>| {
                if let Some(text) = text {
                    check(text)?;
                    variables.push((variable, OsString::from(text)));
                }
                Ok::<(), Failure>(())
            };
        carry(environment::MEMORY, &self.memory, &|text| {
            units::parse_memory_list(text)
                .map(drop)
                .map_err(|error| wrong_value("--memory", &error))
        })?;
        carry(environment::WEIGHT, &self.weight, &|text| {
            units::parse_integer(text, 1, 1000)
                .map(drop)
                .map_err(|error| wrong_value("--weight", &error))
        })?;
        carry(environment::PRIORITY, &self.priority, &|text| {
            units::parse_integer(text, -20, 19)
                .map(drop)
                .map_err(|error| wrong_value("--priority", &error))
        })?;
        carry(environment::CAP, &self.cap, &|text| {
            units::parse_percent(text)
                .map(drop)
                .map_err(|error| wrong_value("--cap", &error))
        })?;
        carry(environment::GROUP, &self.group, &|text| {
            check_name("--group", text, GROUP_BYTES)
        })?;
        carry(environment::NAME, &self.name, &|text| {
            check_name("--name", text, LABEL_BYTES)
        })?;
        carry(environment::POLICY, &self.policy, &check_policy)?;
        Ok(variables)
    }
}

impl Settings {
    /// The same settings as options of `gpushare run`.
    pub fn options(&self) -> Vec<String> {
        let named = [
            ("--gpu", &self.gpu),
            ("--memory", &self.memory),
            ("--weight", &self.weight),
            ("--priority", &self.priority),
            ("--cap", &self.cap),
            ("--group", &self.group),
            ("--name", &self.name),
            ("--policy", &self.policy),
        ];
        let mut options: Vec<String> = named
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)))
            .collect();
        match &self.sim {
            Some(Some(scenario)) => options.push(format!("--sim={scenario}")),
            Some(None) => options.push("--sim".into()),
            None => {}
        }
        options
    }
}

fn check_policy(text: &str) -> Result<(), Failure> {
    units::policy(text)
        .map(drop)
        .map_err(|error| wrong_value("--policy", &error))
}

/// A name fits its place in the segment and shows on one line.
pub fn check_name(what: &str, text: &str, most: usize) -> Result<(), Failure> {
    if text.is_empty() {
        return Err(Failure::usage(format!(
            "{what}: the name is empty; give 1 to {most} bytes"
        )));
    }
    if text.len() > most {
        return Err(Failure::usage(format!(
            "{what}: {text:?} has {} bytes; at most {most} fit",
            text.len()
        )));
    }
    if text.chars().any(char::is_control) {
        return Err(Failure::usage(format!(
            "{what}: {text:?} has control characters; use printable ones"
        )));
    }
    Ok(())
}

/// A group's name, checked.
pub fn check_group(what: &str, text: &str) -> Result<(), Failure> {
    check_name(what, text, GROUP_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn refused(settings: Settings) -> Failure {
        settings.variables().expect_err("must be refused")
    }

    #[test]
    fn each_wrong_value_is_named_before_anything_starts() {
        let memory = refused(Settings {
            memory: Some("8Q".into()),
            ..Settings::default()
        });
        assert!(
            memory
                .sentence
                .starts_with("--memory: \"8Q\" has an unknown unit"),
            "{memory}"
        );
        assert_eq!(memory.exit, Exit::Usage);
        for settings in [
            Settings {
                weight: Some("0".into()),
                ..Settings::default()
            },
            Settings {
                priority: Some("20".into()),
                ..Settings::default()
            },
            Settings {
                cap: Some("101%".into()),
                ..Settings::default()
            },
            Settings {
                group: Some(String::new()),
                ..Settings::default()
            },
            Settings {
                group: Some("g".repeat(32)),
                ..Settings::default()
            },
            Settings {
                name: Some("two\nlines".into()),
                ..Settings::default()
            },
            Settings {
                policy: Some("timeslice=0".into()),
                ..Settings::default()
            },
        ] {
            assert_eq!(refused(settings).exit, Exit::Usage);
        }
    }

    #[test]
    fn right_values_reach_the_program_as_they_were_written() {
        let settings = Settings {
            memory: Some("0:8GiB,1:50%".into()),
            cap: Some("30%".into()),
            ..Settings::default()
        };
        let variables = settings.variables().expect("all well formed");
        assert_eq!(
            variables,
            [
                (environment::MEMORY, "0:8GiB,1:50%".into()),
                (environment::CAP, "30%".into())
            ]
        );
    }
}
