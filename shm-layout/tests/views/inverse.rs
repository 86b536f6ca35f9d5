//! Arbitrary edits, each with its inverse.

use super::*;

fn quota_value() -> impl Strategy<Value = QuotaValue> {
    prop_oneof![
        Just(QuotaValue::Inherit),
        Just(QuotaValue::Unlimited),
        (0u64..1 << 50).prop_map(QuotaValue::Bytes),
        (1u8..=100).prop_map(QuotaValue::Percent),
    ]
}

fn wish<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Set<T>> {
    (0..5, value).prop_map(|(which, value)| match which {
        0 => Set::Keep,
        1 => Set::Inherit,
        2 => Set::To(value),
        3 => Set::To(value).until(FAR),
        _ => Set::Inherit.until(FAR),
    })
}

/// A time after the end of the test.
const FAR: u64 = u64::MAX / 2;

/// Generates a setting that has no end.
fn lasting<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Set<T>> {
    prop::option::of(value).prop_map(|value| value.map_or(Set::Inherit, Set::To))
}

fn change(slot: SlotId) -> impl Strategy<Value = Change> {
    let device = prop::option::of(Just(0u8));
    let quota = (device, quota_value()).prop_map(move |(device, value)| Change::ProcessQuota {
        slot,
        device,
        value,
        until: None,
    });
    let share = (
        wish(1u32..=1000),
        lasting(-20i32..20),
        wish(1u32..=100),
        wish(any::<bool>()),
    )
        .prop_map(
            move |(weight, priority, cap, paused)| Change::ProcessShare {
                slot,
                share: ShareEdit {
                    weight,
                    priority,
                    cap,
                    paused,
                    ..ShareEdit::default()
                },
            },
        );
    let limit = quota_value().prop_map(|value| Change::DeviceLimit { uuid: GPU, value });
    let reserve = (1u32..1 << 20).prop_map(Reserve::Mib);
    let group = (
        wish(quota_value()),
        wish(1u32..=1000),
        wish(1u32..=100),
        wish(reserve),
    );
    let group = group.prop_map(|(memory, weight, cap, reserve)| Change::Group {
        name: "team".into(),
        settings: GroupEdit {
            memory,
            weight,
            cap,
            reserve,
        },
        remove: false,
    });
    let memory = wish(any::<bool>()).prop_map(|overcommit| Change::DeviceMemory {
        device: Some(GPU),
        settings: DeviceEdit {
            overcommit,
            ..DeviceEdit::default()
        },
    });
    let trace = prop::option::of(1_000u32..5_000).prop_map(move |on| Change::Trace { slot, on });
    let rule = (
        0u8..3,
        prop::option::of((quota_value(), prop::option::of(1u32..=1000))),
    )
        .prop_map(|(index, limits)| Change::Rule {
            index,
            rule: limits.map(|(memory, weight)| Rule {
                name: "rule".into(),
                limits: SettingValues {
                    memory: Some(memory),
                    weight,
                    ..SettingValues::default()
                },
                ..Rule::default()
            }),
        });
    prop_oneof![quota, share, limit, group, memory, trace, rule]
}

/// Returns all settings that edits can change, as text.
fn settings(segments: &Segments) -> String {
    let view = look(segments);
    let process = &view.processes[0];
    let rules = shm_layout::settings(segments).rules;
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {rules:?}",
        process.share,
        process.devices[0].quota,
        view.devices[0].limit,
        view.devices[0].overcommit,
        view.groups,
        process.trace.wanted
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn undoing_edits_backwards_restores_everything(seed in prop::collection::vec(any::<prop::sample::Index>(), 0..1), changes in prop::collection::vec(change(SlotId { index: 0, epoch: 1 }), 1..12)) {
        let _ = seed;
        let dir = Dir::new();
        let segments = dir.open();
        let operator = dir.operator();
        let (_process, _) = process(&segments, "");
        let mut done = Vec::new();
        for change in &changes {
            // A quota for every device replaces the quotas of single devices; its undo does not restore them.
            if matches!(change, Change::ProcessQuota { device: Some(_), .. }) {
                continue;
            }
            let before = settings(&segments);
            done.push((before, operator.edit(None, change, clock::now()).expect("valid").old));
        }
        for (before, old) in done.into_iter().rev() {
            operator.edit(None, &old, clock::now()).expect("undone");
            prop_assert_eq!(settings(&segments), before);
        }
    }

    #[test]
    fn any_bytes_in_either_file_are_survived(bytes in prop::collection::vec(any::<u8>(), 64..4096), every in 1usize..40, whole in any::<bool>()) {
        let dir = Dir::new();
        let segments = dir.open();
        let operator = dir.operator();
        let (process, entry) = process(&segments, "");
        for file in ["state", "control"] {
            let file = OpenOptions::new().write(true).open(dir.path().join(file)).expect("the file");
            let len = file.metadata().expect("there").len();
            let mut at = 128;
            let mut round = 0;
            while at < len {
                if whole || round % every == 0 {
                    let part = &bytes[..bytes.len().min((len - at) as usize)];
                    file.write_all_at(part, at).expect("written");
                }
                at += bytes.len() as u64;
                round += 1;
            }
        }
        let view = look(&segments);
        prop_assert!(view.processes.len() <= MAX_PROCESSES);
        let mut reader = EventReader::from_start(segments.state());
        for _ in 0..1000 {
            let _ = reader.next(segments.state());
        }
        let ledger = process.ledger(entry);
        let _ = (ledger.reserve(5).map(Reservation::commit), ledger.room(), ledger.quota());
        ledger.release(5);
        let lock = process.lock(entry);
        let _ = lock.try_acquire(clock::now());
        let _ = (lock.contended(), lock.cap_left(clock::now()), process.policy(entry), process.share());
        let looks = std::cell::Cell::new(0);
        let _ = lock.acquire(&|| looks.replace(looks.get() + 1) > 3);
        let _ = lock.release(Reason::Idle, clock::now());
        let change = Change::DeviceLimit { uuid: GPU, value: QuotaValue::Bytes(100) };
        let _ = operator.edit(None, &change, clock::now());
        let _ = operator.unacknowledged(u64::MAX);
        reap(&segments, clock::now());
    }
}
