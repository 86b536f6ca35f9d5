//! The structs that have a field for each setting, and the functions that go through all settings.

use super::About;
use crate::grammar::TextError;

/// An edit of some settings, each by its word.
pub trait SettingEdit {
    /// The settings that it may change.
    const ROWS: &'static [&'static About];

    /// Sets one by its word; `inherit` unsets it.
    fn read(&mut self, word: &str, text: &str) -> Result<(), TextError>;

    /// Reports whether it changes the setting with this word.
    fn changes(&self, word: &str) -> bool;

    /// The words that a person may write as `word=value`, for a message.
    fn known_words() -> String {
        let typed = Self::ROWS.iter().filter(|about| about.is_typed());
        let words: Vec<String> = typed.map(|about| format!("{}=", about.word)).collect();
        words.join(", ")
    }
}

/// Declares the edit of a record's settings, and these settings as the record has them, for lines of a field, its row and
/// the type of its value. The record of a process has a boost beside them.
macro_rules! record {
    (
        $(#[$about_edit:meta])* $edit:ident,
        $(#[$about_record:meta])* $record:ident at $place:ident $(with $boost:ident)?;
        $($name:ident = $row:ident: $type:ty;)*
    ) => {
        $(#[$about_edit])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $edit {
            $(
                #[doc = concat!("See [`", stringify!($row), "`](crate::table::", stringify!($row), ").")]
                #[cfg_attr(
                    feature = "serde",
                    serde(default, with = "crate::value::stored::set", skip_serializing_if = "Set::is_keep")
                )]
                pub $name: Set<$type>,
            )*
            $(
                /// Another priority for a while.
                #[cfg_attr(
                    feature = "serde",
                    serde(default, with = "crate::value::stored::set", skip_serializing_if = "Set::is_keep")
                )]
                pub $boost: Set<Boost>,
            )?
        }

        $(#[$about_record])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $record {
            $(#[doc = concat!("See [`", stringify!($row), "`](crate::table::", stringify!($row), ").")] pub $name: Timed<$type>,)*
            $(
                /// Another priority for a while.
                pub $boost: Option<Boost>,
            )?
        }

        impl SettingEdit for $edit {
            const ROWS: &'static [&'static About] = &[$(&$row.about,)*];

            fn read(&mut self, word: &str, text: &str) -> Result<(), TextError> {
                $(
                    if word == $row.about.word {
                        self.$name = match text {
                            INHERIT => Set::Inherit,
                            "none" => $row.grammar.none.map_or(Set::Inherit, Set::To),
                            text => Set::To(($row.grammar.read)(text)?),
                        };
                        return Ok(());
                    }
                )*
                Err(TextError::UnknownWord { text: word.to_owned(), known: Self::known_words() })
            }

            fn changes(&self, word: &str) -> bool {
                $(word == $row.about.word && !self.$name.is_keep())||*
            }
        }

        impl $edit {
            /// Reports whether it changes nothing.
            pub fn is_none(&self) -> bool {
                *self == Self::default()
            }

            /// The words of all settings that it changes, each with its value as a person would type it.
            pub fn words(&self) -> Vec<(&'static str, Set<String>)> {
                let mut all = vec![$(($row.about.word, self.$name.map($row.grammar.show)),)*];
                $(
                    // The log shows a boost after the pause.
                    let pause = all.iter().position(|(word, _)| *word == PAUSED.about.word);
                    let boost = self.$boost.map(|boost| boost.priority.to_string());
                    all.insert(pause.map_or(0, |at| at + 1), ("boost", boost));
                )?
                all.retain(|(_, set)| !set.is_keep());
                all
            }

            /// For each setting that it changes, when that ends by itself.
            pub fn ends(&self) -> Vec<Option<u64>> {
                let mut ends = Vec::new();
                $(if !self.$name.is_keep() { ends.push(self.$name.ends_ns()); })*
                $(
                    match self.$boost {
                        Set::Keep => {}
                        Set::To(boost) => ends.push(Some(boost.until_ns)),
                        boost => ends.push(boost.ends_ns()),
                    }
                )?
                ends
            }

            /// Returns the edit as a temporary one, after which the lasting settings apply again.
            pub fn timed(self, ns: u64) -> Self {
                Self { $($name: self.$name.until(ns),)* $($boost: self.$boost)? }
            }

            /// Returns true if part of the edit would end before it begins, and does not name the value that follows.
            pub fn is_late(&self, now_ns: u64) -> bool {
                $(self.$name.is_late(now_ns))||*
            }

            /// Checks the ranges; the error has the invalid word and the reason.
            pub fn check(&self) -> Result<(), (&'static str, String)> {
                $($row.check(self.$name.values())?;)*
                $(
                    if self.priority.ends_ns().or(self.$boost.ends_ns()).is_some() {
                        return Err((PRIORITY.about.word, "that ends by itself is a boost".to_owned()));
                    }
                    let boost = PRIORITY.check(self.$boost.value().map(|boost| boost.priority));
                    boost.map_err(|(_, why)| ("boost", why))?;
                )?
                Ok(())
            }

            /// Sets, unsets or leaves each setting; returns the edit that would undo this.
            pub fn apply(&self, settings: &mut $record, now_ns: u64) -> Self {
                $(
                    let before = settings.$boost.map_or(Set::Inherit, Set::To);
                    let boost = if self.$boost.is_keep() { Set::Keep } else { before };
                    if !self.$boost.is_keep() {
                        settings.$boost = self.$boost.value();
                    }
                )?
                Self {
                    $($name: self.$name.apply(&mut settings.$name, now_ns),)*
                    $($boost: boost)?
                }
            }
        }

        impl $record {
            /// Each end that is still ahead.
            pub fn reverts(&self, now_ns: u64) -> impl Iterator<Item = u64> {
                let boost: Option<u64> = None;
                $(let boost = boost.or(self.$boost.map(|boost| boost.until_ns)).filter(|until| *until > now_ns);)?
                [boost, $(self.$name.reverts(now_ns),)*].into_iter().flatten()
            }

            /// Returns the settings without temporary ones that have ended.
            pub fn settled(self, now_ns: u64) -> Self {
                Self {
                    $($name: self.$name.settled(now_ns),)*
                    $($boost: self.$boost.filter(|boost| boost.until_ns > now_ns))?
                }
            }

            /// Returns the edit that sets the present values.
            pub fn set(&self) -> $edit {
                $edit { $($name: self.$name.set(),)* $($boost: self.$boost.map_or(Set::Inherit, Set::To))? }
            }

            /// The lasting values that are set, each as a person would type it.
            pub fn words(&self) -> Vec<(&'static About, String)> {
                let mut words = Vec::new();
                $(words.extend(self.$name.lasting().map(|value| (&$row.about, ($row.grammar.show)(value))));)*
                words
            }

            /// Writes them into a record in which their words are zero.
            pub fn encode(&self, words: &mut [u64]) {
                $(put_timed(&$row, &const { $row.$place.expect("a place in the record") }, words, &self.$name);)*
                $(
                    if let Some(boost) = self.$boost {
                        BOOST_PRIORITY.put(words, Some((PRIORITY.grammar.bits)(boost.priority)));
                        words[BOOST_UNTIL] = boost.until_ns;
                    }
                )?
            }

            /// Reads them from a record.
            pub fn decode(words: &[u64]) -> Self {
                Self {
                    $($name: timed(&$row, &const { $row.$place.expect("a place in the record") }, words),)*
                    $($boost: PRIORITY.get(&BOOST_PRIORITY, words).map(|priority| Boost {
                        priority,
                        until_ns: words[BOOST_UNTIL],
                    }))?
                }
            }
        }
    };
}

