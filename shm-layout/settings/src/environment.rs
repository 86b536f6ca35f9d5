//! The environment of a process at its start: the settings that the library's variables ask for. [`variables`] lists them.
//!
//! The library reads it once, at registration. `gpushare run` reads it before the start with the same code, and refuses values
//! that the library would ignore. The operator's settings take precedence over all of these. A `GPUSHARE_*` variable takes
//! precedence over another tool's variable of the same meaning (an *alias*, see `aliases`). The shared segments record the
//! source of each limit. An invalid value is never dropped in silence: it is one of [`Environment::complaints`], and its limit
//! shows the source `invalid`.

mod aliases;

use std::{fmt, path::PathBuf};

use crate::grammar::{self as text, LONGEST_GROUP, LONGEST_LABEL, TextError};
use crate::launch::{Gang, LaunchLimits, MemoryLimit};
use crate::policy::LockPolicy;
use crate::table::{ReadVariable, SettingValues};
use crate::value::{self, Amount, DEVICES_PER_PROCESS, MemoryList, RECORDS, Source};
use crate::variables::{self, Launcher};

/// Amount of output on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// No output.
    Off,
    /// Messages that the person at the terminal needs.
    #[default]
    Warn,
    /// Also that we are there, and under which slot.
    Info,
}

/// The settings that the environment variables ask for.
#[derive(Debug, Default)]
pub struct Environment {
    /// The limits to register with.
    pub limits: LaunchLimits,
    /// The process's name (`GPUSHARE_NAME`).
    pub label: String,
    /// Touch nothing (`GPUSHARE_DISABLE`).
    pub disabled: bool,
    /// Amount of output on stderr.
    pub log: Log,
    /// NVML's memory info inside the process agrees with the quota.
    pub nvml_view: bool,
    /// Large allocations can be evicted without the driver's checkpoint (`GPUSHARE_SWAPPABLE`).
    pub swappable: bool,
    /// MPS is to let the kernels of clients of normal priority go first.
    pub mps_below_normal: bool,
    /// Path of Alnair's files (`PFLOG`).
    pub profile: Option<PathBuf>,
    /// Capacity in records of a trace from registration on (`GPUSHARE_TRACE`).
    pub trace: Option<u32>,
    /// The invalid values.
    pub complaints: Vec<Complaint>,
    /// The amounts that are in force although they probably lack a unit: without them the process would have no limit at all. A
    /// tool that starts a program refuses them.
    pub doubts: Vec<Complaint>,
    /// Advice on requests in other tools' variables that gpushare serves another way: a sentence each.
    pub advice: Vec<String>,
    /// The devices that have an amount of memory of their own, by ordinal, and the variable that gives it.
    pub named: Vec<(u8, String)>,
}

/// A variable with a value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Name of the variable.
    pub variable: String,
    /// The fault of the value.
    pub error: TextError,
}

impl fmt::Display for Complaint {
    /// Writes one line that follows the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable, self.error)
    }
}

