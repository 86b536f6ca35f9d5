//! The ledger: no total exceeds a limit, and no byte is lost.

mod common;

use std::sync::{
    Barrier,
    atomic::{AtomicU64, Ordering},
};

use common::*;
use proptest::prelude::*;
use shm_layout::*;

fn quota(bytes: u64) -> LaunchLimits {
    let mut limits = LaunchLimits {
        memory_source: Source::LaunchEnv,
        ..LaunchLimits::default()
    };
    limits.memory[0] = MemoryLimit::Bytes(bytes);
    limits
}

fn member(group: &str) -> LaunchLimits {
    LaunchLimits {
        group: Some(group.to_owned()),
        ..LaunchLimits::default()
    }
}

#[test]
fn a_reservation_that_is_dropped_gives_its_bytes_back() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, entry) = with_limits(&segments, "", &quota(10));
    let ledger = process.ledger(entry);
    drop(ledger.reserve(10).expect("room"));
    assert_eq!(ledger.reserve(10).expect("room again").commit(), 10);
    let denial = ledger.reserve(1).err().expect("spent");
    assert_eq!(
        denial,
        Denial {
            limit: Limit::Process,
            used: 10,
            quota: 10,
            asked: 1
        }
    );
    ledger.release(4);
    assert_eq!((ledger.used(), ledger.room()), (6, Some(4)));
    assert_eq!(
        ledger.quota(),
        Quota {
            bytes: Some(10),
            source: Source::LaunchEnv
        }
    );
}

/// While a process exits, its threads continue: a thread that waits for memory may get bytes that its own process frees.
#[test]
fn bytes_that_a_thread_takes_while_its_process_leaves_are_not_the_next_ones() {
    let dir = Dir::new();
    let segments = dir.open();
    let (leaves, entry) = with_limits(&segments, "leaves", &quota(MIB));
    let slot = leaves.slot();
    let ledger = leaves.ledger(entry);
    ledger.reserve(MIB).expect("room").commit();
    let denial = ledger.reserve(1).err().expect("its quota is spent");
    leaves.leave();
    let want = Want {
        bytes: MIB,
        kind: WantKind::Allocation,
    };
    let place = ledger.enqueue(want, denial, clock::now());
    let Poll::Granted(late) = place.poll(clock::now()) else {
        panic!("its own bytes have come back");
    };
    late.commit();
    // The process ends here, and the thread in it.
    std::mem::forget(place);
    drop(leaves);

    let (next, entry) = heir(&segments, slot, "next");
    assert_eq!(next.ledger(entry).used(), 0);
    let seen = look(&segments);
    assert_eq!(seen.devices[0].memory_line, []);
    assert_eq!(seen.processes[0].devices[0].peak, 0);
    let (other, entry) = process(&segments, "other");
    let at_once = other.ledger(entry).reserve_at_once(1);
    assert!(at_once.is_some(), "no process stands in the line");
}

#[test]
fn freeing_more_than_is_held_never_wraps() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, entry) = process(&segments, "");
    let ledger = process.ledger(entry);
    ledger.charge_unchecked(5);
    ledger.release(u64::MAX);
    assert_eq!(ledger.used(), 0);
    ledger.charge_unchecked(u64::MAX);
    ledger.charge_unchecked(u64::MAX);
    assert_eq!(ledger.used(), u64::MAX);
    assert!(ledger.reserve(1).is_err(), "the sum would wrap");
}

#[test]
fn absurd_sizes_are_refused_and_leave_no_trace() {
    let dir = Dir::new();
    let segments = dir.open();
    dir.limit(100);
    let (process, entry) = process(&segments, "");
    let ledger = process.ledger(entry);
    for bytes in [101, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        assert_eq!(
            ledger.reserve(bytes).err().expect("absurd").limit,
            Limit::Device
        );
    }
    assert_eq!(ledger.reserve(100).expect("room").commit(), 100);
}

