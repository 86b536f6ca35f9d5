//! Shares of device time in simulated schedules: the real words and the real choice, with a simulated clock.

mod counted;
mod forecasts;
mod gangs;

use proptest::prelude::*;

use super::super::{DeviceLock, WAITS};
use crate::{
    Change, Entry, Identity, LaunchLimits, LockPolicy, Operator, Order, PolicyKind, Reason,
    Registration, Segments, Set, ShareEdit,
    os::clock,
    protocol::{primitive::Ordering, turn::Passed},
    register,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// One process of a schedule.
#[derive(Clone, Copy, Debug)]
struct Wish {
    weight: u32,
    priority: i32,
    cap: Option<u32>,
    /// Time when the process begins to want the device.
    from_ns: u64,
    /// Time that the process stays away after each hold.
    gap_ns: u64,
    /// Least duration of its work in one turn: a kernel is not interrupted.
    work_ns: u64,
}

const PLAIN: Wish = Wish {
    weight: 100,
    priority: 0,
    cap: None,
    from_ns: 0,
    gap_ns: 0,
    work_ns: 5 * MS,
};

struct World {
    _dir: tempfile::TempDir,
    start: u64,
    processes: Vec<(Registration, Entry)>,
    wishes: Vec<Wish>,
    /// For each process, the time until which it is away.
    back_at: Vec<u64>,
}

/// The result of a schedule.
struct Outcome {
    /// Each process's part of the whole time, in per cent.
    shares: Vec<f64>,
    /// The longest wait of any process.
    longest_wait: u64,
    /// The mean wait, by process.
    waits: Vec<u64>,
}

impl World {
    fn new(order: Order, wishes: &[Wish]) -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let kind = PolicyKind::Timeslice(5 * MS);
        let policy = LockPolicy {
            kind,
            order,
            ..LockPolicy::default()
        };
        let operator = super::pair::operator(dir.path(), policy);
        let processes: Vec<_> = wishes
            .iter()
            .map(|wish| enter(&segments, &operator, wish))
            .collect();
        let start = clock::now();
        let back_at = wishes.iter().map(|wish| start + wish.from_ns).collect();
        World {
            _dir: dir,
            start,
            processes,
            wishes: wishes.to_vec(),
            back_at,
        }
    }

    fn lock(&self, who: usize) -> DeviceLock<'_> {
        self.processes[who].0.lock(self.processes[who].1)
    }

    /// Queues the processes that are back.
    fn arrivals(&mut self, now: u64, holder: Option<usize>) {
        for who in 0..self.processes.len() {
            let waits = self.lock(who).words.lock_state.load(Ordering::Relaxed) == WAITS;
            if self.back_at[who] <= now && !waits && holder != Some(who) {
                self.lock(who).enqueue(now);
            }
            if waits {
                self.lock(who).words.pulse_ns.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Returns the process that has the turn.
    fn owner(&self) -> Option<usize> {
        (0..self.processes.len()).find(|who| {
            crate::protocol::turn::who(self.lock(*who).device.turn().owner()) == self.lock(*who).me
        })
    }

    fn run(mut self, seconds: u64) -> Outcome {
        let end = self.start + seconds * SECOND;
        let (mut now, mut longest_wait) = (self.start, 0);
        let mut held = vec![0u64; self.processes.len()];
        while now < end {
            self.arrivals(now, None);
            let turn = self.lock(0).device.turn();
            if !matches!(self.lock(0).pass(turn.owner(), now), Passed::To(_)) {
                now += MS / 10;
                continue;
            }
            // Passed on until no process wants it.
            while let Some(who) = self.owner().filter(|_| now < end) {
                let lock = self.lock(who);
                let waited = now - lock.words.lock_since.load(Ordering::Relaxed);
                longest_wait = longest_wait.max(waited);
                assert!(lock.begin(lock.device.turn().owner(), now, Some(waited)));
                lock.device
                    .turn()
                    .leave(usize::from(self.processes[who].0.slot().index));
                let since = now;
                loop {
                    let left = self.lock(who).cap_left(now).unwrap_or(u64::MAX);
                    now += left.clamp(MS / 10, self.wishes[who].work_ns);
                    self.arrivals(now, Some(who));
                    let lock = self.lock(who);
                    let spent = lock.cap_left(now) == Some(0);
                    if spent || now >= end || lock.contended_at(now) || self.wishes[who].gap_ns > 0
                    {
                        break;
                    }
                }
                held[who] += now - since;
                self.back_at[who] = now + self.wishes[who].gap_ns;
                let reason = if self.wishes[who].gap_ns > 0 {
                    Reason::Sync
                } else {
                    Reason::Slice
                };
                self.lock(who).release(reason, now);
                self.arrivals(now, None);
            }
        }
        assert_eq!(self.lock(0).device.violations.load(Ordering::Relaxed), 0);
        let total = (seconds * SECOND) as f64;
        let waits = self.processes.iter().map(|(process, entry)| {
            let words = process.lock(*entry).words;
            let turns = words.acquisitions.load(Ordering::Relaxed);
            words.waited_ns.load(Ordering::Relaxed) / turns.max(1)
        });
        Outcome {
            waits: waits.collect(),
            shares: held.iter().map(|one| *one as f64 * 100.0 / total).collect(),
            longest_wait,
        }
    }
}

fn enter(segments: &Segments, operator: &Operator, wish: &Wish) -> (Registration, Entry) {
    let process =
        register(segments, &Identity::default(), &LaunchLimits::default()).expect("a slot");
    let entry = process.add_device([1; 16], 0, "", 1, 0).expect("an entry");
    let change = Change::ProcessShare {
        slot: process.slot(),
        share: ShareEdit {
            weight: Set::To(wish.weight),
            priority: Set::To(wish.priority),
            cap: wish.cap.map_or(Set::Keep, Set::To),
            ..ShareEdit::default()
        },
    };
    operator.edit(None, &change, 0).expect("edited");
    (process, entry)
}

fn near(shares: &[f64], wanted: &[f64]) {
    for (share, want) in shares.iter().zip(wanted) {
        assert!(
            (share - want).abs() < 2.0,
            "{shares:.1?} are not {wanted:.1?}"
        );
    }
}

#[test]
fn weights_of_one_two_and_four_give_their_shares() {
    let wishes = [100, 200, 400].map(|weight| Wish { weight, ..PLAIN });
    let outcome = World::new(Order::Fair, &wishes).run(10);
    near(&outcome.shares, &[14.3, 28.6, 57.1]);
}

#[test]
fn caps_of_ten_thirty_and_fifty_per_cent_hold() {
    let wishes = [10, 30, 50].map(|cap| Wish {
        cap: Some(cap),
        ..PLAIN
    });
    let outcome = World::new(Order::Fair, &wishes).run(10);
    near(&outcome.shares, &[10.0, 30.0, 50.0]);
}

#[test]
fn what_a_cap_leaves_goes_to_the_others() {
    let wishes = [
        Wish {
            cap: Some(20),
            ..PLAIN
        },
        PLAIN,
    ];
    let outcome = World::new(Order::Fair, &wishes).run(10);
    near(&outcome.shares, &[20.0, 80.0]);
}

/// The credit of a capped process is for a wait or a moment, not for an hour away.
#[test]
fn a_capped_process_that_was_away_comes_back_with_a_moments_burst_at_most() {
    let away = Wish {
        cap: Some(10),
        from_ns: 3 * SECOND,
        ..PLAIN
    };
    let shares = World::new(Order::Fair, &[away]).run(4).shares;
    // A tenth of the last second, and what it saved during a tenth of a second away.
    assert!((2.0..3.2).contains(&shares[0]), "{shares:?}");
}

#[test]
fn a_lone_process_is_held_to_its_cap() {
    let outcome = World::new(
        Order::Fair,
        &[Wish {
            cap: Some(30),
            ..PLAIN
        }],
    )
    .run(10);
    near(&outcome.shares, &[30.0]);
}

#[test]
fn an_idle_process_takes_nothing_from_the_others() {
    let wishes = [
        PLAIN,
        PLAIN,
        Wish {
            from_ns: 100 * SECOND,
            ..PLAIN
        },
    ];
    let outcome = World::new(Order::Fair, &wishes).run(10);
    near(&outcome.shares, &[50.0, 50.0, 0.0]);
}

#[test]
fn a_newcomer_gets_no_pay_for_the_time_it_was_away() {
    let wishes = [
        PLAIN,
        Wish {
            from_ns: 8 * SECOND,
            ..PLAIN
        },
    ];
    let outcome = World::new(Order::Fair, &wishes).run(10);
    near(&outcome.shares, &[90.0, 10.0]);
}

#[test]
fn under_priority_the_urgent_come_first_and_nobody_starves() {
    let wishes = [
        Wish {
            priority: 5,
            ..PLAIN
        },
        PLAIN,
        Wish {
            priority: -5,
            ..PLAIN
        },
    ];
    let outcome = World::new(Order::Priority, &wishes).run(20);
    assert!(outcome.shares[0] > 90.0, "{:?}", outcome.shares);
    assert!(
        outcome.shares.iter().all(|share| *share > 0.0),
        "{:?}",
        outcome.shares
    );
    // Ten steps of ageing lie between the first and the last.
    assert!(
        outcome.longest_wait < 2 * SECOND,
        "{}",
        outcome.longest_wait
    );
}

#[test]
fn under_fifo_everybody_gets_the_same_turns() {
    let outcome = World::new(Order::Fifo, &[PLAIN, PLAIN, PLAIN, PLAIN]).run(10);
    near(&outcome.shares, &[25.0, 25.0, 25.0, 25.0]);
    assert!(outcome.longest_wait <= 20 * MS, "{}", outcome.longest_wait);
}

/// Returns two trainings with kernels of 40 ms, and short inferences that wait again after a while.
fn long_and_short(inferences: usize, gap_ns: u64) -> Vec<Wish> {
    let long = Wish {
        work_ns: 40 * MS,
        ..PLAIN
    };
    let short = Wish {
        work_ns: MS,
        gap_ns,
        ..PLAIN
    };
    let mut wishes = vec![long; 2];
    wishes.resize(2 + inferences, short);
    wishes
}

#[test]
fn under_shortest_many_short_turns_pass_the_long_ones() {
    let wishes = long_and_short(4, 100 * MS);
    let fifo = World::new(Order::Fifo, &wishes).run(20);
    let shortest = World::new(Order::Shortest, &wishes).run(20);
    for short in 2..wishes.len() {
        let (before, now) = (fifo.waits[short], shortest.waits[short]);
        assert!(now * 4 < before * 3, "{now} ns against {before} ns");
        assert!(now < 40 * MS, "waited for more than one kernel: {now} ns");
    }
    // It costs the long ones nearly nothing, and they share the rest.
    near(&shortest.shares[..2], &fifo.shares[..2]);
}

#[test]
fn under_shortest_a_long_turn_comes_though_short_ones_never_end() {
    let wishes = long_and_short(6, MS);
    let outcome = World::new(Order::Shortest, &wishes).run(20);
    for long in 0..2 {
        assert!(outcome.shares[long] > 5.0, "{:?}", outcome.shares);
    }
    // Eight times the mean hold, and the kernel of the other.
    assert!(
        outcome.longest_wait < (8 * 40 + 2 * 40) * MS,
        "{}",
        outcome.longest_wait
    );
}

fn wish() -> impl Strategy<Value = Wish> {
    (
        1u32..=1000,
        -20i32..20,
        prop::option::of(1u32..=100),
        0u64..3,
        prop_oneof![Just(0), 0u64..20],
    )
        .prop_map(|(weight, priority, cap, from, gap)| Wish {
            weight,
            priority,
            cap,
            from_ns: from * SECOND / 4,
            gap_ns: gap * MS,
            ..PLAIN
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn saturated_shares_follow_any_weights(weights in prop::collection::vec(20u32..=400, 2..6)) {
        let wishes: Vec<Wish> = weights.iter().map(|weight| Wish { weight: *weight, ..PLAIN }).collect();
        let total: u32 = weights.iter().sum();
        let wanted: Vec<f64> = weights.iter().map(|one| f64::from(*one) * 100.0 / f64::from(total)).collect();
        near(&World::new(Order::Fair, &wishes).run(10).shares, &wanted);
    }

    #[test]
    fn no_schedule_breaks_a_cap_or_loses_the_lock(wishes in prop::collection::vec(wish(), 1..6), order in 0..Order::ALL.len()) {
        let order = Order::ALL[order];
        let outcome = World::new(order, &wishes).run(5);
        for (share, wish) in outcome.shares.iter().zip(&wishes) {
            let cap = f64::from(wish.cap.unwrap_or(100));
            prop_assert!(*share < cap + 2.5, "{wish:?} got {share}");
        }
        let hungry = wishes.iter().any(|wish| wish.cap.is_none() && wish.gap_ns == 0 && wish.from_ns == 0);
        if hungry {
            let total: f64 = outcome.shares.iter().sum();
            prop_assert!(total > 98.0, "the device stood idle: {:?}", outcome.shares);
        }
    }
}
