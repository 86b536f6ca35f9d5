//! Tests that hold for each row of the table.

use super::*;
use crate::value::Until;

/// A row without its type.
pub(crate) struct RowTest {
    about: About,
    /// The bits that it claims: of a process's record, a rule's, a launch's, a group's and a device's.
    claims: [Vec<(usize, u64)>; 5],
}

impl RowTest {
    pub(crate) fn of<T>(row: &Row<T>) -> Self {
        let places = |places: &Places| {
            let mut claims: Vec<_> = places.value.claims().collect();
            if let Some((then, ends)) = &places.then {
                claims.extend(then.claims());
                claims.push((*ends, u64::MAX));
            }
            claims
        };
        let field = |field: &Field| field.claims().collect();
        let launched = |launch: &Launched| {
            let fields = [Some(launch.value), launch.source];
            fields.iter().flatten().flat_map(Field::claims).collect()
        };
        Self {
            about: row.about,
            claims: [
                row.process.as_ref().map(places).unwrap_or_default(),
                row.rule.as_ref().map(field).unwrap_or_default(),
                row.launch.as_ref().map(launched).unwrap_or_default(),
                row.group.as_ref().map(places).unwrap_or_default(),
                row.device.as_ref().map(places).unwrap_or_default(),
            ],
        }
    }
}

/// An edit that sets the row to what its example says, or on.
fn example(about: &About) -> ShareEdit {
    let mut edit = ShareEdit::default();
    let text = if about.example.is_empty() {
        "yes"
    } else {
        about.example
    };
    edit.read(about.word, text).expect("the row's own example");
    edit
}

#[test]
fn no_two_rows_share_a_bit_of_a_record() {
    let sizes = [
        PROCESS_WORDS,
        RULE_WORDS,
        LAUNCH_WORDS,
        SMALL_WORDS,
        SMALL_WORDS,
    ];
    for (record, size) in sizes.into_iter().enumerate() {
        let mut claimed = vec![0; size];
        match record {
            0 => {
                let boost = BOOST_PRIORITY.claims().chain([(BOOST_UNTIL, u64::MAX)]);
                // Beside them the epoch, the quotas and the order for a trace.
                let others = (5..73)
                    .map(|word| (word, u64::MAX))
                    .chain([(4, 0xffff_ffff)])
                    .chain([(0, 0xffff_ffff)]);
                boost
                    .chain(others)
                    .for_each(|(word, mask)| claimed[word] |= mask);
            }
            // The rule's other flags, and its texts.
            1 => {
                claimed[0] = 0xffff_ffff_0000_003f;
                (7..47).for_each(|word| claimed[word] = u64::MAX);
            }
            2 => LAUNCH_SOURCE
                .claims()
                .for_each(|(word, mask)| claimed[word] |= mask),
            // The group's name, and whether it is there.
            3 => claimed[..5].fill(u64::MAX),
            // The device, whether it is there, its policies and the limit.
            _ => claimed[..18].fill(u64::MAX),
        }
        let others = [RowTest::of(&MEMORY), RowTest::of(&OVERCOMMIT)];
        for row in rows().into_iter().chain(others) {
            for &(word, mask) in &row.claims[record] {
                assert_eq!(claimed[word] & mask, 0, "{}: word {word}", row.about.word);
                claimed[word] |= mask;
            }
        }
    }
}

#[test]
fn each_row_is_explained_and_reads_its_own_example() {
    for row in rows() {
        let about = row.about;
        assert!(about.says.ends_with('.') && !about.values.is_empty());
        assert_eq!(about.is_typed(), !about.hint.is_empty(), "{}", about.word);
        let has_variable = !row.claims[2].is_empty();
        assert_eq!(has_variable, !about.variable.is_empty(), "{}", about.word);
        assert_eq!(has_variable, !about.example.is_empty(), "{}", about.word);
        let edit = example(&about);
        assert!(edit.changes(about.word) && edit.words().len() == 1);
        let mut wrong = ShareEdit::default();
        assert!(
            wrong.read(about.word, "not a value").is_err(),
            "{}",
            about.word
        );
        wrong.read(about.word, INHERIT).expect("for every row");
        assert_eq!(wrong.words()[0].1, Set::Inherit);
    }
    assert!(ShareEdit::default().read("speed", "1").is_err());
}

#[test]
fn what_is_shown_is_read_back_to_the_same_value() {
    for row in rows() {
        let mut settings = ShareSettings::default();
        example(&row.about).apply(&mut settings, 0);
        // The memory leaves the devices of a paused process alone.
        settings.paused = Timed::lasts(Some(true));
        let share = Share::resolve(
            &LaunchShare::default(),
            Some(&settings),
            &SettingValues::default(),
            &SettingValues::default(),
            0,
        );
        let shown = share.typed();
        let (_, text, source) = shown
            .iter()
            .find(|(about, ..)| **about == row.about)
            .expect("every row is shown");
        assert_eq!(*source, Source::Operator, "{}", row.about.word);
        let mut again = ShareEdit::default();
        again.read(row.about.word, text).expect("what it shows");
        assert_eq!(again, example(&row.about), "{}", row.about.word);
        assert_eq!(again.without_values_in_force(&share), ShareEdit::default());
    }
}