#[test]
fn percentages_are_of_the_devices_memory() {
    let dir = Dir::new();
    let segments = dir.open();
    let mut limits = LaunchLimits::default();
    limits.memory[0] = MemoryLimit::Percent(25);
    let (process, entry) = with_limits(&segments, "", &limits);
    assert_eq!(process.ledger(entry).quota().bytes, Some(256 * MIB));
}

#[test]
fn a_process_is_limited_by_its_own_quota_or_by_its_groups() {
    let dir = Dir::new();
    let segments = dir.open();
    let (own, entry) = with_limits(&segments, "own", &quota(10));
    let (group, _) = with_limits(&segments, "group", &member("team"));
    let (free, _) = with_limits(&segments, "free", &member("other"));
    dir.group("team", 100);
    let is_limited = |process: &Registration| process.ledger(entry).is_limited();
    assert_eq!([&own, &group, &free].map(is_limited), [true, true, false]);
}

#[test]
fn a_group_shares_its_quota_and_only_its_members_feel_it() {
    let dir = Dir::new();
    let segments = dir.open();
    let (first, entry) = with_limits(&segments, "first", &member("team"));
    let (second, _) = with_limits(&segments, "second", &member("team"));
    let (stranger, _) = with_limits(&segments, "stranger", &member("other"));
    first.ledger(entry).charge_unchecked(30);
    dir.group("team", 100);
    assert_eq!(second.ledger(entry).room(), Some(70));
    assert_eq!(second.ledger(entry).reserve(70).expect("room").commit(), 70);
    let denial = first
        .ledger(entry)
        .reserve(1)
        .err()
        .expect("spent together");
    assert_eq!(
        denial,
        Denial {
            limit: Limit::Group,
            used: 100,
            quota: 100,
            asked: 1
        }
    );
    assert_eq!(
        stranger
            .ledger(entry)
            .reserve(1000)
            .expect("no limit")
            .commit(),
        1000
    );
}

#[test]
fn lowering_a_quota_below_use_denies_and_kills_nobody() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, entry) = process(&segments, "");
    let ledger = process.ledger(entry);
    ledger.charge_unchecked(100);
    dir.quota(&process, QuotaValue::Bytes(50));
    assert_eq!((ledger.used(), ledger.room()), (100, Some(0)));
    assert_eq!(
        ledger.quota(),
        Quota {
            bytes: Some(50),
            source: Source::Operator
        }
    );
    assert!(ledger.reserve(1).is_err());
    dir.quota(&process, QuotaValue::Bytes(101));
    assert_eq!(ledger.reserve(1).expect("raised").commit(), 1);
}

/// Starts competing threads together; a total of all admitted bytes is checked all the time.
fn race(limits: impl Fn(usize) -> LaunchLimits, limit: u64, edit: Option<Change>) {
    let dir = Dir::new();
    let segments = dir.open();
    if let Some(change) = edit {
        dir.edit(&change);
    }
    let rivals: Vec<_> = (0..6)
        .map(|index| with_limits(&segments, "rival", &limits(index)))
        .collect();
    let held = AtomicU64::new(0);
    let barrier = Barrier::new(rivals.len());
    std::thread::scope(|scope| {
        for (index, (process, entry)) in rivals.iter().enumerate() {
            let (barrier, held) = (&barrier, &held);
            scope.spawn(move || {
                let ledger = process.ledger(*entry);
                for round in 0..300 {
                    barrier.wait();
                    let bytes = 1 + ((index * 7 + round * 13) as u64 % (limit / 2));
                    if let Ok(reservation) = ledger.reserve(bytes) {
                        let sum = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(sum <= limit, "{sum} of {limit}");
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        drop(reservation);
                    }
                }
            });
        }
    });
    for (process, entry) in &rivals {
        assert_eq!(process.ledger(*entry).used(), 0, "all went back");
    }
}

#[test]
fn no_interleaving_exceeds_a_device_limit_by_one_byte() {
    let limit = Change::DeviceLimit {
        uuid: GPU,
        value: QuotaValue::Bytes(1000),
    };
    race(|_| LaunchLimits::default(), 1000, Some(limit));
}

