//! One setting: its value and the time when it reverts, its source, and the edits that change it.

/// An edit of one setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Set<T> {
    /// Leaves it.
    #[default]
    Keep,
    /// Unsets it: launch, group or default.
    Inherit,
    /// Sets it.
    To(T),
    /// Sets it, or unsets it without a value, until it reverts by itself.
    For(Option<T>, Until<Option<T>>),
}

impl<T> Set<T> {
    /// Converts the value of the edit.
    pub fn map<U>(self, to: impl Fn(T) -> U) -> Set<U> {
        match self {
            Set::Keep => Set::Keep,
            Set::Inherit => Set::Inherit,
            Set::To(value) => Set::To(to(value)),
            Set::For(value, until) => Set::For(
                value.map(&to),
                Until {
                    ns: until.ns,
                    then: until.then.map(|then| then.map(&to)),
                },
            ),
        }
    }

    /// Returns true if the edit leaves the setting as it is.
    pub fn is_keep(&self) -> bool {
        matches!(self, Set::Keep)
    }

    /// The value, if it sets one.
    pub fn value(self) -> Option<T> {
        match self {
            Set::To(value) | Set::For(Some(value), _) => Some(value),
            Set::Keep | Set::Inherit | Set::For(None, _) => None,
        }
    }

    /// Returns the time when the setting reverts by itself.
    pub fn ends_ns(&self) -> Option<u64> {
        match self {
            Set::For(_, until) => Some(until.ns),
            _ => None,
        }
    }

    /// Returns the edit as a temporary one until a time on the segments' clock, after which the lasting value applies again.
    pub fn until(self, ns: u64) -> Set<T> {
        let ends = Until::lasting(ns);
        match self {
            Set::Keep => Set::Keep,
            Set::Inherit => Set::For(None, ends),
            Set::To(value) | Set::For(Some(value), _) => Set::For(Some(value), ends),
            Set::For(None, _) => Set::For(None, ends),
        }
    }

    /// Lists the values that the edit names: the value it sets, and the one that follows.
    pub fn values(self) -> impl Iterator<Item = T> {
        let (value, then) = match self {
            Set::Keep | Set::Inherit => (None, None),
            Set::To(value) => (Some(value), None),
            Set::For(value, until) => (value, until.then.flatten()),
        };
        value.into_iter().chain(then)
    }

    /// Returns true if the value would end before it begins, and the edit does not name the value that follows.
    pub fn is_late(&self, now_ns: u64) -> bool {
        matches!(self, Set::For(_, until) if until.then.is_none() && until.ns <= now_ns)
    }
}

impl<T: Copy> Set<T> {
    /// Sets, unsets or leaves the setting; returns the edit that would undo this.
    pub fn apply(&self, setting: &mut Timed<T>, now_ns: u64) -> Set<T> {
        let before = setting.settled(now_ns);
        let after = match self {
            Set::Keep => return Set::Keep,
            Set::Inherit => Timed::lasts(None),
            Set::To(value) => Timed::lasts(Some(*value)),
            Set::For(value, until) => Timed {
                value: *value,
                // One for a while reverts to the lasting one below it, not to another of that kind.
                then: until.then.unwrap_or(before.lasting()),
                until_ns: until.ns,
            },
        };
        // A late edit leaves the setting as it is after its end.
        *setting = after.settled(now_ns);
        before.set()
    }
}

/// A setting that may revert by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed<T> {
    /// The value that holds until then; `None` is unset.
    pub value: Option<T>,
    /// The value that holds from then on.
    pub then: Option<T>,
    /// Time when `then` takes over; 0 is never.
    pub until_ns: u64,
}

impl<T> Default for Timed<T> {
    fn default() -> Self {
        Timed::lasts(None)
    }
}

impl<T> Timed<T> {
    /// Makes a lasting setting.
    pub const fn lasts(value: Option<T>) -> Self {
        Timed {
            value,
            then: None,
            until_ns: 0,
        }
    }
}

impl<T: Copy> Timed<T> {
    /// Returns the value in force at a time.
    pub fn at(&self, now_ns: u64) -> Option<T> {
        self.settled(now_ns).value
    }

    /// Returns the setting without a temporary value that has ended.
    pub fn settled(self, now_ns: u64) -> Self {
        if self.until_ns == 0 || self.until_ns > now_ns {
            return self;
        }
        Timed::lasts(self.then)
    }

    /// Returns the value in force after the temporary one.
    pub fn lasting(&self) -> Option<T> {
        self.settled(u64::MAX).value
    }

    /// Returns the end of the temporary value, for an edit that restores it.
    pub fn until(&self) -> Option<Until<Option<T>>> {
        (self.until_ns != 0).then_some(Until {
            ns: self.until_ns,
            then: Some(self.then),
        })
    }

    /// Returns the edit that sets the present value.
    pub fn set(&self) -> Set<T> {
        match self.until() {
            Some(until) => Set::For(self.value, until),
            None => self.value.map_or(Set::Inherit, Set::To),
        }
    }

    /// Returns the time when the setting reverts, if that is in the future.
    pub fn reverts(&self, now_ns: u64) -> Option<u64> {
        (self.until_ns > now_ns).then_some(self.until_ns)
    }
}

/// The time when a setting reverts by itself, and the value that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until<T> {
    /// On the segments' clock.
    pub ns: u64,
    /// The value that follows; `None` is the lasting value in force at the edit. An edit that names the value may arrive after
    /// `until_ns`: it then sets this value at once.
    pub then: Option<T>,
}

impl<T> Until<T> {
    /// A time at which the lasting value returns.
    pub const fn lasting(ns: u64) -> Self {
        Self { ns, then: None }
    }
}

/// Another priority for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boost {
    /// -20 to 19.
    pub priority: i32,
    /// Time when the setting reverts.
    pub until_ns: u64,
}

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
