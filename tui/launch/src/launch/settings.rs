//! The settings of a program at its start, and the variables that carry them.

use std::ffi::OsString;

use clap::Args;
use shm_layout::environment::Environment;
use shm_layout::{EvictAfter, MemoryLimit, OnFull, PolicyKind};

use gpushare_base::text::exit::Failure;
use gpushare_base::text::names::{check_group, check_label};
use gpushare_base::text::units;
use shm_layout::variables;

use super::wrong_value;

/// What `gpushare run` was asked for; nothing is checked yet.
#[derive(Debug, Clone, Default, Args)]
pub struct Settings {
    /// Run on one device: its number, its UUID, or `auto` for the least busy one
    #[arg(long, value_name = "auto|N|UUID")]
    pub gpu: Option<String>,
    /// Quota: a size (8GiB, 512M), a share of the device (25%), none, or one per device (0:8GiB,1:50%)
    #[arg(long, value_name = "SIZE|%")]
    pub memory: Option<String>,
    /// What an allocation does that finds no room: fail at once, wait for it, or wait=TIME (wait=10m) [default: fail]
    ///
    /// It waits in line while its quota, its group's or the device is full, and gets its memory when there is room; after TIME
    /// it fails as it would have. gpushare set TARGET on-full=… changes it while the program runs.
    #[arg(long, value_name = "fail|wait[=TIME]")]
    pub on_full: Option<String>,
    /// When it has not called the driver for this long, evict its memory to the host until its next call [default: never]
    ///
    /// The driver copies all it has on its devices to the host, others use the room, and its next call waits until it is back.
    /// What the driver cannot evict is left where it is; gpushare ps --json says why.
    #[arg(long, value_name = "TIME")]
    pub evict_after: Option<String>,
    /// Make its allocations so that an eviction takes seconds: a copy at the speed of the link, and no checkpoint
    ///
    /// Allocations of 2 MiB and more get their memory in another way, at addresses that stay when it leaves. They cannot be shared
    /// with other processes through CUDA's IPC. The host keeps the pinned memory that the copy has once taken.
    #[arg(long)]
    pub swappable: bool,
    /// Share of the device's time relative to others under order=fair, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub weight: Option<String>,
    /// Priority under order=priority, -20 to 19; the highest gets the lock next [default: 0]
    ///
    /// Under gpushare mps it also decides the priority in MPS, which stays until the program ends: above 0 is MPS's
    /// normal priority, 0 and below is the one below normal. CUDA_MPS_CLIENT_PRIORITY, where it is set, takes precedence.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub priority: Option<String>,
    /// Upper limit of its share of the device's time, 1% to 100%
    ///
    /// Under gpushare mps it limits the time in the same way; --mps-threads limits the SMs.
    #[arg(long, value_name = "%")]
    pub cap: Option<String>,
    /// Join this group and use its quota, weight and cap
    #[arg(long, value_name = "G")]
    pub group: Option<String>,
    /// Name of the job whose processes have their turns on all their devices together, or none
    ///
    /// Without it the processes of one job of torchrun, MPI or Slurm have, as their environment tells, and those that one
    /// session started in one group.
    #[arg(long, value_name = "JOB")]
    pub gang: Option<String>,
    /// Label of the program in all displays; name:LABEL selects it as a target
    #[arg(long, value_name = "LABEL")]
    pub name: Option<String>,
    /// Lock policy unless the operator has set one, such as "timeslice=5ms order=fair"
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Run on the simulated GPU; SCENARIO is a name or a TOML file [default: two-gpus]
    #[arg(long, value_name = "SCENARIO", num_args = 0..=1)]
    pub sim: Option<Option<String>>,
    /// Start the program only if it joins the MPS that gpushare mps start runs
    #[arg(long, conflicts_with = "no_mps")]
    pub mps: bool,
    /// Do not join the MPS that gpushare mps start runs
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

/// A setting that is passed in a variable.
struct Carried {
    option: &'static str,
    variable: &'static str,
    means: Means,
    of: fn(&Settings) -> &Option<String>,
    check: fn(&str, &str) -> Result<(), Failure>,
}

/// The consequence if a setting cannot be enforced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// Others rely on the setting, so the program is not started.
    Limit,
    /// The setting only orders or names; the program is started without it.
    Wish,
}

/// Fills the table: option, variable, field, consequence, and the parser that checks a value.
macro_rules! carried {
    ($($option:literal $variable:ident $field:ident $means:ident $check:expr;)*) => {
        const CARRIED: &[Carried] = &[$(Carried {
            option: $option,
            variable: variables::$variable,
            means: Means::$means,
            of: |settings| &settings.$field,
            check: $check,
        },)*];
    };
}

carried! {
    "--memory" MEMORY memory Limit |what, text| right(what, units::parse_memory_list(text));
    "--on-full" ON_FULL on_full Wish |what, text| right(what, text.parse::<OnFull>());
    "--evict-after" EVICT_AFTER evict_after Wish |what, text| right(what, text.parse::<EvictAfter>());
    "--weight" WEIGHT weight Wish |what, text| right(what, units::parse_integer(text, 1, 1000));
    "--priority" PRIORITY priority Wish |what, text| right(what, units::parse_integer(text, -20, 19));
    "--cap" CAP cap Limit |what, text| right(what, units::parse_percent(text));
    "--group" GROUP group Limit check_group;
    "--gang" GANG gang Wish check_label;
    "--name" NAME name Wish check_label;
    "--policy" POLICY policy Limit |what, text| right(what, units::policy(text));
}