#[test]
fn no_interleaving_exceeds_a_group_quota_by_one_byte() {
    let group = Change::Group {
        name: "team".to_owned(),
        settings: shm_layout::GroupEdit {
            memory: Set::To(QuotaValue::Bytes(1000)),
            ..shm_layout::GroupEdit::default()
        },
        remove: false,
    };
    race(|_| member("team"), 1000, Some(group));
}

#[test]
fn what_fits_is_admitted_even_when_everybody_asks_at_once() {
    let dir = Dir::new();
    let segments = dir.open();
    dir.limit(600);
    let rivals: Vec<_> = (0..6).map(|_| process(&segments, "rival")).collect();
    let barrier = Barrier::new(rivals.len());
    std::thread::scope(|scope| {
        for (process, entry) in &rivals {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                process
                    .ledger(*entry)
                    .reserve(100)
                    .expect("six times a sixth")
                    .commit();
            });
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u8, u64),
    Keep(u8),
    Drop(u8),
    Release(u8, u64),
    Quota(u8, Option<u64>),
    Device(Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0u8..3;
    let bytes = prop_oneof![0u64..200, Just(u64::MAX), Just(u64::MAX - 3)];
    prop::collection::vec(
        prop_oneof![
            4 => (who.clone(), bytes.clone()).prop_map(|(who, bytes)| Step::Reserve(who, bytes)),
            2 => who.clone().prop_map(Step::Keep),
            2 => who.clone().prop_map(Step::Drop),
            2 => (who.clone(), 0u64..200).prop_map(|(who, bytes)| Step::Release(who, bytes)),
            1 => (who, prop::option::of(0u64..300)).prop_map(|(who, quota)| Step::Quota(who, quota)),
            1 => prop::option::of(0u64..600).prop_map(Step::Device),
        ],
        1..60,
    )
}

fn value(bytes: Option<u64>) -> QuotaValue {
    bytes.map_or(QuotaValue::Inherit, QuotaValue::Bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_agrees_with_plain_arithmetic(steps in steps()) {
        let dir = Dir::new();
        let segments = dir.open();
        let operator = dir.operator();
        let processes: Vec<_> = (0..3).map(|_| process(&segments, "")).collect();
        let mut pending: Vec<Vec<Reservation<'_>>> = (0..3).map(|_| Vec::new()).collect();
        let mut sizes: Vec<Vec<u64>> = vec![Vec::new(); 3];
        let (mut used, mut quotas, mut device) = ([0u64; 3], [u64::MAX; 3], u64::MAX);
        for step in steps {
            match step {
                Step::Reserve(who, bytes) => {
                    let at = usize::from(who);
                    let (process, entry) = &processes[at];
                    let fits = used[at].checked_add(bytes).is_some_and(|sum| sum <= quotas[at])
                        && (device == u64::MAX
                            || used.iter().try_fold(bytes, |sum, one| sum.checked_add(*one)).is_some_and(|sum| sum <= device));
                    let reservation = process.ledger(*entry).reserve(bytes);
                    prop_assert_eq!(reservation.is_ok(), fits);
                    if let Ok(reservation) = reservation {
                        used[at] += bytes;
                        pending[at].push(reservation);
                        sizes[at].push(bytes);
                    }
                }
                Step::Keep(who) => {
                    let at = usize::from(who);
                    if let Some(reservation) = pending[at].pop() {
                        prop_assert_eq!(reservation.commit(), sizes[at].pop().expect("as many"));
                    }
                }
                Step::Drop(who) => {
                    let at = usize::from(who);
                    if pending[at].pop().is_some() {
                        used[at] = used[at].saturating_sub(sizes[at].pop().expect("as many"));
                    }
                }
                Step::Release(who, bytes) => {
                    let at = usize::from(who);
                    processes[at].0.ledger(processes[at].1).release(bytes);
                    used[at] = used[at].saturating_sub(bytes);
                }
                Step::Quota(who, bytes) => {
                    let at = usize::from(who);
                    let slot = processes[at].0.slot();
                    let change = Change::ProcessQuota { slot, device: Some(0), value: value(bytes), until: None };
                    operator.edit(None, &change, clock::now()).expect("edited");
                    quotas[at] = bytes.unwrap_or(u64::MAX);
                }
                Step::Device(bytes) => {
                    let change = Change::DeviceLimit { uuid: GPU, value: value(bytes) };
                    operator.edit(None, &change, clock::now()).expect("edited");
                    device = bytes.unwrap_or(u64::MAX);
                }
            }
            for (at, (process, entry)) in processes.iter().enumerate() {
                prop_assert_eq!(process.ledger(*entry).used(), used[at]);
            }
        }
    }
}

/// Sets what the members of a group have reserved together, in MiB.
fn reserve_for_team(dir: &Dir, mib: u32) {
    dir.edit(&Change::Group {
        name: "team".into(),
        settings: GroupEdit {
            reserve: match mib {
                0 => Set::Inherit,
                mib => Set::To(Reserve::Mib(mib)),
            },
            ..GroupEdit::default()
        },
        remove: false,
    });
}

fn in_team() -> LaunchLimits {
    LaunchLimits {
        group: Some("team".into()),
        ..LaunchLimits::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_group_has_reserved_is_kept_for_its_members(
        steps in prop::collection::vec((0usize..4, 0u64..500, 0u8..4), 1..60)
    ) {
        const CARD: u64 = 1000;
        let dir = Dir::new();
        let segments = dir.open();
        dir.limit(CARD * MIB);
        let processes: Vec<_> = (0..4)
            .map(|who| match who < 2 {
                true => with_limits(&segments, "member", &in_team()),
                false => process(&segments, "other"),
            })
            .collect();
        let (mut used, mut reserve) = ([0u64; 4], 0u64);
        for (who, mib, step) in steps {
            let ledger = processes[who].0.ledger(processes[who].1);
            match step {
                0 => {
                    reserve = mib;
                    reserve_for_team(&dir, mib as u32);
                }
                1 => {
                    let freed = mib.min(used[who]);
                    ledger.release(freed * MIB);
                    used[who] -= freed;
                }
                _ => {
                    let (team, others) = (used[0] + used[1], used[2] + used[3]);
                    let fits = match who < 2 {
                        true => team + others + mib <= CARD,
                        false => team.max(reserve) + others + mib <= CARD,
                    };
                    let reservation = ledger.reserve(mib * MIB);
                    prop_assert_eq!(reservation.is_ok(), fits, "{}: {:?}, {}", who, used, reserve);
                    if let Ok(reservation) = reservation {
                        reservation.commit();
                        used[who] += mib;
                    }
                }
            }
        }
    }
}

#[test]
fn a_groups_reserve_holds_without_members_and_ends_with_its_settings() {
    let dir = Dir::new();
    let segments = dir.open();
    let (one, entry) = process(&segments, "one");
    let ledger = one.ledger(entry);
    reserve_for_team(&dir, 1000);
    assert!(ledger.reserve(25 * MIB).is_err());
    ledger.reserve(24 * MIB).expect("beside it").commit();
    let (member, its) = with_limits(&segments, "member", &in_team());
    let members = member.ledger(its);
    members.reserve(1000 * MIB).expect("its group's").commit();
    assert!(members.reserve(MIB).is_err(), "the card is full");
    members.release(1000 * MIB);
    drop(member);
    assert!(ledger.reserve(MIB).is_err());
    dir.edit(&Change::remove_group("team".into()));
    ledger
        .reserve(1000 * MIB)
        .expect("the reserve is over")
        .commit();
}

#[test]
fn what_is_evicted_leaves_room_to_others_and_comes_back_whatever_its_own_quota() {
    let dir = Dir::new();
    let segments = dir.open();
    dir.limit(100);
    let (one, entry) = with_limits(&segments, "one", &quota(80));
    let (two, other) = process(&segments, "two");
    let (ledger, others) = (one.ledger(entry), two.ledger(other));
    ledger.reserve(80).expect("room").commit();
    assert!(others.reserve(80).is_err());
    assert_eq!(ledger.evict(u64::MAX, 5), 80);
    assert_eq!((ledger.used(), ledger.evicted()), (0, 80));
    others.reserve(80).expect("the room is free").commit();
    let view = look(&segments);
    assert_eq!(view.processes[0].devices[0].evicted, 80);
    assert_eq!(view.processes[0].devices[0].used, 0);

    // For a restore the process waits for the shared limit, not for its own quota.
    assert!(others.reserve(80).is_err(), "full");
    let place = ledger.enqueue_return(85, 0, clock::now());
    assert!(matches!(place.poll(clock::now()), Poll::Wait));
    others.release(80);
    let Poll::Granted(reservation) = place.poll(clock::now()) else {
        panic!("there is room");
    };
    assert_eq!(reservation.commit() - ledger.evicted(), 5);
    ledger.returned(5);
    place.complete();
    assert_eq!((ledger.used(), ledger.evicted()), (80, 0));
    assert!(ledger.outside() >= 5, "its context is in no account");
}

#[test]
fn memory_that_leaves_and_returns_in_two_steps_is_charged_where_it_is() {
    let dir = Dir::new();
    let segments = dir.open();
    let (one, entry) = process(&segments, "one");
    let ledger = one.ledger(entry);
    ledger.publish_free(0);
    let outside = ledger.outside();
    ledger.reserve(100).expect("room").commit();
    assert_eq!(ledger.evict(70, 0), 70);
    assert_eq!(ledger.evict(u64::MAX, 5), 30);
    assert_eq!((ledger.used(), ledger.evicted()), (0, 100));
    assert_eq!(ledger.outside(), outside - 5);
    ledger.charge_unchecked(30);
    ledger.returned_in_part(30, 5);
    assert_eq!((ledger.used(), ledger.evicted()), (30, 70));
    assert_eq!(ledger.outside(), outside);
    ledger.charge_unchecked(70);
    ledger.returned(0);
    assert_eq!((ledger.used(), ledger.evicted()), (100, 0));
    assert_eq!(ledger.outside(), outside);
}

#[test]
fn of_two_that_are_about_to_take_the_hosts_memory_each_sees_the_other() {
    let dir = Dir::new();
    let segments = dir.open();
    let [one, two] = ["one", "two"].map(|label| process(&segments, label).0);
    let moved = |phase| Moved {
        phase,
        ..Moved::default()
    };
    for process in [&one, &two] {
        process.publish_move(&moved(Phase::Evicting));
        process.publish_host_bytes(7);
    }
    assert_eq!(
        (one.host_bytes_under_way(), two.host_bytes_under_way()),
        (7, 7)
    );
    // A completed eviction counts in the free memory of the host instead.
    one.publish_move(&moved(Phase::Evicted));
    assert_eq!(
        (one.host_bytes_under_way(), two.host_bytes_under_way()),
        (7, 0)
    );
    // A copy of a process on its devices is only kept.
    one.publish_move(&moved(Phase::Resident));
    two.publish_move(&moved(Phase::Resident));
    assert_eq!(
        (one.host_bytes_kept(), two.host_bytes_kept()),
        ((7, 7), (0, 7)),
        "the second moved later"
    );
    assert!(!one.take_request());
    ask_to_evict(&segments, one.slot(), clock::now());
    assert!(one.take_request() && !one.take_request(), "asked once");
    drop(two);
    assert_eq!(one.host_bytes_under_way(), 0, "it has left");
}

const CARD: u64 = 1 << 40;

/// Returns a launch that wants this many MiB reserved.
fn reserving(mib: u32) -> LaunchLimits {
    let mut limits = LaunchLimits::default();
    limits.settings.reserve = Some(Reserve::Mib(mib));
    limits
}

#[test]
fn what_is_reserved_is_its_processs_alone_until_it_ends() {
    let dir = Dir::new();
    dir.limit(10 * MIB);
    let segments = dir.open();
    let (process, entry) = with_limits(&segments, "reserves", &reserving(6));
    let reserves = process.ledger(entry);
    let (other, entry) = with_limits(&segments, "other", &LaunchLimits::default());
    let other = other.ledger(entry);
    assert_eq!(reserves.follow_reserve(), Ok(6 * MIB));
    let denial = other.reserve(5 * MIB).err().expect("reserved");
    assert_eq!(
        (denial.limit, denial.used, denial.quota),
        (Limit::Device, 6 * MIB, 10 * MIB)
    );
    other.reserve(4 * MIB).expect("not reserved").commit();
    reserves.reserve(6 * MIB).expect("its own").commit();
    assert!(reserves.reserve(MIB).is_err(), "more than its own");
    // Bytes that it gives back stay its own.
    reserves.release(6 * MIB);
    assert!(other.reserve(MIB).is_err());
    assert_eq!(reserves.reserved(), 6 * MIB);
    drop(process);
    other
        .reserve(6 * MIB)
        .expect("no process has it reserved")
        .commit();
    assert!(!other.has_reserves());
}

#[test]
fn a_reserve_for_which_there_is_no_room_is_not_given_and_comes_when_there_is() {
    let dir = Dir::new();
    dir.limit(10 * MIB);
    let segments = dir.open();
    let (holder, entry) = with_limits(&segments, "holds", &LaunchLimits::default());
    let holder = holder.ledger(entry);
    holder.reserve(7 * MIB).expect("room").commit();
    let (process, entry) = with_limits(&segments, "reserves", &reserving(4));
    let ledger = process.ledger(entry);
    let denial = ledger.follow_reserve().expect_err("7 of 10 are held");
    assert_eq!((denial.used, denial.asked), (7 * MIB, 4 * MIB));
    assert_eq!(ledger.reserved(), 0);
    assert!(!holder.has_reserves());
    holder
        .reserve(2 * MIB)
        .expect("an attempt takes nothing")
        .commit();
    holder.release(3 * MIB);
    assert_eq!(ledger.follow_reserve(), Ok(4 * MIB));
    assert!(holder.reserve(MIB).is_err());
}

#[test]
fn a_reserve_is_at_most_the_quota_and_follows_edits() {
    let dir = Dir::new();
    let segments = dir.open();
    let limits = LaunchLimits {
        settings: reserving(8).settings,
        ..quota(5 * MIB)
    };
    let (process, entry) = with_limits(&segments, "reserves", &limits);
    let ledger = process.ledger(entry);
    assert_eq!(ledger.follow_reserve(), Ok(5 * MIB));
    dir.edit(&Change::ProcessShare {
        slot: process.slot(),
        share: ShareEdit {
            reserve: Set::To(Reserve::Mib(2)),
            ..ShareEdit::default()
        },
    });
    assert_eq!(ledger.follow_reserve(), Ok(2 * MIB));
    assert!(Reserve::Percent(100).of_device(CARD) == CARD);
}

#[test]
fn of_many_that_race_none_takes_reserved_bytes() {
    const THREADS: u64 = 4;
    let dir = Dir::new();
    dir.limit(10 * MIB);
    for _ in 0..50 {
        let barrier = Barrier::new(THREADS as usize + 2);
        let taken = AtomicU64::new(0);
        let given = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (process, entry) = with_limits(&dir.open(), "reserves", &reserving(4));
                    let ledger = process.ledger(entry);
                    barrier.wait();
                    if ledger.follow_reserve().is_ok() {
                        given.fetch_add(4 * MIB, Ordering::Relaxed);
                        ledger.reserve(4 * MIB).expect("its reserve").commit();
                    }
                    barrier.wait();
                });
            }
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let (process, entry) =
                        with_limits(&dir.open(), "other", &LaunchLimits::default());
                    let ledger = process.ledger(entry);
                    barrier.wait();
                    for _ in 0..4 {
                        if let Ok(bytes) = ledger.reserve(MIB) {
                            taken.fetch_add(bytes.commit(), Ordering::Relaxed);
                        }
                    }
                    barrier.wait();
                });
            }
        });
        let (taken, given) = (taken.into_inner(), given.into_inner());
        assert!(taken + given <= 10 * MIB, "{taken} taken, {given} given");
    }
}
