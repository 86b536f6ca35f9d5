//! The source of a limit or setting.

/// Other tools' variables that a limit may have as its source, by the number that [`Source::Alias`] has in the segments: their
/// order never changes, and a new one comes behind the last.
pub const ALIASES: [&str; 12] = [
    "WRAPPER_MAX_MEMORY",
    "CUDA_OVERRIDE_KERNEL_N_SYNC",
    "CUDA_OVERRIDE_MAX_SYNC_MS",
    "CUDA_OVERRIDE_ALWAYS_LOCK",
    "CUDA_OVERRIDE_SYNC_LOCK_SKIPS",
    "ALNAIR_VGPU_COMPUTE_PERCENTILE",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_SM_LIMIT",
    "CUDA_MEM_LIMIT",
    "PFLOG",
    "CUDA_CORE_LIMIT",
    "CUDA_TASK_PRIORITY",
];

/// The source of a limit or setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Source {
    /// Default value, because none was set.
    #[default]
    Default,
    /// A `GPUSHARE_*` variable or a flag of `gpushare run`.
    LaunchEnv,
    /// Another tool's variable; an index into [`ALIASES`].
    Alias(u8),
    /// The operator.
    Operator,
    /// The process's group.
    Group,
    /// A rule of the operator that the process matches.
    Rule,
    /// An invalid value was given; it was not applied.
    Invalid,
}

impl Source {
    /// In one word, as tables and JSON show it.
    pub fn word(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::LaunchEnv => "launch",
            Source::Alias(index) => ALIASES.get(usize::from(index)).copied().unwrap_or("alias"),
            Source::Operator => "operator",
            Source::Group => "group",
            Source::Rule => "rule",
            Source::Invalid => "invalid",
        }
    }

    /// From [`word`](Self::word); a word of a later version is the default.
    pub fn of_word(word: &str) -> Source {
        match word {
            "launch" => Source::LaunchEnv,
            "operator" => Source::Operator,
            "group" => Source::Group,
            "rule" => Source::Rule,
            "invalid" => Source::Invalid,
            _ => Source::of_alias(word).unwrap_or_default(),
        }
    }

    /// The source that another tool's variable is.
    pub fn of_alias(name: &str) -> Option<Source> {
        let index = ALIASES.iter().position(|alias| *alias == name)?;
        u8::try_from(index).ok().map(Source::Alias)
    }

    /// Returns the number in a segment.
    pub fn code(self) -> u64 {
        match self {
            Source::Default => 0,
            Source::LaunchEnv => 1,
            Source::Operator => 2,
            Source::Group => 3,
            Source::Invalid => 4,
            Source::Rule => 5,
            Source::Alias(index) => 16 + u64::from(index),
        }
    }

    /// Decodes a source from a number in a segment; an unknown number is the default.
    pub fn of_code(code: u64) -> Source {
        match code & 0xff {
            1 => Source::LaunchEnv,
            2 => Source::Operator,
            3 => Source::Group,
            4 => Source::Invalid,
            5 => Source::Rule,
            alias if alias >= 16 && ((alias - 16) as usize) < ALIASES.len() => {
                Source::Alias((alias - 16) as u8)
            }
            _ => Source::Default,
        }
    }
}
