//! Snapshots, events and edits: what the tools see and do.

mod common;

use std::{fs::OpenOptions, os::unix::fs::FileExt};

use common::*;
use proptest::prelude::*;
use shm_layout::*;

fn event(kind: EventKind, arg0: u64) -> Event {
    Event {
        seq: 0,
        time_ns: 1,
        slot: 3,
        epoch: 4,
        device: 5,
        kind,
        arg0,
        arg1: 6,
        call: 7,
    }
}

#[test]
fn events_come_back_in_order_and_whole() {
    let dir = Dir::new();
    let segments = dir.open();
    let state = segments.state();
    let mut reader = state.events();
    for index in 0..5 {
        state.publish(event(EventKind::Release(Reason::Sync), index));
    }
    for index in 0..5 {
        let got = reader.next(state).expect("one more").expect("none lost");
        assert_eq!(
            got,
            Event {
                seq: got.seq,
                ..event(EventKind::Release(Reason::Sync), index)
            }
        );
    }
    assert_eq!(reader.next(state), None);
}

#[test]
fn a_reader_that_falls_behind_learns_how_many_it_lost() {
    let dir = Dir::new();
    let segments = dir.open();
    let state = segments.state();
    let mut reader = EventReader::from_start(state);
    let more = 100;
    for index in 0..EVENT_RING as u64 + more {
        state.publish(event(EventKind::Wait, index));
    }
    assert_eq!(reader.next(state), Some(Err(Lost(more))));
    let mut got = 0;
    while let Some(next) = reader.next(state) {
        assert_eq!(next.expect("none lost").arg0, more + got);
        got += 1;
    }
    assert_eq!((got, reader.lost()), (EVENT_RING as u64, more));
}

#[test]
fn many_writers_never_tear_an_event() {
    let dir = Dir::new();
    let segments = dir.open();
    let state = segments.state();
    let mut reader = state.events();
    const EACH: u64 = 60_000;
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            scope.spawn(move || {
                for index in 0..EACH {
                    let word = writer << 32 | index;
                    state.publish(Event {
                        time_ns: word,
                        arg1: word,
                        ..event(EventKind::Hold, word)
                    });
                }
            });
        }
        let mut seen = 0;
        while seen < 4 * EACH {
            match reader.next(state) {
                Some(Ok(event)) => {
                    assert!(
                        event.arg0 == event.arg1 && event.arg0 == event.time_ns,
                        "torn: {event:?}"
                    );
                    seen += 1;
                }
                Some(Err(Lost(count))) => seen += count,
                None => std::thread::yield_now(),
            }
        }
    });
}

#[test]
fn a_snapshot_shows_what_was_launched_and_what_the_operator_set() {
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let mut limits = LaunchLimits {
        memory_source: Source::Alias(0),
        weight: Some(300),
        share_source: Source::LaunchEnv,
        group: Some("team".to_owned()),
        invalid: true,
        ..LaunchLimits::default()
    };
    limits.memory[0] = MemoryLimit::Bytes(77);
    let (process, entry) = with_limits(&segments, "trainer", &limits);
    process.ledger(entry).reserve(70).expect("room").commit();
    process
        .count(entry)
        .launches
        .store(9, std::sync::atomic::Ordering::Relaxed);
    let view = snapshot(&dir.viewer(), clock::now());
    let seen = &view.processes[0];
    assert_eq!(seen.identity, Identity::of_self("trainer"));
    assert_eq!(
        (seen.share.weight, seen.share.source),
        (300, Source::LaunchEnv)
    );
    assert_eq!((seen.group.as_deref(), seen.invalid), (Some("team"), true));
    let device = &seen.devices[0];
    assert_eq!(
        (device.used, device.peak, device.counters.launches),
        (70, 70, 9)
    );
    assert_eq!(
        device.quota,
        Quota {
            bytes: Some(77),
            source: Source::Alias(0)
        }
    );
    assert_eq!(view.devices[0].name, "Test GPU");
    assert!(!view.groups[0].defined, "named, not defined");
    assert_eq!(view.groups[0].members, [process.slot()]);
    let quota = QuotaValue::Percent(50);
    let change = Change::ProcessQuota {
        slot: process.slot(),
        device: None,
        value: quota,
        until: None,
    };
    operator.edit(None, &change, clock::now()).expect("edited");
    let view = look(&segments);
    let quota = view.processes[0].devices[0].quota;
    assert_eq!(
        quota,
        Quota {
            bytes: Some(512 * MIB),
            source: Source::Operator
        }
    );
}

