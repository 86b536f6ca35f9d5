//! Where a limit or setting came from.

use crate::variables::ALIASES;

/// Where a limit or setting came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Source {
    /// Not set; the default applies.
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
}
