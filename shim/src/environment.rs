//! The environment a process was started with: what every variable we read asks for.
//! [`variables`] lists them.
//!
//! Read once, at registration. What the operator says stands above all of this; a `GPUSHARE_*` variable stands above
//! another tool's variable of the same meaning (an *alias*, see [`aliases`]); the shared segments learn where each limit
//! came from. An invalid value is never dropped in silence: it becomes one line in
//! [`Environment::complaints`], and its limit shows the source `invalid`.

mod aliases;

use std::path::PathBuf;

use shm_layout::text::{self, Amount, MemoryList, TextError};
use shm_layout::trace::RECORDS;
use shm_layout::{DEVICES_PER_PROCESS, LaunchLimits, LockPolicy, MemoryLimit, Source, variables};

/// Bytes of a process's name in the segment.
const LONGEST_LABEL: usize = 63;
/// Bytes of a group's name in the segment.
const LONGEST_GROUP: usize = 31;

/// How much we say on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// Nothing at all.
    Off,
    /// What the person at the terminal must know.
    #[default]
    Warn,
    /// Also that we are there, and under which slot.
    Info,
}

/// What the environment asks for.
#[derive(Debug, Default)]
pub struct Environment {
    /// The limits to register with.
    pub limits: LaunchLimits,
    /// The process's name (`GPUSHARE_NAME`).
    pub label: String,
    /// Touch nothing (`GPUSHARE_DISABLE`).
    pub disabled: bool,
    /// How much we say.
    pub log: Log,
    /// NVML's memory info inside the process agrees with the quota.
    pub nvml_view: bool,
    /// Where Alnair's files are written (`PFLOG`).
    pub profile: Option<PathBuf>,
    /// A trace from registration on, with room for so many records (`GPUSHARE_TRACE`).
    pub trace: Option<u32>,
    /// One line for each invalid value, without a line break.
    pub complaints: Vec<String>,
}

impl Environment {
    /// This process's.
    pub fn of_self() -> Self {
        Self::read(&|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// What `get` says the variables hold. An empty variable is one that is not set.
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut reader = Reader {
            get,
            complaints: Vec::new(),
        };
        let mut environment = Self {
            label: reader
                .own(variables::NAME, |text| read_name(text, LONGEST_LABEL))
                .unwrap_or_default(),
            disabled: reader.switch(variables::DISABLE, false),
            log: reader.own(variables::LOG, read_log).unwrap_or_default(),
            nvml_view: reader.switch(variables::NVML_VIEW, true),
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
        limits.invalid = !reader.complaints.is_empty();
        environment.complaints = reader.complaints;
        environment
    }
}

/// Looks variables up and collects what is wrong with them.
struct Reader<'g> {
    get: &'g dyn Fn(&str) -> Option<String>,
    complaints: Vec<String>,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.get)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    fn complain(&mut self, name: &str, error: &dyn std::fmt::Display) {
        self.complaints
            .push(format!("{name}: {error}; the value is ignored"));
    }

    /// A variable of ours, read by `parse`.
    fn own<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, TextError>) -> Option<T> {
        match parse(&self.text(name)?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.complain(name, &error);
                None
            }
        }
    }

    fn switch(&mut self, name: &str, default: bool) -> bool {
        self.own(name, read_switch).unwrap_or(default)
    }

    /// Whether the variable is there, well formed or not.
    fn is_set(&self, name: &str) -> bool {
        self.text(name).is_some()
    }
}

fn memory(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    if reader.is_set(variables::MEMORY) {
        let list = reader.own(variables::MEMORY, text::parse_memory_list);
        limits.memory_source = said(list.is_some(), Source::LaunchEnv);
        limits.memory = list.map(|list| by_ordinal(&list)).unwrap_or_default();
    } else {
        aliases::memory(reader, limits);
    }
}

fn share(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    let before = reader.complaints.len();
    limits.weight = reader.own(variables::WEIGHT, |text| unsigned(text, 1, 1000));
    limits.priority = reader.own(variables::PRIORITY, |text| {
        text::parse_integer(text, -20, 19).map(|value| i32::try_from(value).unwrap_or(0))
    });
    limits.cap = reader.own(variables::CAP, text::parse_percent);
    let any = limits.weight.is_some() || limits.priority.is_some() || limits.cap.is_some();
    if reader.complaints.len() > before || any {
        limits.share_source = said(reader.complaints.len() == before, Source::LaunchEnv);
    }
    if !reader.is_set(variables::CAP) {
        aliases::cap(reader, limits);
    }
}

fn policy(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    if reader.is_set(variables::POLICY) {
        limits.policy = reader.own(variables::POLICY, |text| {
            text::parse_policy(&[text])?.apply(LockPolicy::default())
        });
        limits.policy_source = said(limits.policy.is_some(), Source::LaunchEnv);
    } else {
        aliases::policy(reader, limits);
    }
}

fn said(well: bool, source: Source) -> Source {
    if well { source } else { Source::Invalid }
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

/// A name that the segments have room for and a table on a screen can show.
fn read_name(text: &str, longest: usize) -> Result<String, TextError> {
    text::visible(text)?;
    if text.len() > longest {
        let start: String = text.chars().take(longest).collect();
        let why = format!("{start:?} is not a name: at most {longest} bytes");
        return Err(TextError::Conflict { why });
    }
    Ok(text.to_owned())
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
