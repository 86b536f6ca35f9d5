//! Gangs on two devices, in simulated time: how much of its turns a rank has together with the other rank.

use super::{MS, SECOND};
use crate::{
    Ending, Entry, Gang, Identity, LaunchLimits, LockPolicy, Order, PolicyKind, Reason,
    Registration, Segments, SettingValues,
    lock::{DeviceLock, tests::pair::operator, who},
    os::clock,
    protocol::{primitive::Ordering, turn::Passed},
    register,
};

const SLICE: u64 = 5 * MS;
const TICK: u64 = MS / 20;
/// Time that a holder waits for a member whose turn goes on.
const PATIENCE: u64 = MS;

/// One process, which always has work.
#[derive(Clone, Copy)]
struct Rank {
    device: u8,
    gang: u64,
    /// Time that its kernels take to drain.
    drain_ns: u64,
    priority: i32,
}

const fn rank(device: u8, gang: u64) -> Rank {
    Rank {
        device,
        gang,
        drain_ns: MS / 4,
        priority: 0,
    }
}

/// State of a process on its device.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Waits,
    Holds,
    DrainsUntil(u64),
}

struct Process {
    rank: Rank,
    registration: Registration,
    entry: Entry,
    phase: Phase,
    since: u64,
    held: u64,
    together: u64,
}

impl Process {
    fn lock(&self) -> DeviceLock<'_> {
        self.registration.lock(self.entry)
    }
}

/// The share of all the time that each held its device, and how much of that it held together with its gang, in per cent.
fn play(order: Order, ranks: &[Rank], seconds: u64) -> Vec<(f64, f64)> {
    let dir = tempfile::tempdir().expect("a directory");
    let segments = Segments::open_workload(dir.path()).expect("segments");
    let policy = LockPolicy {
        kind: PolicyKind::Timeslice(SLICE),
        order,
        ..LockPolicy::default()
    };
    let _operator = operator(dir.path(), policy);
    let start = clock::now();
    let mut all: Vec<Process> = ranks
        .iter()
        .map(|rank| {
            let limits = LaunchLimits {
                settings: SettingValues {
                    priority: Some(rank.priority),
                    ..SettingValues::default()
                },
                gang: (rank.gang != 0).then(|| Gang::Named(rank.gang.to_string())),
                ..LaunchLimits::default()
            };
            let registration = register(&segments, &Identity::default(), &limits).expect("a slot");
            let uuid = [rank.device + 1; 16];
            let entry = registration
                .add_device(uuid, 0, "", 1, 0)
                .expect("an entry");
            registration.lock(entry).enqueue(start);
            Process {
                rank: *rank,
                registration,
                entry,
                phase: Phase::Waits,
                since: start,
                held: 0,
                together: 0,
            }
        })
        .collect();
    let end = start + seconds * SECOND;
    let mut now = start;
    while now < end {
        now += TICK;
        all.iter_mut().for_each(|process| step(process, now));
        let phases: Vec<(Rank, Phase)> = all.iter().map(|one| (one.rank, one.phase)).collect();
        for process in &mut all {
            let own = process.rank;
            let mut mates = phases
                .iter()
                .filter(|(rank, _)| rank.gang == own.gang && rank.device != own.device);
            let together =
                process.phase == Phase::Holds && mates.all(|(_, phase)| *phase == Phase::Holds);
            process.held += u64::from(process.phase != Phase::Waits) * TICK;
            process.together += u64::from(together) * TICK;
        }
    }
    let per_cent = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
    for process in &all {
        let violations = &process.lock().device.violations;
        assert_eq!(violations.load(Ordering::Relaxed), 0);
    }
    all.iter()
        .map(|one| {
            (
                per_cent(one.held, end - start),
                per_cent(one.together, one.held),
            )
        })
        .collect()
}

