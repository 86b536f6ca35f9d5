//! The settings of a program at its start, and the variables that carry them.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use shm_layout::environment::{Complaint, Environment};
use shm_layout::variables::{self, Variable};

use gpushare_base::text::exit::Failure;
use gpushare_base::text::units;

use super::wrong_value;

/// The options of `gpushare run`, not yet checked.
#[derive(Debug, Clone, Default, Args)]
pub struct Settings {
    /// Run on one device: its number, its UUID, or `auto` for the least busy one
    ///
    /// If CUDA_VISIBLE_DEVICES is set here, it is one of the devices that the variable names.
    #[arg(long, value_name = "auto|N|UUID")]
    pub gpu: Option<String>,
    /// The settings that a variable carries to the program.
    #[command(flatten)]
    pub carried: Carried,
    /// Allocate so that an eviction takes seconds: a copy at the speed of the link instead of a checkpoint
    ///
    /// Allocations of 2 MiB and more get their memory in another way, at addresses that stay when it leaves. They cannot be shared
    /// with other processes through CUDA's IPC. The host keeps the pinned memory that the copy has once taken.
    #[arg(long)]
    pub swappable: bool,
    /// Run on the simulated GPU; SCENARIO is a name or a TOML file [default: two-gpus]
    #[arg(long, value_name = "SCENARIO", num_args = 0..=1)]
    pub sim: Option<Option<String>>,
    /// Start the program only if it joins the MPS that gpushare mps start has started
    #[arg(long, conflicts_with = "no_mps")]
    pub mps: bool,
    /// Do not join the MPS that gpushare mps start has started
    #[arg(long)]
    pub no_mps: bool,
    /// Under MPS, upper limit of its share of the SMs, 1% to 100%
    ///
    /// It is CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and cannot change while the program runs. --cap limits the time and can. With
    /// both, both hold.
    #[arg(long, value_name = "%", conflicts_with = "no_mps")]
    pub mps_threads: Option<String>,
    /// Start the program even if --memory, --cap, --group or --policy cannot be enforced, with a warning
    #[arg(long)]
    pub best_effort: bool,
}

/// The values of a variable whose option may stand alone.
const SWITCH: &str = "yes|no";

/// Values of the options that stand for a variable, by the variable's name. The table of variables has the options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried(BTreeMap<&'static str, String>);