impl Environment {
    /// Reads this process's environment.
    pub fn of_self() -> Self {
        Self::read(&|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// Reads the variables from `get`. An empty variable counts as unset.
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut reader = Reader {
            get,
            complaints: Vec::new(),
            doubts: Vec::new(),
            advice: Vec::new(),
            named: Vec::new(),
        };
        let mut environment = Self {
            label: reader
                .own(variables::NAME, |text| read_name(text, LONGEST_LABEL))
                .unwrap_or_default(),
            disabled: reader.switch(variables::DISABLE, false),
            log: reader.own(variables::LOG, read_log).unwrap_or_default(),
            nvml_view: reader.switch(variables::NVML_VIEW, true),
            swappable: reader.switch(variables::SWAPPABLE, false),
            mps_below_normal: reader
                .text(variables::MPS_CLIENT_PRIORITY)
                .is_some_and(|text| text.parse().is_ok_and(|priority: u32| priority > 0)),
            profile: aliases::profile(&mut reader),
            trace: reader.own(variables::TRACE, |text| {
                unsigned(text, i64::from(*RECORDS.start()), i64::from(*RECORDS.end()))
            }),
            ..Self::default()
        };
        let limits = &mut environment.limits;
        memory(&mut reader, limits);
        share(&mut reader, limits);
        policy(&mut reader, limits);
        limits.group = reader.own(variables::GROUP, |text| read_name(text, LONGEST_GROUP));
        limits.gang = job(&mut reader, limits.group.clone());
        aliases::without_counterpart(&mut reader);
        limits.invalid = !reader.complaints.is_empty();
        environment.complaints = reader.complaints;
        environment.doubts = reader.doubts;
        environment.advice = reader.advice;
        environment.named = reader.named;
        environment
    }

    /// Returns our variables of the limits that are asked for. A value that means "no limit" does not count.
    pub fn limits_asked(&self) -> Vec<&'static str> {
        let limits = &self.limits;
        let is_amount = |memory: &MemoryLimit| {
            matches!(memory, MemoryLimit::Bytes(_) | MemoryLimit::Percent(_))
        };
        let is_gated = |policy: LockPolicy| policy.kind.is_gated();
        let mut asked = limits.settings.limits();
        for (variable, is_asked) in [
            (variables::MEMORY, limits.memory.iter().any(is_amount)),
            (variables::GROUP, limits.group.is_some()),
            (variables::POLICY, limits.policy.is_some_and(is_gated)),
        ] {
            asked.extend(is_asked.then_some(variable));
        }
        asked
    }

    /// Complains about amounts for devices that are not there, where the process sees `count` of them: such a limit
    /// holds nowhere.
    pub fn expect_devices(&mut self, count: usize) {
        let limits = &mut self.limits;
        let beyond = |(ordinal, _): &&(u8, String)| usize::from(*ordinal) >= count;
        for (ordinal, variable) in self.named.iter().filter(beyond) {
            let why = match count {
                0 => format!("it names device {ordinal}, but the program sees no device"),
                1 => format!("it names device {ordinal}, but the program sees only device 0"),
                _ => format!(
                    "it names device {ordinal}, but the program sees the devices 0 to {}",
                    count - 1
                ),
            };
            self.complaints.push(Complaint {
                variable: variable.clone(),
                error: TextError::Conflict { why },
            });
            limits.invalid = true;
        }
        let visible = &limits.memory[..count.min(DEVICES_PER_PROCESS)];
        let nothing_left = visible.iter().all(|limit| *limit == MemoryLimit::Unset);
        if nothing_left && self.named.iter().any(|named| beyond(&named)) {
            limits.memory_source = Source::Invalid;
        }
    }
}

/// Looks variables up and collects the faults of their values.
struct Reader<'g> {
    get: &'g dyn Fn(&str) -> Option<String>,
    complaints: Vec<Complaint>,
    doubts: Vec<Complaint>,
    advice: Vec<String>,
    named: Vec<(u8, String)>,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.get)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    /// A variable of ours, read by `parse`.
    fn own<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, TextError>) -> Option<T> {
        match parse(&self.text(name)?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.complaints.push(Complaint {
                    variable: name.to_owned(),
                    error,
                });
                None
            }
        }
    }

    /// An amount of memory, or a list of them, read by `parse`.
    fn amount<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, TextError>) -> Option<T> {
        let text = self.text(name)?;
        if let Err(error @ TextError::NoUnit { .. }) = parse(&text) {
            let value = self.own(name, |text| parse(&value::in_bytes(text)))?;
            self.doubts.push(Complaint {
                variable: name.to_owned(),
                error,
            });
            return Some(value);
        }
        self.own(name, parse)
    }

    fn switch(&mut self, name: &str, default: bool) -> bool {
        self.own(name, read_switch).unwrap_or(default)
    }

    /// Returns true if the variable is set, well formed or not.
    fn is_set(&self, name: &str) -> bool {
        self.text(name).is_some()
    }
}

impl ReadVariable for Reader<'_> {
    fn variable<T>(
        &mut self,
        name: &str,
        read: fn(&str) -> Result<T, TextError>,
    ) -> (Option<T>, Source) {
        if !self.is_set(name) {
            return (None, Source::Default);
        }
        let value = self.own(name, read);
        let source = source_or_invalid(value.is_some(), Source::LaunchEnv);
        (value, source)
    }
}

