//! The structs that have a field for each setting, and the functions that go through all settings.

/// Declares, for the list of settings, the structs that have a field for each and the functions that go through all.
///
/// A line is: the field, its row, the type of its value; the type of what is in force, its default, its key in a recording,
/// and how a value is made what is in force and back.
macro_rules! settings {
    ($($name:ident = $row:ident: $type:ty, in force $force:ty = $default:expr, $key:literal, $to:expr, $back:expr;)*) => {
        /// Every setting, in the order of the list.
        pub const SETTINGS: &[&About] = &[$(&$row.about,)*];

        /// An edit of a process's settings.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct ShareEdit {
            $(
                #[doc = concat!("See [`", stringify!($row), "`](crate::table::", stringify!($row), ").")]
                #[cfg_attr(
                    feature = "serde",
                    serde(default, with = "crate::value::stored::set", skip_serializing_if = "Set::is_keep")
                )]
                pub $name: Set<$type>,
            )*
            /// Another priority for a while.
            #[cfg_attr(
                feature = "serde",
                serde(default, with = "crate::value::stored::set", skip_serializing_if = "Set::is_keep")
            )]
            pub boost: Set<Boost>,
        }

        /// The settings of a process as its record has them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ShareSettings {
            $(#[doc = concat!("See [`", stringify!($row), "`](crate::table::", stringify!($row), ").")] pub $name: Timed<$type>,)*
            /// Another priority for a while.
            pub boost: Option<Boost>,
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
            /// Sets one by its word; `inherit` unsets it.
            pub fn read(&mut self, word: &str, text: &str) -> Result<(), TextError> {
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
                Err(TextError::UnknownWord {
                    text: word.to_owned(),
                    known: known_words(),
                })
            }

            /// Reports whether it changes the setting with this word.
            pub fn changes(&self, word: &str) -> bool {
                $(word == $row.about.word && !self.$name.is_keep())||*
            }

            /// The words of all settings that it changes, each with its value as the audit log shows it.
            pub fn words(&self) -> Vec<(&'static str, Set<String>)> {
                let mut all = Vec::new();
                $(
                    all.push(($row.about.word, self.$name.map(|value| value.to_string())));
                    // The log shows a boost after the pause.
                    if $row.about.word == PAUSED.about.word {
                        all.push(("boost", self.boost.map(|boost| boost.priority.to_string())));
                    }
                )*
                all.retain(|(_, set)| !set.is_keep());
                all
            }

            /// For each setting that it changes, when that ends by itself.
            pub fn ends(&self) -> Vec<Option<u64>> {
                let mut ends = Vec::new();
                $(if !self.$name.is_keep() { ends.push(self.$name.ends_ns()); })*
                match self.boost {
                    Set::Keep => {}
                    Set::To(boost) => ends.push(Some(boost.until_ns)),
                    boost => ends.push(boost.ends_ns()),
                }
                ends
            }

            /// Returns the edit as a temporary one, after which the lasting settings apply again. A priority becomes a boost;
            /// `None` where it has no number.
            pub fn until(self, ns: u64) -> Option<ShareEdit> {
                let boost = match self.priority {
                    Set::Keep => self.boost,
                    Set::To(priority) => Set::To(Boost { priority, until_ns: ns }),
                    Set::Inherit | Set::For(..) => return None,
                };
                let mut until = ShareEdit { $($name: self.$name.until(ns),)* boost };
                until.priority = Set::Keep;
                Some(until)
            }

            /// Leaves out what holds already, so that what ends by itself keeps its end, and what is inherited stays so.
            pub fn without_what_holds(self, now: &Share) -> ShareEdit {
                ShareEdit {
                    $($name: match self.$name {
                        Set::To(value) if value == now.$name() => Set::Keep,
                        set => set,
                    },)*
                    boost: self.boost,
                }
            }

            /// Returns true if part of the edit would end before it begins, and does not name the value that follows.
            pub fn is_late(&self, now_ns: u64) -> bool {
                $(self.$name.is_late(now_ns))||*
            }

            /// Checks the ranges; the error has the invalid word and the reason.
            pub fn check(&self) -> Result<(), (&'static str, String)> {
                $($row.check(self.$name.values())?;)*
                if self.priority.ends_ns().or(self.boost.ends_ns()).is_some() {
                    return Err((PRIORITY.about.word, "that ends by itself is a boost".to_owned()));
                }
                let boost = PRIORITY.check(self.boost.value().map(|boost| boost.priority));
                boost.map_err(|(_, why)| ("boost", why))
            }

            /// Sets, unsets or leaves each setting; returns the edit that would undo this.
            pub fn apply(&self, settings: &mut ShareSettings, now_ns: u64) -> ShareEdit {
                let boost = settings.boost.map_or(Set::Inherit, Set::To);
                let old = ShareEdit {
                    $($name: self.$name.apply(&mut settings.$name, now_ns),)*
                    boost: if self.boost.is_keep() { Set::Keep } else { boost },
                };
                if !self.boost.is_keep() {
                    settings.boost = self.boost.value();
                }
                old
            }
        }

        impl ShareSettings {
            /// Each end that is still ahead.
            pub fn reverts(&self, now_ns: u64) -> impl Iterator<Item = u64> {
                let boost = self.boost.map(|boost| boost.until_ns).filter(|until| *until > now_ns);
                [boost, $(self.$name.reverts(now_ns),)*].into_iter().flatten()
            }

            /// Returns the settings without temporary ones that have ended.
            pub fn settled(self, now_ns: u64) -> Self {
                Self {
                    $($name: self.$name.settled(now_ns),)*
                    boost: self.boost.filter(|boost| boost.until_ns > now_ns),
                }
            }

            /// Writes them into a record in which their words are zero.
            pub fn encode(&self, words: &mut [u64; PROCESS_WORDS]) {
                $(put_timed(&$row, &$row.process, words, &self.$name);)*
                if let Some(boost) = self.boost {
                    BOOST_PRIORITY.put(words, Some((PRIORITY.grammar.bits)(boost.priority)));
                    words[BOOST_UNTIL] = boost.until_ns;
                }
            }

            /// Reads them from a record.
            pub fn decode(words: &[u64; PROCESS_WORDS]) -> Self {
                Self {
                    $($name: timed(&$row, &$row.process, words),)*
                    boost: PRIORITY.get(&BOOST_PRIORITY, words).map(|priority| Boost {
                        priority,
                        until_ns: words[BOOST_UNTIL],
                    }),
                }
            }
        }

        impl SettingValues {
            /// The values that are set, memory apart, each as a person would type it.
            pub fn words(&self) -> Vec<(&'static About, String)> {
                let values = [$(self.$name.map($row.grammar.show),)*];
                let rows = SETTINGS.iter().zip(values);
                rows.filter_map(|(about, value)| Some((*about, value?))).collect()
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

            /// Checks the ranges of all settings but the memory; the error has the invalid word and the reason.
            pub fn check(&self) -> Result<(), (&'static str, String)> {
                $($row.check(self.$name)?;)*
                Ok(())
            }

            /// Writes all but the memory into a rule's record in which their words are zero.
            pub fn encode(&self, words: &mut [u64; RULE_WORDS]) {
                $(if let Some(field) = &$row.rule { $row.put(field, words, self.$name); })*
            }

            /// Reads all but the memory from a rule's record.
            pub fn decode(words: &[u64; RULE_WORDS]) -> Self {
                Self {
                    memory: None,
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
                            source.put(&mut words, Some(self.sources.$name.code()));
                        }
                    }
                )*
                LAUNCH_SOURCE.put(&mut words, Some(self.source.code()));
                words
            }

            /// Reads the words of a launch.
            pub fn decode(words: &[u64; LAUNCH_WORDS]) -> Self {
                let source = Source::of_code(LAUNCH_SOURCE.get(words).unwrap_or(0));
                let (mut values, mut sources) = (SettingValues::default(), Sources::default());
                $(
                    if let Some(launch) = &$row.launch {
                        values.$name = $row.get(&launch.value, words);
                        let said = launch.source.and_then(|field| field.get(words)).map(Source::of_code);
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

pub(super) use settings;
