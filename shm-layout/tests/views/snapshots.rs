//! Snapshots of the segments.

use super::*;

#[test]
fn a_snapshot_shows_what_was_launched_and_what_the_operator_set() {
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let mut limits = LaunchLimits {
        settings: SettingValues {
            weight: Some(300),
            ..SettingValues::default()
        },
        memory_source: Source::Alias(0),
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
fn a_snapshot_in_the_memory_of_another_has_nothing_of_it() {
    let (busy, quiet) = (Dir::new(), Dir::new());
    let rich = busy.open();
    let limits = LaunchLimits {
        settings: SettingValues {
            weight: Some(300),
            ..SettingValues::default()
        },
        group: Some("team".to_owned()),
        invalid: true,
        ..LaunchLimits::default()
    };
    let (holder, entry) = with_limits(&rich, "holder", &limits);
    let (waiter, its) = with_limits(&rich, "a waiter with a longer name", &limits);
    holder.ledger(entry).reserve(70).expect("room").commit();
    holder.heartbeat(clock::now());
    assert!(holder.lock(entry).try_acquire(clock::now()));
    assert!(!waiter.lock(its).try_acquire(clock::now()));
    waiter
        .add_device([8; 16], 1, "Another GPU", 1024 * MIB, DEVICE_SIM)
        .expect("an entry");
    let (_alone, _) = process(&quiet.open(), "alone");
    let now = clock::now();
    let [of_rich, of_poor] = [busy.viewer(), quiet.viewer()];
    let again = |segments: &Segments, earlier: &Segments| {
        let earlier = snapshot(earlier, now).processes;
        snapshot_of::<_, ProcessDeviceView>(segments, now, earlier, &mut LivenessCache::default())
    };
    assert_eq!(again(&of_poor, &of_rich), snapshot(&of_poor, now));
    assert_eq!(again(&of_rich, &of_poor), snapshot(&of_rich, now));
    drop(holder);
    // The remaining entry moves to the index of a removed one.
    let left = again(&of_rich, &of_rich);
    assert_eq!(left, snapshot(&of_rich, now));
    assert_eq!(
        left.processes[0].identity.label,
        "a waiter with a longer name"
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
    // Two cases: a value that the library could not parse, and one that it did not check.
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
        until: None,
    };
    let operator = dir.operator();
    operator.edit(None, &change, clock::now()).expect("edited");
    assert_eq!(look(&segments).default_policy, Some(policy));
}

#[test]
fn a_pick_is_claimed_for_a_while() {
    let dir = Dir::new();
    let operator = dir.operator();
    let now = clock::now();
    let until = now + PICK_NS;
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

#[test]
fn a_claim_that_no_pick_makes_counts_for_nothing_and_keeps_no_place() {
    let dir = Dir::new();
    let operator = dir.operator();
    let now = clock::now();
    // A broker's tenant may overwrite the state with such values.
    for ahead in [3_600_000_000_000, u64::MAX - now] {
        for _ in 0..4 {
            assert!(operator.claim_pick(GPU, "Test GPU", MIB, now + ahead, now));
        }
    }
    assert_eq!(look(operator.segments()).devices[0].picks, 0);
    assert!(operator.claim_pick(GPU, "Test GPU", MIB, now + PICK_NS, now));
    assert_eq!(look(operator.segments()).devices[0].picks, 1);
}

#[test]
fn a_claim_is_taken_back_alone_and_no_other_is_made_longer() {
    let dir = Dir::new();
    let operator = dir.operator();
    let now = clock::now();
    let until = now + PICK_NS;
    for more in 0..3 {
        assert!(operator.claim_pick(GPU, "Test GPU", MIB, until + more, now));
    }
    let picks = || look(operator.segments()).devices[0].picks;
    operator.release_pick(GPU, until + 1);
    assert_eq!(picks(), 2);
    operator.release_pick(GPU, until + 1);
    operator.release_pick([9; 16], until);
    assert_eq!(picks(), 2);
    operator.release_pick(GPU, until);
    operator.release_pick(GPU, until + 2);
    assert_eq!(picks(), 0);
}