fn right<T>(what: &str, read: Result<T, units::TextError>) -> Result<(), Failure> {
    read.map(drop).map_err(|error| wrong_value(what, &error))
}

fn limiting() -> impl Iterator<Item = &'static Carried> {
    CARRIED
        .iter()
        .filter(|carried| carried.means == Means::Limit)
}

/// Returns true if another tool's variable ends in a device's number and so belongs to one device.
fn is_alias(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let stem = stem.strip_suffix('_').unwrap_or(name);
    let mut known = shm_layout::ALIASES.iter();
    known.any(|alias| *alias == name || *alias == stem)
}

/// The kinds of limits that are set by variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    memory: bool,
    cap: bool,
    group: bool,
    policy: bool,
}

impl Asked {
    fn of(environment: &Environment) -> Self {
        let limits = &environment.limits;
        let is_limit = |memory: &MemoryLimit| {
            matches!(memory, MemoryLimit::Bytes(_) | MemoryLimit::Percent(_))
        };
        Self {
            memory: limits.memory.iter().any(is_limit),
            cap: limits.settings.cap.is_some_and(|percent| percent < 100),
            group: limits.group.is_some(),
            policy: limits
                .policy
                .is_some_and(|policy| policy.kind != PolicyKind::Off),
        }
    }

    fn any_of(self, other: Self) -> bool {
        self.memory && other.memory
            || self.cap && other.cap
            || self.group && other.group
            || self.policy && other.policy
    }
}

impl Settings {
    /// Returns the variables that carry the settings, each checked.
    pub fn variables(&self) -> Result<Vec<(&'static str, OsString)>, Failure> {
        self.mps_threads()?;
        let mut variables = Vec::new();
        for carried in CARRIED {
            if let Some(text) = (carried.of)(self) {
                (carried.check)(carried.option, text)?;
                variables.push((carried.variable, OsString::from(text)));
            }
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
        let mut wrong = environment.complaints.iter().chain(&environment.doubts);
        match wrong.next() {
            Some(complaint) => Err(wrong_value(&complaint.variable, &complaint.error)),
            None => Ok(environment),
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
        let here = CARRIED.iter().find(|carried| carried.variable == name);
        let here = here.and_then(|carried| (carried.of)(self).clone());
        let flag = || (self.swappable && name == variables::SWAPPABLE).then(|| "1".to_owned());
        here.or_else(flag)
            .or_else(|| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// Returns the name by which the user gave a value: the option if it was used, else the variable.
    pub fn said_by<'n>(&self, variable: &'n str) -> &'n str {
        let by_option = CARRIED
            .iter()
            .find(|carried| carried.variable == variable && (carried.of)(self).is_some());
        by_option.map_or(variable, |carried| carried.option)
    }

    /// Returns the names of the options and inherited variables that ask for limits. A value that means "no limit" does not
    /// count, nor does a variable that another one overrides.
    pub fn limits(&self) -> Vec<String> {
        let in_force = Asked::of(&Environment::read(&|name| self.value(name)));
        let asks = |variable: &str| {
            let only = |name: &str| self.value(name).filter(|_| name == variable);
            Asked::of(&Environment::read(&only)).any_of(in_force)
        };
        let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let other = inherited.filter(|name| is_alias(name));
        let ours = limiting().map(|carried| carried.variable.to_owned());
        ours.chain(other)
            .filter(|name| asks(name))
            .map(|name| self.said_by(&name).to_owned())
            .chain(self.limit_of_threads())
            .collect()
    }

    /// Returns the limits that the options ask for, and the variables in which a program may inherit others.
    pub fn limits_of_options(&self) -> (Vec<String>, Vec<&'static str>) {
        let asks = |carried: &&Carried| {
            let value = (carried.of)(self);
            let only = |name: &str| value.clone().filter(|_| name == carried.variable);
            Asked::of(&Environment::read(&only)) != Asked::default()
        };
        let options = limiting()
            .filter(asks)
            .map(|carried| carried.option.to_owned());
        let aliases = shm_layout::ALIASES.into_iter();
        let aliases = aliases.filter(|name| *name != variables::PFLOG);
        let variables = limiting().map(|carried| carried.variable).chain(aliases);
        let options = options.chain(self.limit_of_threads());
        (options.collect(), variables.collect())
    }

    /// Returns these settings as options of `gpushare run`.
    pub fn options(&self) -> Vec<String> {
        let said = |carried: &Carried| {
            Some(format!(
                "{}={}",
                carried.option,
                (carried.of)(self).as_ref()?
            ))
        };
        let mut options: Vec<String> = CARRIED.iter().filter_map(said).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_base::text::exit::Exit;

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
    fn a_value_that_means_no_limit_asks_for_none() {
        let asked = |settings: Settings| settings.limits_of_options().0;
        let memory = |text: &str| Settings {
            memory: Some(text.into()),
            ..Settings::default()
        };
        assert_eq!(asked(memory("8GiB")), ["--memory"]);
        assert_eq!(asked(memory("0:none,1:50%")), ["--memory"]);
        let unlimited = [
            memory("none"),
            memory("0:none,1:none"),
            Settings {
                cap: Some("100%".into()),
                policy: Some("off".into()),
                ..Settings::default()
            },
        ];
        for settings in unlimited {
            assert_eq!(asked(settings), [""; 0]);
        }
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
        let settings = Settings {
            memory: Some("0:8GiB,1:50%".into()),
            cap: Some("30%".into()),
            ..Settings::default()
        };
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