#[test]
fn a_launch_policy_that_makes_no_sense_shows_as_invalid_and_is_off() {
    let dir = Dir::new();
    let segments = dir.open();
    let absurd = LockPolicy {
        kind: PolicyKind::Timeslice(u64::MAX),
        ..LockPolicy::default()
    };
    // Read wrongly by the library, or not checked by it.
    for (policy, policy_source) in [(None, Source::Invalid), (Some(absurd), Source::LaunchEnv)] {
        let limits = LaunchLimits {
            policy,
            policy_source,
            invalid: policy.is_none(),
            ..LaunchLimits::default()
        };
        let (process, entry) = with_limits(&segments, "", &limits);
        let invalid = (LockPolicy::default(), Source::Invalid);
        assert_eq!(process.policy(entry), invalid);
        let seen = look(&segments);
        assert!(seen.processes[0].invalid);
        assert_eq!(seen.processes[0].devices[0].policy, invalid);
    }
}

#[test]
fn the_policy_for_all_devices_is_seen_before_any_device_is() {
    let dir = Dir::new();
    let segments = dir.open();
    assert_eq!(look(&segments).default_policy, None);
    let policy = LockPolicy {
        order: Order::Fifo,
        ..LockPolicy::default()
    };
    let change = Change::Policy {
        device: None,
        policy: Some(policy),
    };
    let operator = dir.operator();
    operator.edit(None, &change, clock::now()).expect("edited");
    assert_eq!(look(&segments).default_policy, Some(policy));
}

#[test]
fn an_edit_is_unacknowledged_until_everybody_has_obeyed() {
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let (first, _) = process(&segments, "first");
    let (second, _) = process(&segments, "second");
    let change = Change::Policy {
        device: None,
        policy: Some(LockPolicy::default()),
    };
    let edit = operator.edit(None, &change, clock::now()).expect("edited");
    assert_eq!(
        operator.unacknowledged(edit.generation),
        [first.slot(), second.slot()]
    );
    first.acknowledge(first.control_generation());
    assert_eq!(operator.unacknowledged(edit.generation), [second.slot()]);
    second.acknowledge(edit.generation);
    assert!(operator.unacknowledged(edit.generation).is_empty());
    let (_late, _) = process(&segments, "late");
    assert!(
        operator.unacknowledged(edit.generation).is_empty(),
        "a newcomer starts with it"
    );
}

#[test]
fn an_edit_of_what_moved_is_refused() {
    let dir = Dir::new();
    let operator = dir.operator();
    let change = Change::Policy {
        device: None,
        policy: None,
    };
    let edit = operator
        .edit(Some(0), &change, clock::now())
        .expect("edited");
    assert_eq!(edit.generation, 1);
    let error = operator
        .edit(Some(0), &change, clock::now())
        .expect_err("moved");
    assert!(
        matches!(
            error,
            EditError::Moved {
                expected: 0,
                found: 1
            }
        ),
        "{error}"
    );
}

#[test]
fn a_reused_slot_is_never_edited_by_mistake() {
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let (old, _) = process(&segments, "old");
    let gone = old.slot();
    let quota = |slot| Change::ProcessQuota {
        slot,
        device: None,
        value: QuotaValue::Bytes(5),
        until: None,
    };
    operator
        .edit(None, &quota(gone), clock::now())
        .expect("edited");
    drop(old);
    let (new, entry) = process(&segments, "new");
    assert_eq!(new.slot().index, gone.index);
    let error = operator
        .edit(None, &quota(gone), clock::now())
        .expect_err("gone");
    assert!(matches!(error, EditError::NoSuchTarget), "{error}");
    assert_eq!(
        new.ledger(entry).quota().bytes,
        None,
        "nothing is inherited from the slot's last owner"
    );
}