/// Declares, for the list of settings, the structs that have a field for each and the functions that go through all.
///
/// A line is: the field, its row, the type of its value; the type of what is in force, its default, its key in a recording,
/// and how a value is made what is in force and back.
macro_rules! settings {
    ($($name:ident = $row:ident: $type:ty, in force $force:ty = $default:expr, $key:literal, $to:expr, $back:expr;)*) => {
        /// Every setting of a process, in the order of the list.
        pub const SETTINGS: &[&About] = ShareEdit::ROWS;

        record! {
            /// An edit of a process's settings.
            ShareEdit,
            /// The settings of a process as its record has them.
            ShareSettings at process with boost;
            $($name = $row: $type;)*
        }

        /// The settings of a rule. A launch and a group give theirs in the same form, without the memory.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
        pub struct SettingValues {
            /// The quota on each device.
            #[cfg_attr(
                feature = "serde",
                serde(with = "crate::value::stored::word", skip_serializing_if = "Option::is_none")
            )]
            pub memory: Option<QuotaValue>,
            $(
                #[doc = concat!("See [`", stringify!($row), "`](crate::table::", stringify!($row), ").")]
                #[cfg_attr(
                    feature = "serde",
                    serde(with = "crate::value::stored::word", skip_serializing_if = "Option::is_none")
                )]
                pub $name: Option<$type>,
            )*
        }

        /// The source of each setting that is in force.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
        pub struct Sources {
            $(#[doc = concat!("See [`", stringify!($row), "`](crate::table::", stringify!($row), ").")] pub $name: Source,)*
        }

        /// The settings of a process that are in force.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
        pub struct Share {
            $(
                #[doc = concat!("See [`", stringify!($row), "`](crate::table::", stringify!($row), ").")]
                #[cfg_attr(feature = "serde", serde(rename = $key))]
                pub $name: $force,
            )*
            /// A boost is in force until then; the priority includes it.
            pub boost_until_ns: Option<u64>,
            /// Time when the first temporary setting ends.
            #[cfg_attr(feature = "serde", serde(rename = "share_until_ns"))]
            pub until_ns: Option<u64>,
            /// The source that stands highest of those of weight, priority and cap, of a pause and a boost.
            #[cfg_attr(feature = "serde", serde(rename = "share_source"))]
            pub source: Source,
            /// The source of each.
            #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Sources::are_default"))]
            pub sources: Sources,
        }

        impl Default for Share {
            fn default() -> Self {
                Self {
                    $($name: $default,)*
                    boost_until_ns: None,
                    until_ns: None,
                    source: Source::Default,
                    sources: Sources::default(),
                }
            }
        }

        impl Sources {
            /// Reports whether nothing is set.
            pub fn are_default(&self) -> bool {
                *self == Self::default()
            }
        }

        impl ShareEdit {
            /// Leaves out the values that are in force already: a temporary one keeps its end, and an inherited one stays inherited.
            pub fn without_values_in_force(self, now: &Share) -> ShareEdit {
                ShareEdit {
                    $($name: match self.$name {
                        Set::To(value) if value == now.$name() => Set::Keep,
                        set => set,
                    },)*
                    boost: self.boost,
                }
            }
        }

        impl SettingValues {
            /// The values that are set, each as a person would type it.
            pub fn words(&self) -> Vec<(&'static About, String)> {
                let mut words = Vec::new();
                words.extend(self.memory.map(|value| (&MEMORY.about, (MEMORY.grammar.show)(value))));
                $(words.extend(self.$name.map(|value| (&$row.about, ($row.grammar.show)(value))));)*
                words
            }

            /// The variables of the limits that are set. The value that an edit sets by `none` is no limit.
            pub fn limits(&self) -> Vec<&'static str> {
                let mut limits = Vec::new();
                $(
                    let is_asked = $row.about.is_limit && self.$name.is_some() && self.$name != $row.grammar.none;
                    limits.extend(is_asked.then_some($row.about.variable));
                )*
                limits
            }

            /// The values that an edit sets.
            pub fn of(edit: &ShareEdit) -> Self {
                Self { memory: None, $($name: edit.$name.value(),)* }
            }

            /// Checks the ranges of all settings; the error has the invalid word and the reason.
            pub fn check(&self) -> Result<(), (&'static str, String)> {
                MEMORY.check(self.memory)?;
                $($row.check(self.$name)?;)*
                Ok(())
            }

            /// Writes them into a rule's record in which their words are zero.
            pub fn encode(&self, words: &mut [u64; RULE_WORDS]) {
                if let Some(field) = &MEMORY.rule { MEMORY.put(field, words, self.memory); }
                $(if let Some(field) = &$row.rule { $row.put(field, words, self.$name); })*
            }

            /// Reads them from a rule's record.
            pub fn decode(words: &[u64; RULE_WORDS]) -> Self {
                Self {
                    memory: MEMORY.rule.as_ref().and_then(|field| MEMORY.get(field, words)),
                    $($name: $row.rule.as_ref().and_then(|field| $row.get(field, words)),)*
                }
            }

            /// Reads the variables of a launch. `read` looks a variable up, reads it with the given grammar, and keeps its
            /// faults. Returns the values and their sources.
            pub fn of_launch(read: &mut impl ReadVariable) -> (Self, Sources) {
                let (mut values, mut sources) = (Self::default(), Sources::default());
                $(
                    if $row.launch.is_some() {
                        (values.$name, sources.$name) = read.variable($row.about.variable, $row.grammar.read);
                    }
                )*
                (values, sources)
            }
        }

        impl LaunchShare {
            /// The words of a launch.
            pub fn encode(&self) -> [u64; LAUNCH_WORDS] {
                let mut words = [0; LAUNCH_WORDS];
                $(
                    if let Some(launch) = &$row.launch {
                        $row.put(&launch.value, &mut words, self.values.$name);
                        if let Some(source) = &launch.source {
                            source.put(&mut words, Some(self.sources.$name.code().into()));
                        }
                    }
                )*
                LAUNCH_SOURCE.put(&mut words, Some(self.source.code().into()));
                words
            }

            /// Reads the words of a launch.
            pub fn decode(words: &[u64; LAUNCH_WORDS]) -> Self {
                let source = Source::of_code(LAUNCH_SOURCE.get(words).unwrap_or(0) as u64);
                let (mut values, mut sources) = (SettingValues::default(), Sources::default());
                $(
                    if let Some(launch) = &$row.launch {
                        values.$name = $row.get(&launch.value, words);
                        let said = launch.source.and_then(|field| field.get(words)).map(|code| Source::of_code(code as u64));
                        sources.$name = said.unwrap_or_default();
                        if values.$name.is_some() && sources.$name == Source::Default {
                            sources.$name = Source::LaunchEnv;
                        }
                    }
                )*
                Self { values, sources, source }
            }
        }

        impl Share {
            /// The settings in force: the operator's before a rule's before the launch's before the group's before the default.
            pub fn resolve(
                launch: &LaunchShare,
                operator: Option<&ShareSettings>,
                group: &SettingValues,
                rule: &SettingValues,
                now_ns: u64,
            ) -> Share {
                let mut share = Share::default();
                $({
                    let found = choose(
                        &$row,
                        operator.and_then(|operator| operator.$name.at(now_ns)),
                        rule.$name,
                        launch.values.$name.map(|value| (value, launch.sources.$name)),
                        group.$name,
                    );
                    match found {
                        Some((value, source)) => {
                            share.$name = converted(value, $to);
                            share.sources.$name = source;
                        }
                        // The launch meant to set it.
                        None if launch.sources.$name == Source::Invalid => {
                            share.sources.$name = Source::Invalid;
                        }
                        None => {}
                    }
                })*
                share.finish(launch, operator, now_ns);
                share
            }

            /// Each setting in force as a person would type it, and its source.
            pub fn typed(&self) -> Vec<(&'static About, String, Source)> {
                vec![$((&$row.about, $row.grammar.typed(self.$name()), self.sources.$name),)*]
            }

            $(
                fn $name(&self) -> $type {
                    converted(self.$name, $back)
                }
            )*
        }

        /// Every row without its type, for the tests of the table.
        #[cfg(test)]
        pub(crate) fn rows() -> Vec<RowTest> {
            vec![$(RowTest::of(&$row),)*]
        }
    };
}

pub(super) use {record, settings};