impl Args for Carried {
    fn augment_args(command: Command) -> Command {
        command.args(variables::of_options().map(|variable| {
            let text = variable.meaning.replace('`', "");
            let (first, more) = text
                .split_once(". ")
                .unwrap_or((text.trim_end_matches('.'), ""));
            let argument = Arg::new(variable.option)
                .long(variable.option)
                .value_name(variable.values)
                .allow_negative_numbers(true)
                .help(first.to_owned());
            let argument = match variable.values {
                SWITCH => argument
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("yes"),
                _ => argument,
            };
            match more {
                "" => argument,
                more => argument.long_help(format!("{first}\n\n{more}")),
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Carried {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let said = |variable: &'static Variable| {
            Some((
                variable.name,
                matches.get_one::<String>(variable.option)?.clone(),
            ))
        };
        Ok(Self(variables::of_options().filter_map(said).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

fn option(variable: &Variable) -> String {
    format!("--{}", variable.option)
}

/// Returns the environment that a variable with this text makes.
fn alone(variable: &str, text: &str) -> Environment {
    Environment::read(&|name| (name == variable).then(|| text.to_owned()))
}

fn limiting() -> impl Iterator<Item = &'static Variable> {
    variables::of_options().filter(|variable| variable.is_limit)
}

/// Returns true if another tool's variable ends in a device's number and so belongs to one device.
fn is_alias(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = stem.strip_suffix('_').unwrap_or(name);
    let mut known = shm_layout::ALIASES.iter();
    known.any(|alias| *alias == name || *alias == stem)
}

impl Settings {
    /// Returns the value of the option for a variable.
    pub fn said(&self, variable: &str) -> Option<&str> {
        self.carried.0.get(variable).map(String::as_str)
    }

    /// Sets the value of the option for a variable, if there is one.
    pub fn with(mut self, variable: &'static str, text: Option<impl Into<String>>) -> Self {
        self.carried
            .0
            .extend(text.map(|text| (variable, text.into())));
        self
    }

    /// Returns the options that are given, each with its variable and its value.
    fn options_said(&self) -> impl Iterator<Item = (&'static Variable, &str)> {
        variables::of_options().filter_map(|variable| Some((variable, self.said(variable.name)?)))
    }

    /// Returns the variables that carry the settings, each checked.
    pub fn variables(&self) -> Result<Vec<(&'static str, OsString)>, Failure> {
        self.mps_threads()?;
        let mut variables = Vec::new();
        for (variable, text) in self.options_said() {
            if text.trim().is_empty() {
                return Err(Failure::usage(format!(
                    "{}: the value is empty",
                    option(variable)
                )));
            }
            first_fault(&alone(variable.name, text))
                .map_err(|error| wrong_value(&option(variable), &error.error))?;
            variables.push((variable.name, OsString::from(text)));
        }
        if self.swappable {
            variables.push((variables::SWAPPABLE, "1".into()));
        }
        Ok(variables)
    }

    /// Returns the environment of the program as the library will read it. Fails for a value that the library would ignore,
    /// or that clearly lacks a unit.
    pub fn environment(&self) -> Result<Environment, Failure> {
        let environment = Environment::read(&|name| self.value(name));
        match first_fault(&environment) {
            Err(complaint) => Err(wrong_value(&complaint.variable, &complaint.error)),
            Ok(()) => Ok(environment),
        }
    }

    /// Returns the share of the SMs under MPS in percent, checked.
    pub fn mps_threads(&self) -> Result<Option<u32>, Failure> {
        let read = self.mps_threads.as_deref().map(units::parse_percent);
        read.transpose()
            .map_err(|error| wrong_value("--mps-threads", &error))
    }

    /// Returns the option's name if it limits anything.
    fn limit_of_threads(&self) -> Option<String> {
        let limits = matches!(self.mps_threads(), Ok(Some(percent)) if percent < 100);
        limits.then(|| "--mps-threads".to_owned())
    }

    /// Returns the value that the program will find in a variable.
    fn value(&self, name: &str) -> Option<String> {
        let here = self.said(name).map(ToOwned::to_owned);
        let flag = || (self.swappable && name == variables::SWAPPABLE).then(|| "1".to_owned());
        here.or_else(flag)
            .or_else(|| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// Returns the name by which the user gave a value: the option if it was used, else the variable.
    pub fn said_by(&self, variable: &str) -> String {
        let by_option = self.options_said().find(|(said, _)| said.name == variable);
        by_option.map_or(variable.to_owned(), |(said, _)| option(said))
    }

    /// Returns the names of the options and inherited variables that ask for limits. A value that means "no limit" does not
    /// count, nor does a variable that another one overrides.
    pub fn limits(&self) -> Vec<String> {
        let in_force = Environment::read(&|name| self.value(name)).limits_asked();
        let asks = |variable: &str| {
            let asked = self
                .value(variable)
                .map(|text| alone(variable, &text).limits_asked());
            asked.is_some_and(|asked| asked.iter().any(|limit| in_force.contains(limit)))
        };
        let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let other = inherited.filter(|name| is_alias(name));
        let ours = limiting().map(|variable| variable.name.to_owned());
        ours.chain(other)
            .filter(|name| asks(name))
            .map(|name| self.said_by(&name))
            .chain(self.limit_of_threads())
            .collect()
    }

    /// Returns the limits that the options ask for, and the variables in which a program may inherit others.
    pub fn limits_of_options(&self) -> (Vec<String>, Vec<&'static str>) {
        let options = self
            .options_said()
            .filter(|(variable, text)| !alone(variable.name, text).limits_asked().is_empty())
            .map(|(variable, _)| option(variable))
            .chain(self.limit_of_threads());
        let aliases = shm_layout::ALIASES.into_iter();
        let aliases = aliases.filter(|name| *name != variables::PFLOG);
        let variables = limiting().map(|variable| variable.name).chain(aliases);
        (options.collect(), variables.collect())
    }

    /// Returns these settings as options of `gpushare run`.
    pub fn options(&self) -> Vec<String> {
        let said = |(variable, text)| format!("{}={text}", option(variable));
        let mut options: Vec<String> = self.options_said().map(said).collect();
        options.extend(self.gpu.iter().map(|gpu| format!("--gpu={gpu}")));
        match &self.sim {
            Some(Some(scenario)) => options.push(format!("--sim={scenario}")),
            Some(None) => options.push("--sim".into()),
            None => {}
        }
        options.extend(self.swappable.then(|| "--swappable".to_owned()));
        options.extend(self.mps.then(|| "--mps".to_owned()));
        options.extend(self.no_mps.then(|| "--no-mps".to_owned()));
        let threads = self.mps_threads.iter();
        options.extend(threads.map(|percent| format!("--mps-threads={percent}")));
        options.extend(self.best_effort.then(|| "--best-effort".to_owned()));
        options
    }
}

/// Fails with the first value that the library would ignore or that lacks a unit.
fn first_fault(environment: &Environment) -> Result<(), &Complaint> {
    let mut wrong = environment.complaints.iter().chain(&environment.doubts);
    wrong.next().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_base::text::exit::Exit;

    fn said(options: &[(&'static str, &str)]) -> Settings {
        let options = options.iter();
        options.fold(Settings::default(), |settings, (variable, text)| {
            settings.with(variable, Some(*text))
        })
    }

    #[test]
    fn each_wrong_value_is_named_before_anything_starts() {
        let refused = |variable: &'static str, text: &str| {
            let failure = said(&[(variable, text)]).variables();
            failure.expect_err("must be refused")
        };
        let memory = refused(variables::MEMORY, "8Q");
        assert!(
            memory
                .sentence
                .starts_with("--memory: \"8Q\" has an unknown unit"),
            "{memory}"
        );
        let long = "g".repeat(32);
        for (variable, text) in [
            (variables::MEMORY, "8Q"),
            (variables::WEIGHT, "0"),
            (variables::PRIORITY, "20"),
            (variables::CAP, "101%"),
            (variables::GROUP, ""),
            (variables::GROUP, &long),
            (variables::NAME, "two\nlines"),
            (variables::POLICY, "timeslice=0"),
        ] {
            assert_eq!(refused(variable, text).exit, Exit::Usage, "{variable}");
        }
    }

    #[test]
    fn a_value_that_means_no_limit_asks_for_none() {
        let asked = |options: &[(&'static str, &str)]| said(options).limits_of_options().0;
        for text in ["8GiB", "0:none,1:50%"] {
            assert_eq!(asked(&[(variables::MEMORY, text)]), ["--memory"]);
        }
        for text in ["none", "0:none,1:none"] {
            assert_eq!(asked(&[(variables::MEMORY, text)]), [""; 0]);
        }
        assert_eq!(
            asked(&[(variables::CAP, "100%"), (variables::POLICY, "off")]),
            [""; 0]
        );
    }

    #[test]
    fn what_a_wrapped_program_was_told_of_mps_it_says_at_each_start() {
        let settings = Settings {
            no_mps: true,
            ..Settings::default()
        };
        assert_eq!(settings.options(), ["--no-mps"]);
        let settings = Settings {
            mps: true,
            ..Settings::default()
        };
        assert_eq!(settings.options(), ["--mps"]);
        let settings = Settings {
            mps_threads: Some("50%".into()),
            ..Settings::default()
        };
        assert_eq!(settings.options(), ["--mps-threads=50%"]);
    }

    #[test]
    fn right_values_reach_the_program_as_they_were_written() {
        let settings = said(&[(variables::MEMORY, "0:8GiB,1:50%"), (variables::CAP, "30%")]);
        let variables = settings.variables().expect("all well formed");
        assert_eq!(
            variables,
            [
                (variables::MEMORY, "0:8GiB,1:50%".into()),
                (variables::CAP, "30%".into())
            ]
        );
    }
}