#[test]
fn a_temporary_quota_reverts_by_itself_to_the_lasting_one() {
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let (process, entry) = process(&segments, "");
    let change = |bytes, until: Option<u64>| Change::ProcessQuota {
        slot: process.slot(),
        device: Some(0),
        value: QuotaValue::Bytes(bytes),
        until: until.map(Until::lasting),
    };
    operator
        .edit(None, &change(10, None), clock::now())
        .expect("edited");
    let soon = clock::now() + 300_000_000;
    operator
        .edit(None, &change(20, Some(soon)), clock::now())
        .expect("edited");
    let (quota, deadline) = (process.ledger(entry).quota().bytes, process.next_deadline());
    if clock::now() < soon {
        assert_eq!((quota, deadline), (Some(20), Some(soon)));
    }
    eventually("it reverts", || {
        process.ledger(entry).quota().bytes == Some(10)
    });
    assert!(clock::now() >= soon, "not before its time");
    let view = snapshot(&segments, soon);
    assert_eq!(view.processes[0].devices[0].quota.bytes, Some(10));
    assert_eq!(view.processes[0].devices[0].quota_until_ns, None);
    let past = operator.edit(None, &change(20, Some(1)), clock::now());
    assert!(matches!(
        past,
        Err(EditError::Invalid { field: "until", .. })
    ));
}

#[test]
fn senseless_values_are_refused_and_change_nothing() {
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let (process, _) = process(&segments, "");
    let slot = process.slot();
    let share = |weight, priority, cap| Change::ProcessShare {
        slot,
        weight,
        priority,
        cap,
        paused: Set::Keep,
        boost: Set::Keep,
    };
    let policy = |change: &dyn Fn(&mut LockPolicy)| {
        let mut policy = LockPolicy::default();
        change(&mut policy);
        Change::Policy {
            device: Some(GPU),
            policy: Some(policy),
        }
    };
    let group = |name: &str| Change::Group {
        name: name.to_owned(),
        memory: Set::Keep,
        weight: Set::Keep,
        cap: Set::Keep,
        remove: false,
    };
    let all = [
        share(Set::To(0), Set::Keep, Set::Keep),
        share(Set::To(1001), Set::Keep, Set::Keep),
        share(Set::Keep, Set::To(20), Set::Keep),
        share(Set::Keep, Set::To(-21), Set::Keep),
        share(Set::Keep, Set::Keep, Set::To(0)),
        share(Set::Keep, Set::Keep, Set::To(101)),
        policy(&|policy| policy.kind = PolicyKind::Timeslice(0)),
        policy(&|policy| policy.kind = PolicyKind::Timeslice(u64::MAX)),
        policy(&|policy| policy.kind = PolicyKind::Launches(0)),
        policy(&|policy| policy.grace_ns = 0),
        policy(&|policy| policy.grace_ns = policy.max_hold_ns + 1),
        policy(&|policy| policy.max_hold_ns = u64::MAX),
        policy(&|policy| policy.idle_ns = Some(1)),
        policy(&|policy| policy.idle_ns = Some(u64::MAX)),
        policy(&|policy| policy.sync_skips = u32::MAX),
        policy(&|policy| {
            (policy.kind, policy.max_hold_ns) = (PolicyKind::Timeslice(1 << 30), 1 << 29)
        }),
        group(""),
        group("a name that is far too long for the record"),
        group("bell\u{7}"),
        Change::DeviceLimit {
            uuid: GPU,
            value: QuotaValue::Percent(0),
        },
        Change::DeviceLimit {
            uuid: GPU,
            value: QuotaValue::Bytes(u64::MAX),
        },
    ];
    for change in &all {
        let error = operator
            .edit(None, change, clock::now())
            .expect_err("senseless");
        assert!(
            matches!(error, EditError::Invalid { .. }),
            "{change:?}: {error}"
        );
        assert!(operator.check(change).is_err());
    }
    let nobody = SlotId {
        index: 200,
        epoch: 1,
    };
    let nowhere = Change::ProcessQuota {
        slot: nobody,
        device: None,
        value: QuotaValue::Unlimited,
        until: None,
    };
    assert!(matches!(
        operator.edit(None, &nowhere, clock::now()),
        Err(EditError::NoSuchTarget)
    ));
    let nothing = Change::ProcessQuota {
        slot,
        device: Some(9),
        value: QuotaValue::Unlimited,
        until: None,
    };
    assert!(matches!(
        operator.edit(None, &nothing, clock::now()),
        Err(EditError::NoSuchTarget)
    ));
    assert_eq!(segments.control().generation(), 0);
}

