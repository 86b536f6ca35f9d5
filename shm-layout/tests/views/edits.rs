//! Edits: what each one changes, and which ones are refused.

use super::*;

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
        until: None,
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
        until: None,
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
    let (new, entry) = heir(&segments, gone, "new");
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
    eventually("it reverts", PATIENCE, || {
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
        share: ShareEdit {
            weight,
            priority,
            cap,
            ..ShareEdit::default()
        },
    };
    let policy = |change: &dyn Fn(&mut LockPolicy)| {
        let mut policy = LockPolicy::default();
        change(&mut policy);
        Change::Policy {
            device: Some(GPU),
            policy: Some(policy),
            until: None,
        }
    };
    let group = |name: &str| Change::Group {
        name: name.to_owned(),
        settings: GroupEdit::default(),
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
    let unknown = SlotId {
        index: 200,
        epoch: 1,
    };
    let nowhere = Change::ProcessQuota {
        slot: unknown,
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
        settings: GroupEdit {
            memory,
            weight,
            ..GroupEdit::default()
        },
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

/// Registers a process that joins this group.
fn member(segments: &Segments, group: &str) -> Registration {
    let limits = LaunchLimits {
        group: Some(group.to_owned()),
        ..LaunchLimits::default()
    };
    register(segments, &Identity::default(), &limits).expect("a slot")
}

#[test]
fn groups_come_and_go_with_their_members() {
    let dir = Dir::new();
    let segments = dir.open();
    let member = |name: &str| member(&segments, name);
    let stays = member("stays");
    for index in 0..2 * MAX_PROCESSES {
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
    drop(stays);
}

#[test]
fn each_process_finds_a_place_for_a_group_of_its_own() {
    let dir = Dir::new();
    let segments = dir.open();
    let member = |name: &str| member(&segments, name);
    let idle: Vec<_> = (1..MAX_PROCESSES)
        .map(|index| member(&format!("idle {index}")))
        .collect();
    dir.group("prod", 2);
    let late = member("prod");
    let view = look(&segments);
    assert_eq!(view.processes.len(), MAX_PROCESSES);
    assert!(view.processes.iter().all(|one| one.group.is_some()));
    let entry = late.add_device([1; 16], 0, "GPU", 1 << 30, 0);
    let ledger = late.ledger(entry.expect("an entry"));
    assert!(ledger.reserve(3).is_err(), "the group may have 2 bytes");
    drop(idle);
}

fn timeslice(ns: u64) -> Option<LockPolicy> {
    Some(LockPolicy {
        kind: PolicyKind::Timeslice(ns),
        ..LockPolicy::default()
    })
}

#[test]
fn a_policy_reverts_by_itself_to_the_lasting_one_below_it() {
    const S: u64 = 1_000_000_000;
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let (process, entry) = process(&segments, "a");
    let now = clock::now();
    let set = |policy, until: Option<u64>, now| {
        let change = Change::Policy {
            device: None,
            policy,
            until: until.map(Until::lasting),
        };
        operator.edit(None, &change, now)
    };
    let lasting = timeslice(5_000_000);
    set(lasting, None, now).expect("edited");
    let first = set(timeslice(7_000_000), Some(now + 60 * S), now).expect("edited");
    assert_eq!(
        first.old,
        Change::Policy {
            device: None,
            policy: lasting,
            until: None
        }
    );
    set(timeslice(9_000_000), Some(now + 120 * S), now + S).expect("edited");
    let shown = |at| {
        let device = &snapshot(&segments, at).devices[0];
        let Source::Operator = device.policy.1 else {
            panic!("{:?}", device.policy)
        };
        (device.policy.0, device.policy_until_ns)
    };
    assert_eq!(Some(shown(now + 2 * S).0), timeslice(9_000_000));
    assert_eq!(shown(now + 2 * S).1, Some(now + 120 * S));
    assert_eq!(
        (Some(shown(now + 120 * S).0), shown(now + 120 * S).1),
        (lasting, None),
        "not to the one that was for a while, too"
    );
    assert_eq!(Some(process.policy(entry).0), timeslice(9_000_000));

    let past = set(timeslice(1_000_000), Some(now), now + S).expect_err("over already");
    assert!(past.to_string().contains("end time has passed"), "{past}");
}

#[test]
fn overlap_without_a_number_has_one_for_each_process_by_what_makes_its_contexts() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, entry) = process(&segments, "a");
    let policy: LockPolicy = "overlap order=priority".parse().expect("a policy");
    let change = Change::Policy {
        device: None,
        policy: Some(policy),
        until: None,
    };
    let edited = dir.operator().edit(None, &change, clock::now());
    edited.expect("a valid edit");
    let ahead = || process.policy(entry).0.kind;
    assert_eq!(ahead(), PolicyKind::Overlap(Some(500_000)));
    process.publish_mps(entry, true, false);
    assert_eq!(ahead(), PolicyKind::Overlap(Some(2_000_000)));
    let shown = snapshot(&segments, clock::now()).devices[0].policy.0;
    assert_eq!(shown, policy, "and is shown as it was set");
}

#[test]
fn a_process_sees_its_policy_revert_without_an_edit() {
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let (process, entry) = process(&segments, "a");
    let until = clock::now() + 50_000_000;
    let change = Change::Policy {
        device: None,
        policy: timeslice(5_000_000),
        until: Some(Until::lasting(until)),
    };
    operator.edit(None, &change, clock::now()).expect("edited");
    assert_eq!(
        process.next_deadline(),
        Some(until),
        "its keeper looks again then"
    );
    while clock::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(process.policy(entry).0, LockPolicy::default());
    assert_eq!(process.next_deadline(), None);
}

#[test]
fn undoing_an_edit_brings_a_timed_policy_back_with_its_end() {
    const S: u64 = 1_000_000_000;
    let dir = Dir::new();
    let operator = dir.operator();
    let now = clock::now();
    let set = |policy, until| Change::Policy {
        device: Some([7; 16]),
        policy,
        until,
    };
    let timed = set(timeslice(5_000_000), Some(Until::lasting(now + 60 * S)));
    operator.edit(None, &timed, now).expect("edited");
    let over = operator
        .edit(None, &set(None, None), now + S)
        .expect("edited");
    let Change::Policy {
        policy,
        until: Some(until),
        ..
    } = &over.old
    else {
        panic!("{over:?}")
    };
    assert_eq!(
        (*policy, until.ns, until.then),
        (timeslice(5_000_000), now + 60 * S, Some(None))
    );
    // An undo within the time restores the setting; a late one finds it expired.
    let back = operator.edit(None, &over.old, now + 2 * S).expect("edited");
    assert_eq!(back.old, set(None, None));
    operator
        .edit(None, &set(None, None), now + 3 * S)
        .expect("edited");
    operator
        .edit(None, &over.old, now + 99 * S)
        .expect("edited");
    let again = operator
        .edit(None, &set(None, None), now + 99 * S)
        .expect("edited");
    assert_eq!(again.old, set(None, None));
}
