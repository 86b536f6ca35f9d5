//! Rules: which processes each one matches, when it begins to apply, and which settings take precedence.

use super::*;
const GIB: u64 = 1 << 30;

fn rule(label: &str, limits: SettingValues) -> Rule {
    Rule {
        name: format!("for {label}"),
        label: Some(label.to_owned()),
        limits,
        ..Rule::default()
    }
}

fn memory(bytes: u64) -> SettingValues {
    SettingValues {
        memory: Some(QuotaValue::Bytes(bytes)),
        ..SettingValues::default()
    }
}

fn start(bed: &Dir, label: &str, limits: &LaunchLimits) -> (Registration, Entry) {
    let identity = Identity::of_self(label);
    let registration = register(&bed.open(), &identity, limits).expect("a slot");
    let entry = registration
        .add_device(GPU, 0, "GPU", 64 * GIB, 0)
        .expect("room");
    (registration, entry)
}

fn set(operator: &Operator, index: u8, rule: Option<Rule>) -> Change {
    let change = Change::Rule { index, rule };
    operator
        .edit(None, &change, clock::now())
        .expect("valid")
        .old
}

#[test]
fn a_rule_holds_for_who_starts_later_and_for_who_runs_and_no_longer_when_it_is_removed() {
    let bed = Dir::new();
    let operator = bed.operator();
    let none = LaunchLimits::default();
    let (running, here) = start(&bed, "train-1", &none);
    let (other, there) = start(&bed, "serve", &none);
    set(&operator, 0, Some(rule("train-*", memory(8 * GIB))));
    let (later, at) = start(&bed, "train-2", &none);
    for (process, entry) in [(&running, here), (&later, at)] {
        let quota = process.ledger(entry).quota();
        assert_eq!((quota.bytes, quota.source), (Some(8 * GIB), Source::Rule));
    }
    assert_eq!(other.ledger(there).quota().bytes, None);
    assert!(later.ledger(at).reserve(8 * GIB + 1).is_err());
    let old = set(&operator, 0, None);
    assert_eq!(later.ledger(at).quota().bytes, None);
    operator
        .edit(None, &old, clock::now())
        .expect("it takes the removal back");
    assert_eq!(later.ledger(at).quota().bytes, Some(8 * GIB));
}

#[test]
fn the_first_rule_that_matches_holds_and_no_other() {
    let bed = Dir::new();
    let operator = bed.operator();
    let weight = SettingValues {
        weight: Some(50),
        ..SettingValues::default()
    };
    set(&operator, 3, Some(rule("*", memory(GIB))));
    set(&operator, 1, Some(rule("train", weight)));
    let (process, entry) = start(&bed, "train", &LaunchLimits::default());
    assert_eq!(process.share().weight, 50);
    assert_eq!(process.ledger(entry).quota().bytes, None);
    let view = look(&bed.viewer());
    assert_eq!(view.processes[0].rule.as_deref(), Some("for train"));
    assert_eq!(view.processes[0].share.source, Source::Rule);
}

#[test]
fn who_asks_for_less_memory_at_the_launch_gets_less_and_who_asks_for_more_does_not() {
    let bed = Dir::new();
    let operator = bed.operator();
    let limits = SettingValues {
        cap: Some(50),
        priority: Some(-5),
        on_full: Some(OnFull::Wait),
        evict_after: Some(EvictAfter::Idle(900_000_000_000)),
        ..memory(8 * GIB)
    };
    set(&operator, 0, Some(rule("*", limits)));
    let launch = |bytes, cap| LaunchLimits {
        settings: SettingValues {
            cap: Some(cap),
            priority: Some(19),
            ..SettingValues::default()
        },
        memory: [MemoryLimit::Bytes(bytes); 16],
        memory_source: Source::LaunchEnv,
        share_source: Source::LaunchEnv,
        ..LaunchLimits::default()
    };
    let (less, at) = start(&bed, "less", &launch(2 * GIB, 20));
    assert_eq!(less.ledger(at).quota().bytes, Some(2 * GIB));
    assert_eq!(less.ledger(at).quota().source, Source::LaunchEnv);
    assert_eq!((less.share().cap, less.share().priority), (Some(20), -5));
    let (more, at) = start(&bed, "more", &launch(32 * GIB, 90));
    assert_eq!(more.ledger(at).quota().bytes, Some(8 * GIB));
    let share = more.share();
    assert_eq!((share.cap, share.on_full), (Some(50), OnFull::Wait));
    assert_eq!(share.evict_after, Some(900_000_000_000));
    // A setting for this process takes precedence over one for many processes.
    let change = Change::ProcessQuota {
        slot: more.slot(),
        device: None,
        value: QuotaValue::Bytes(16 * GIB),
        until: None,
    };
    operator.edit(None, &change, clock::now()).expect("valid");
    assert_eq!(more.ledger(at).quota().bytes, Some(16 * GIB));
}

#[test]
fn a_rule_that_makes_no_sense_is_refused() {
    let bed = Dir::new();
    let operator = bed.operator();
    let long = "x".repeat(200);
    for rule in [
        Rule::default(),
        Rule {
            executable: Some(long),
            ..rule("a", memory(GIB))
        },
        Rule {
            label: Some("a\u{1b}b".into()),
            ..rule("a", memory(GIB))
        },
        rule(
            "a",
            SettingValues {
                weight: Some(0),
                ..SettingValues::default()
            },
        ),
        rule(
            "a",
            SettingValues {
                priority: Some(20),
                ..SettingValues::default()
            },
        ),
        rule(
            "a",
            SettingValues {
                cap: Some(101),
                ..SettingValues::default()
            },
        ),
    ] {
        let change = Change::Rule {
            index: 0,
            rule: Some(rule),
        };
        assert!(operator.check(&change).is_err(), "{change:?}");
    }
    let beyond = Change::Rule {
        index: 64,
        rule: None,
    };
    assert!(operator.check(&beyond).is_err());
}

#[test]
fn what_lasts_is_listed_and_what_ends_by_itself_is_not() {
    let bed = Dir::new();
    let operator = bed.operator();
    let edit = |change: Change| operator.edit(None, &change, clock::now()).expect("valid");
    let wanted = rule("train", memory(GIB));
    edit(Change::Rule {
        index: 7,
        rule: Some(wanted.clone()),
    });
    edit(Change::DeviceMemory {
        device: Some(GPU),
        settings: DeviceEdit {
            evict_after: Set::To(EvictAfter::Never),
            overcommit: Set::To(true),
        },
    });
    edit(Change::Policy {
        device: None,
        policy: Some(LockPolicy::default()),
        until: Some(Until::lasting(clock::now() + 600_000_000_000)),
    });
    let found = settings(&bed.viewer());
    assert_eq!(found.rules, [(7, wanted)]);
    assert_eq!(found.common, DeviceSet::default());
    let own = DeviceSet {
        memory: DeviceRecord {
            evict_after: Timed::lasts(Some(EvictAfter::Never)),
            overcommit: Timed::lasts(Some(true)),
        },
        ..DeviceSet::default()
    };
    assert_eq!(found.devices, [(GPU, own)]);
}