fn step(process: &mut Process, now: u64) {
    let lock = process.registration.lock(process.entry);
    let slot = usize::from(process.registration.slot().index);
    let turn = lock.device.turn();
    let owner = turn.owner();
    match process.phase {
        Phase::Waits => {
            lock.words.pulse_ns.store(now, Ordering::Relaxed);
            if who(owner) == 0 && !matches!(lock.pass(owner, now), Passed::To(_)) {
                return;
            }
            let owner = turn.owner();
            if who(owner) == lock.me {
                let waited = now - lock.words.lock_since.load(Ordering::Relaxed);
                assert!(lock.begin(owner, now, Some(waited)));
                turn.leave(slot);
                (process.phase, process.since) = (Phase::Holds, now);
            }
        }
        Phase::Holds => {
            let over = now >= lock.turn_since(process.since, SLICE) + SLICE;
            if over && (lock.contended_at(now) || lock.ends_with_mates()) || lock.is_called(now) {
                lock.publish_ending(Ending::Stopped, 0);
                process.phase = Phase::DrainsUntil(now + process.rank.drain_ns);
            }
        }
        Phase::DrainsUntil(done) if now < done => {}
        Phase::DrainsUntil(done) => {
            lock.publish_ending(Ending::Drained, 0);
            let mates = lock.mates();
            if !mates.are_busy() || !mates.stopped && now >= done + PATIENCE {
                lock.release(Reason::Slice, now);
                lock.enqueue(now);
                process.phase = Phase::Waits;
            }
        }
    }
}

fn assert_halves(outcome: &[(f64, f64)]) {
    for (share, _) in outcome {
        assert!((45.0..55.0).contains(share), "{outcome:.1?}");
    }
}

#[test]
fn two_ranks_beside_two_contenders_have_their_turns_together_and_share_evenly() {
    let ranks = |gang| [rank(0, gang), rank(1, gang), rank(0, 0), rank(1, 0)];
    for order in [Order::Fair, Order::Fifo] {
        let outcome = play(order, &ranks(7), 10);
        assert_halves(&outcome);
        // Of a turn of 5 ms the drain takes a quarter of a millisecond.
        for (_, together) in &outcome[..2] {
            assert!(*together > 90.0, "{order:?}: {outcome:.1?}");
        }
    }
}

#[test]
fn a_contender_with_long_kernels_delays_the_gang_and_does_not_part_it() {
    let slow = Rank {
        drain_ns: 2 * MS,
        ..rank(1, 0)
    };
    let outcome = play(Order::Fair, &[rank(0, 7), rank(1, 7), rank(0, 0), slow], 10);
    for (share, together) in &outcome[..2] {
        assert!(*together > 60.0 && *share > 40.0, "{outcome:.1?}");
    }
    assert!(outcome[2].0 > 40.0 && outcome[3].0 > 40.0, "{outcome:.1?}");
}

#[test]
fn two_gangs_on_two_devices_take_turns_as_wholes() {
    let outcome = play(
        Order::Fair,
        &[rank(0, 7), rank(1, 8), rank(1, 7), rank(0, 8)],
        10,
    );
    assert_halves(&outcome);
    assert!(
        outcome.iter().all(|(_, together)| *together > 85.0),
        "{outcome:.1?}"
    );
}

#[test]
fn a_gang_that_is_alone_on_one_device_does_not_starve_a_contender_on_the_other() {
    let outcome = play(Order::Fair, &[rank(0, 7), rank(1, 7), rank(1, 0)], 10);
    assert!(outcome[0].0 > 95.0, "{outcome:.1?}");
    assert_halves(&outcome[1..]);
}

#[test]
fn a_gang_does_not_pass_a_contender_of_higher_priority() {
    let urgent = Rank {
        priority: 19,
        ..rank(1, 0)
    };
    let outcome = play(
        Order::Priority,
        &[rank(0, 7), rank(1, 7), rank(0, 0), urgent],
        4,
    );
    assert!(outcome[3].0 > 90.0, "{outcome:.1?}");
}

#[test]
fn three_ranks_with_a_contender_on_one_device_only_stay_together() {
    let outcome = play(
        Order::Fair,
        &[rank(0, 7), rank(1, 7), rank(2, 7), rank(2, 0)],
        10,
    );
    assert_halves(&outcome[2..]);
    assert!(outcome[2].1 > 85.0, "{outcome:.1?}");
}