#[test]
fn groups_are_defined_changed_and_removed() {
    let dir = Dir::new();
    let operator = dir.operator();
    let segments = dir.open();
    let group = |memory, weight, remove| Change::Group {
        name: "team".to_owned(),
        memory,
        weight,
        cap: Set::Keep,
        remove,
    };
    let quota = QuotaValue::Bytes(10);
    let made = operator
        .edit(
            None,
            &group(Set::To(quota), Set::To(200), false),
            clock::now(),
        )
        .expect("edited");
    let view = look(&segments);
    assert_eq!(
        (view.groups[0].memory, view.groups[0].weight),
        (quota, Some(200))
    );
    let removed = operator
        .edit(None, &group(Set::Keep, Set::Keep, true), clock::now())
        .expect("edited");
    assert!(look(&segments).groups.is_empty());
    operator
        .edit(None, &removed.old, clock::now())
        .expect("undone");
    assert_eq!(look(&segments).groups[0].memory, quota);
    operator
        .edit(None, &made.old, clock::now())
        .expect("undone");
    assert!(look(&segments).groups.is_empty());
    for index in 0..MAX_GROUPS {
        let mut change = group(Set::Keep, Set::Keep, false);
        if let Change::Group { name, .. } = &mut change {
            *name = format!("group {index}");
        }
        operator.edit(None, &change, clock::now()).expect("room");
    }
    let full = operator.edit(None, &group(Set::Keep, Set::Keep, false), clock::now());
    assert!(matches!(full, Err(EditError::TooMany)));
}

#[test]
fn groups_come_and_go_with_their_members() {
    let dir = Dir::new();
    let segments = dir.open();
    let member = |name: &str| {
        let limits = LaunchLimits {
            group: Some(name.to_owned()),
            ..LaunchLimits::default()
        };
        register(&segments, &Identity::default(), &limits).expect("a slot")
    };
    let stays = member("stays");
    for index in 0..3 * MAX_GROUPS {
        let _passing = member(&format!("job {index}"));
        let view = look(&segments);
        assert!(
            view.processes
                .iter()
                .all(|one| one.group.is_some() && !one.invalid),
            "{index}"
        );
        assert_eq!(view.groups.len(), 2);
    }
    let all: Vec<_> = (1..MAX_GROUPS)
        .map(|index| member(&format!("group {index}")))
        .collect();
    let late = member("one too many");
    let view = look(&segments);
    assert_eq!(view.groups.len(), MAX_GROUPS);
    let seen = view
        .processes
        .iter()
        .find(|one| one.slot == late.slot())
        .expect("it lives");
    assert_eq!((seen.group.as_deref(), seen.invalid), (None, true));
    drop((stays, all));
}

#[test]
fn a_pick_is_claimed_for_a_while() {
    let dir = Dir::new();
    let operator = dir.operator();
    let now = clock::now();
    let until = now + 3_600_000_000_000;
    for _ in 0..8 {
        assert!(operator.claim_pick(GPU, "Test GPU", MIB, until, now));
    }
    assert!(
        !operator.claim_pick(GPU, "Test GPU", MIB, until, now),
        "eight at a time"
    );
    assert_eq!(look(operator.segments()).devices[0].picks, 8);
    assert!(
        operator.claim_pick(GPU, "Test GPU", MIB, until + 2, until + 1),
        "theirs have run out"
    );
}

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
    (0..3, value).prop_map(|(which, value)| match which {
        0 => Set::Keep,
        1 => Set::Inherit,
        _ => Set::To(value),
    })
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
        wish(-20i32..20),
        wish(1u32..=100),
        wish(any::<bool>()),
    )
        .prop_map(
            move |(weight, priority, cap, paused)| Change::ProcessShare {
                slot,
                weight,
                priority,
                cap,
                paused,
                boost: Set::Keep,
            },
        );
    let limit = quota_value().prop_map(|value| Change::DeviceLimit { uuid: GPU, value });
    let trace = prop::option::of(1_000u32..5_000).prop_map(move |on| Change::Trace { slot, on });
    prop_oneof![quota, share, limit, trace]
}

/// All that edits can change, as text.
fn settings(segments: &Segments) -> String {
    let view = look(segments);
    let process = &view.processes[0];
    format!(
        "{:?} {:?} {:?} {:?}",
        process.share, process.devices[0].quota, view.devices[0].limit, process.trace.wanted
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
            // Set for every device, a quota replaces what was set for one: that is not undone with it.
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