#[test]
fn a_record_keeps_each_row_with_what_follows_it_and_its_inverse_restores_it() {
    for row in rows() {
        let mut settings = ShareSettings::default();
        let lasting = example(&row.about);
        let inverse = lasting.apply(&mut settings, 10);
        let check = |settings: &ShareSettings| {
            let mut words = [0; PROCESS_WORDS];
            settings.encode(&mut words);
            assert_eq!(
                ShareSettings::decode(&words),
                *settings,
                "{}",
                row.about.word
            );
        };
        check(&settings);
        let before = settings;
        let mut timed = ShareEdit::default();
        timed.read(row.about.word, INHERIT).expect("for every row");
        // A priority has a boost in place of an end.
        let Some(timed) = timed.until(50) else {
            continue;
        };
        let back = timed.apply(&mut settings, 10);
        check(&settings);
        assert_eq!(settings.reverts(10).next(), Some(50), "{}", row.about.word);
        assert_eq!(settings.settled(50), before, "{}", row.about.word);
        back.apply(&mut settings, 20);
        assert_eq!(settings, before, "{}", row.about.word);
        inverse.apply(&mut settings, 20);
        assert_eq!(settings, ShareSettings::default(), "{}", row.about.word);
    }
}

#[test]
fn a_rule_and_a_launch_keep_what_they_may_set() {
    for row in rows() {
        let values = SettingValues::of(&example(&row.about));
        let (mut words, none) = ([0; RULE_WORDS], SettingValues::default());
        values.encode(&mut words);
        let of_rule = SettingValues::decode(&words);
        let may = |record: usize| !row.claims[record].is_empty();
        assert_eq!(
            of_rule,
            if may(1) { values } else { none },
            "{}",
            row.about.word
        );
        let launch = LaunchShare {
            values,
            ..LaunchShare::default()
        };
        let of_launch = LaunchShare::decode(&launch.encode());
        assert_eq!(
            of_launch.values,
            if may(2) { values } else { none },
            "{}",
            row.about.word
        );
        assert_eq!(LaunchShare::decode(&of_launch.encode()), of_launch);
    }
}

#[test]
fn a_value_out_of_range_is_refused_by_its_word() {
    let edits = [
        (
            "weight",
            ShareEdit {
                weight: Set::To(0),
                ..ShareEdit::default()
            },
        ),
        (
            "priority",
            ShareEdit {
                priority: Set::To(20),
                ..ShareEdit::default()
            },
        ),
        (
            "cap",
            ShareEdit {
                cap: Set::For(
                    Some(30),
                    Until {
                        ns: 7,
                        then: Some(Some(101)),
                    },
                ),
                ..ShareEdit::default()
            },
        ),
        (
            "on-full",
            ShareEdit {
                on_full: Set::To(OnFull::WaitFor(5)),
                ..ShareEdit::default()
            },
        ),
        (
            "evict-after",
            ShareEdit {
                evict_after: Set::To(EvictAfter::Idle(5)),
                ..ShareEdit::default()
            },
        ),
        (
            "reserve",
            ShareEdit {
                reserve: Set::To(Reserve::Percent(101)),
                ..ShareEdit::default()
            },
        ),
        (
            "boost",
            ShareEdit {
                boost: Set::To(Boost {
                    priority: 20,
                    until_ns: 7,
                }),
                ..ShareEdit::default()
            },
        ),
    ];
    for (word, edit) in edits {
        assert_eq!(edit.check().expect_err(word).0, word);
    }
}

#[test]
fn each_setting_has_its_own_source() {
    let launch = LaunchShare {
        values: SettingValues {
            weight: Some(50),
            cap: Some(20),
            ..SettingValues::default()
        },
        sources: Sources {
            weight: Source::LaunchEnv,
            cap: Source::Alias(7),
            on_full: Source::Invalid,
            ..Sources::default()
        },
        source: Source::LaunchEnv,
    };
    let operator = ShareSettings {
        priority: Timed::lasts(Some(5)),
        ..ShareSettings::default()
    };
    let rule = SettingValues {
        cap: Some(40),
        evict_after: Some(EvictAfter::Never),
        ..SettingValues::default()
    };
    let share = Share::resolve(
        &launch,
        Some(&operator),
        &SettingValues::default(),
        &rule,
        0,
    );
    let of = share.sources;
    assert_eq!(
        (of.weight, of.priority),
        (Source::LaunchEnv, Source::Operator)
    );
    // The lesser cap stands, which is the launch's.
    assert_eq!((share.cap, of.cap), (Some(20), Source::Alias(7)));
    assert_eq!(
        (of.on_full, of.evict_after),
        (Source::Invalid, Source::Rule)
    );
    assert_eq!(share.source, Source::Operator);
}