fn memory(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    if reader.is_set(variables::MEMORY) {
        let list = reader.amount(variables::MEMORY, value::parse_memory_list);
        limits.memory_source = source_or_invalid(list.is_some(), Source::LaunchEnv);
        let list = list.unwrap_or_default();
        limits.memory = by_ordinal(&list);
        let named = list.devices.iter();
        reader.named = named
            .map(|(ordinal, _)| (*ordinal, variables::MEMORY.to_owned()))
            .collect();
    } else {
        aliases::memory(reader, limits);
    }
}

fn share(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    (limits.settings, limits.sources) = SettingValues::of_launch(reader);
    let of = &limits.sources;
    let of_share = [of.weight, of.priority, of.cap];
    for source in [Source::LaunchEnv, Source::Invalid] {
        if of_share.contains(&source) {
            limits.share_source = source;
        }
    }
    if !reader.is_set(variables::CAP) {
        aliases::cap(reader, limits);
    }
    if !reader.is_set(variables::PRIORITY) {
        aliases::priority(reader, limits);
    }
}

fn policy(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    if reader.is_set(variables::POLICY) {
        limits.policy = reader.own(variables::POLICY, str::parse);
        limits.policy_source = source_or_invalid(limits.policy.is_some(), Source::LaunchEnv);
    } else {
        aliases::policy(reader, limits);
    }
}

/// The job the process belongs to, if that runs as several processes.
fn job(reader: &mut Reader<'_>, group: Option<String>) -> Option<Gang> {
    if reader.is_set(variables::GANG) {
        let name = reader.own(variables::GANG, |text| read_name(text, LONGEST_LABEL))?;
        return (name != "none").then_some(Gang::Named(name));
    }
    let found = |launcher: &Launcher| {
        let processes: u32 = reader.text(launcher.processes)?.parse().ok()?;
        let named = |name: &&str| Some(format!("{name}={}", reader.text(name)?));
        let names: Vec<String> = launcher.job.iter().filter_map(named).collect();
        (processes > 1 && !names.is_empty()).then(|| Gang::Found(names.join(" ")))
    };
    let launched = variables::LAUNCHERS.iter().find_map(found);
    launched.or_else(|| group.map(Gang::Group))
}

fn source_or_invalid(is_valid: bool, source: Source) -> Source {
    if is_valid { source } else { Source::Invalid }
}

fn by_ordinal(list: &MemoryList) -> [MemoryLimit; DEVICES_PER_PROCESS] {
    std::array::from_fn(
        |ordinal| match list.of(u8::try_from(ordinal).unwrap_or(u8::MAX)) {
            None => MemoryLimit::Unset,
            Some(Amount::Unlimited) => MemoryLimit::None,
            Some(Amount::Bytes(bytes)) => MemoryLimit::Bytes(bytes),
            Some(Amount::Percent(percent)) => MemoryLimit::Percent(percent),
        },
    )
}

fn unsigned(text: &str, least: i64, most: i64) -> Result<u32, TextError> {
    text::parse_integer(text, least, most).map(|value| u32::try_from(value).unwrap_or(0))
}

fn read_switch(text: &str) -> Result<bool, TextError> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "on" | "true" => Ok(true),
        "0" | "no" | "off" | "false" => Ok(false),
        _ => Err(TextError::UnknownWord {
            text: text.to_owned(),
            known: "1 or 0".into(),
        }),
    }
}

fn read_name(text: &str, longest: usize) -> Result<String, TextError> {
    text::check_name(text, longest).map(|()| text.to_owned())
}

fn read_log(text: &str) -> Result<Log, TextError> {
    match text {
        "off" => Ok(Log::Off),
        "warn" => Ok(Log::Warn),
        "info" => Ok(Log::Info),
        _ => Err(TextError::UnknownWord {
            text: text.to_owned(),
            known: "off, warn or info".into(),
        }),
    }
}

#[cfg(test)]
mod tests;
