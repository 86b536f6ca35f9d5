//! Tests of which process holds back: the real words, with a simulated clock.

use super::{
    super::tests::pair::{MS, operator},
    measure::MEASURING_NS,
    *,
};
use crate::{
    Change, Entry, Identity, LaunchLimits, LockPolicy, Operator, PolicyKind, Registration, Set,
    SettingValues, ShareEdit, register,
};

const AHEAD: u64 = 2 * MS;

/// Processes of a device under `overlap`, by priority.
struct World {
    _dir: tempfile::TempDir,
    operator: Operator,
    processes: Vec<(Registration, Entry)>,
    now: u64,
}

impl World {
    fn new(order: Order, priorities: &[i32]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let policy = LockPolicy {
            kind: PolicyKind::Overlap(Some(AHEAD)),
            order,
            ..LockPolicy::default()
        };
        let operator = operator(dir.path(), policy);
        let enter = |priority: &i32| {
            let limits = LaunchLimits {
                settings: SettingValues {
                    priority: Some(*priority),
                    ..SettingValues::default()
                },
                ..LaunchLimits::default()
            };
            let process = register(operator.segments(), &Identity::default(), &limits);
            let process = process.expect("a slot");
            let entry = process.add_device([1; 16], 0, "", 1, 0).expect("an entry");
            (process, entry)
        };
        Self {
            processes: priorities.iter().map(enter).collect(),
            _dir: dir,
            operator,
            now: clock::now(),
        }
    }

    fn lock(&self, who: usize) -> DeviceLock<'_> {
        self.processes[who].0.lock(self.processes[who].1)
    }

    fn begin(&self, who: usize) {
        self.lock(who).begin_activity(self.now);
    }

    /// Lets time pass; the active processes refresh their pulse.
    fn pass(&mut self, ns: u64) {
        self.now += ns;
        for who in 0..self.processes.len() {
            if self.lock(who).is_active() {
                self.lock(who).keep_active(self.now);
            }
        }
    }

    fn by(&self, who: usize) -> Option<usize> {
        let held = self.lock(who).held_back_by(AHEAD, 0, self.now)?;
        let by = held.by.unwrap_or(self.processes[who].0.slot());
        self.processes.iter().position(|(one, _)| one.slot() == by)
    }

    fn share(&self, who: usize, weight: Set<u32>, cap: Set<u32>) {
        let change = Change::ProcessShare {
            slot: self.processes[who].0.slot(),
            share: ShareEdit {
                weight,
                cap,
                ..ShareEdit::default()
            },
        };
        self.operator.edit(None, &change, self.now).expect("edited");
    }
}

#[test]
fn who_has_a_higher_priority_holds_back_those_below_while_it_is_active_and_no_longer() {
    let world = World::new(Order::Priority, &[0, 5, 0]);
    assert!(world.lock(0).may_have_to_hold_back(world.now));
    assert!(!world.lock(1).may_have_to_hold_back(world.now));
    (0..3).for_each(|who| assert_eq!(world.by(who), None));
    world.begin(0);
    assert_eq!(world.by(1), None, "the one above");
    assert_eq!(world.by(2), None, "one of the same priority");
    world.begin(1);
    assert_eq!(
        (world.by(0), world.by(1), world.by(2)),
        (Some(1), None, Some(1))
    );
    world.lock(1).end_activity(world.now);
    assert_eq!(world.by(0), None);
}

#[test]
fn one_process_goes_before_all_others_that_use_the_device_and_one_of_two_behind_the_other() {
    let world = World::new(Order::Priority, &[0, 5, 5, 0]);
    let uses = |who: usize, bytes| world.lock(who).words.used.store(bytes, Ordering::Relaxed);
    let place = |who: usize| world.lock(who).precedence(false, world.now);
    assert_eq!(place(1), None, "it is alone");
    (0..2).for_each(|who| uses(who, 1));
    let pair = (Some(Precedence::Second), Some(Precedence::First));
    let patient = Tolerance {
        together_us: 0,
        gap_us: 10,
    };
    assert_eq!((place(0), place(1)), (None, None), "it was never active");
    world.begin(1);
    assert_eq!((place(0), place(1)), pair);
    let later = |who: usize| world.lock(who).precedence(false, world.now + IN_USE_NS + 1);
    assert_eq!((later(0), later(1)), (None, None), "it is out of use");
    uses(3, 1);
    let among = Some(Precedence::Among);
    let slice = |who: usize, us| {
        let (process, entry) = &world.processes[who];
        process.publish_card_slice(*entry, CardSlice::Set(us));
    };
    slice(1, 20_000);
    let places = || [0, 1, 3].map(place);
    let active_for = |ns| {
        let words = world.lock(1).words;
        words.activity_ns.store(ns, Ordering::Relaxed);
    };
    active_for(LONG_ACTIVITY_NS);
    assert_eq!(places(), [None, pair.1, None], "the third is idle");
    [0, 3].into_iter().for_each(|who| world.begin(who));
    assert_eq!(places(), [among, pair.1, among], "three use it");
    let long = |who: usize| world.lock(who).precedence(true, world.now);
    assert_eq!((long(0), long(1)), (None, pair.1), "with long kernels");
    active_for(LONG_ACTIVITY_NS - 1);
    assert_eq!(places(), [None, pair.1, None], "its requests are short");
    let later = world
        .lock(0)
        .precedence(false, world.now + 16 * LONG_ACTIVITY_NS);
    assert_eq!(later, among, "this one is long");
    active_for(LONG_ACTIVITY_NS);
    slice(1, 2_000);
    assert_eq!(
        places(),
        [None, pair.1, None],
        "the first has no long slice"
    );
    uses(2, 1);
    world.lock(1).publish_tolerance(patient);
    world.lock(2).publish_tolerance(patient);
    assert_eq!([0, 1, 2].map(place), [None; 3], "two go first");
    world.lock(1).publish_tolerance(Tolerance::default());
    (2..4).for_each(|who| uses(who, 0));
    world.lock(1).publish_tolerance(patient);
    assert_eq!(
        (place(0), place(1)),
        (None, None),
        "it does not wait for the device"
    );
    uses(3, 1);
    assert_eq!(places(), [None, among, None], "the first is not asked yet");
    slice(1, 4_000);
    assert_eq!(places(), [among; 3]);
    uses(3, 0);
    world.lock(1).publish_tolerance(Tolerance::default());
    assert_eq!((place(0), place(1)), pair);
    let fair = World::new(Order::Fair, &[0, 5]);
    fair.lock(1).words.used.store(1, Ordering::Relaxed);
    assert_eq!(fair.lock(0).precedence(false, fair.now), None);
}

#[test]
fn how_long_a_process_is_active_at_a_time_is_a_mean_of_the_last_times() {
    let mut world = World::new(Order::Priority, &[0]);
    let mut mean_of = |active_ns| {
        for _ in 0..100 {
            world.begin(0);
            world.pass(active_ns);
            world.lock(0).end_activity(world.now);
            world.pass(MS);
        }
        world.lock(0).words.activity_ns.load(Ordering::Relaxed)
    };
    for active_ns in [5 * MS, MS] {
        let mean = mean_of(active_ns);
        assert!(mean.abs_diff(active_ns) < MS / 100, "{mean}");
    }
}

#[test]
fn a_process_in_long_slices_of_the_card_has_more_queued_unless_the_operator_says_how_much() {
    let world = World::new(Order::Priority, &[0]);
    let (process, entry) = &world.processes[0];
    let ahead_in = |slice| {
        process.publish_card_slice(*entry, slice);
        process.policy(*entry).0.kind
    };
    let long = CardSlice::Set(4_000);
    assert_eq!(ahead_in(long), PolicyKind::Overlap(Some(AHEAD)));
    let mut policy = process.policy(*entry).0;
    policy.kind = PolicyKind::Overlap(None);
    let change = Change::Policy {
        device: None,
        policy: Some(policy),
        until: None,
    };
    world.operator.edit(None, &change, 0).expect("edited");
    assert_eq!(ahead_in(long), PolicyKind::Overlap(Some(2 * MS)));
    for short in [CardSlice::Set(2_048), CardSlice::Available] {
        let ahead = ahead_in(short);
        assert_eq!(ahead, PolicyKind::Overlap(Some(MS / 2)), "{short:?}");
    }
    let words = &world.lock(0).words.card_slice;
    words.store(u32::MAX >> 8 | 1 << 24, Ordering::Relaxed);
    let ahead = process.policy(*entry).0.kind;
    assert_eq!(ahead, PolicyKind::Overlap(Some(MS / 2)), "others can write");
}

#[test]
fn what_urgent_processes_tolerate_is_for_all_below_them_and_the_least_counts() {
    let world = World::new(Order::Priority, &[0, 5, 0, 3]);
    (0..4).for_each(|who| world.begin(who));
    let tolerate = |who: usize, together_us, gap_us| {
        world.lock(who).publish_tolerance(Tolerance {
            together_us,
            gap_us,
        });
    };
    let of = |who: usize| {
        let held = world.lock(who).held_back_by(AHEAD, 0, world.now);
        let tolerance = held.and_then(|held| held.tolerance);
        tolerance.map(|tolerance| (tolerance.together_us, tolerance.gap_us))
    };
    assert_eq!(of(0), Some((0, 0)), "while nothing is known");
    tolerate(1, 600, 40);
    tolerate(3, 900, 20);
    assert_eq!(of(0), Some((300, 20)), "two are below both");
    assert_eq!(of(3), Some((200, 40)), "three are below the first");
    assert_eq!(of(1), None);
    world.lock(1).end_activity(world.now);
    world.lock(3).end_activity(world.now);
    assert_eq!(of(0), None);
}

#[test]
fn who_tolerates_everything_holds_nobody_back_until_it_takes_that_back() {
    let world = World::new(Order::Priority, &[0, 5, 3]);
    (0..3).for_each(|who| world.begin(who));
    world
        .lock(1)
        .publish_tolerance(Tolerance::all(0, world.now));
    assert_eq!((world.by(2), world.by(0)), (None, Some(2)));
    world
        .lock(2)
        .publish_tolerance(Tolerance::all(0, world.now));
    assert_eq!(world.by(0), None);
    assert!(world.lock(0).may_have_to_hold_back(world.now));
    world.lock(1).publish_tolerance(Tolerance::default());
    assert_eq!((world.by(2), world.by(0)), (Some(1), Some(1)));
}

#[test]
fn the_time_until_a_process_waits_is_for_all_beside_it_in_equal_parts() {
    const MS: u64 = 1_000_000;
    let world = World::new(Order::Priority, &[0, 5, 0]);
    (0..3).for_each(|who| world.begin(who));
    let beside = |who: usize, after_ns| world.lock(who).time_beside(world.now + after_ns);
    assert_eq!(beside(0, 0), None);
    let tolerance = Tolerance::all(9 * MS, world.now);
    world.lock(1).publish_tolerance(tolerance);
    assert_eq!(beside(0, 0).map(|ns| ns / MS), Some(3));
    assert_eq!(beside(2, 6 * MS).map(|ns| ns / MS), Some(1));
    assert_eq!(beside(0, 60 * MS), Some(0), "it is late");
    assert_eq!(beside(1, 0), None, "those below it say nothing to it");
}

#[test]
fn over_mps_none_is_held_back_for_a_client_that_mps_lets_go_first() {
    let world = World::new(Order::Priority, &[0, 5]);
    world.begin(1);
    for (mine, theirs, held) in [
        ((true, true), (true, false), false),
        ((true, true), (true, true), true),
        ((true, false), (true, false), true),
        ((true, true), (false, false), true),
        ((false, true), (true, false), true),
    ] {
        for (who, (mps, below)) in [(0, mine), (1, theirs)] {
            let (process, entry) = &world.processes[who];
            process.publish_mps(*entry, mps, below);
        }
        assert_eq!(world.by(0).is_some(), held, "{mine:?} {theirs:?}");
        assert_eq!(world.lock(0).may_have_to_hold_back(world.now), held);
    }
}

#[test]
fn who_does_not_show_itself_any_more_holds_nobody_back() {
    let mut world = World::new(Order::Priority, &[0, 5]);
    world.begin(1);
    world.now += PULSE_NS;
    assert_eq!(world.by(0), Some(1));
    world.now += 1;
    assert_eq!(world.by(0), None);
}

#[test]
fn a_step_of_priority_is_waited_out_in_a_tenth_of_a_second() {
    let world = World::new(Order::Priority, &[0, 3]);
    world.begin(1);
    let waited = |ns| world.lock(0).held_back_by(AHEAD, ns, world.now).is_some();
    assert!(waited(3 * AGE_NS - 1));
    assert!(!waited(3 * AGE_NS));
}

#[test]
fn what_several_use_together_is_charged_in_equal_parts() {
    let mut world = World::new(Order::Fifo, &[0, 0]);
    world.begin(0);
    world.pass(10 * MS);
    world.begin(1);
    world.pass(10 * MS);
    let held = |who: usize| world.lock(who).words.held_ns.load(Ordering::Relaxed);
    assert_eq!((held(0), held(1)), (15 * MS, 5 * MS));
    assert_eq!(world.by(0), None, "no process is held back under fifo");
}

#[test]
fn under_fair_who_is_ahead_of_its_weight_holds_back_until_the_others_have_caught_up() {
    let mut world = World::new(Order::Fair, &[0, 0]);
    world.share(1, Set::To(300), Set::Keep);
    world.begin(0);
    world.begin(1);
    // Both use a half; the first is worth a third of the second, so it runs ahead by a third of what passes.
    world.pass(5 * MS);
    assert_eq!(world.by(0), None, "no more than AHEAD");
    world.pass(5 * MS);
    assert_eq!((world.by(0), world.by(1)), (Some(1), None));
    let state = &world.lock(0).words.lock_state;
    state.store(BACK, Ordering::Relaxed);
    world.pass(10 * MS);
    assert_eq!(
        world.by(0),
        None,
        "the second has had the device for itself meanwhile"
    );
}

#[test]
fn a_process_that_is_charged_by_its_work_pays_for_that_alone() {
    let mut world = World::new(Order::Fair, &[0, 0]);
    world.begin(0);
    world.begin(1);
    world.lock(0).set_charged_by_work(true);
    world.pass(8 * MS);
    assert_eq!(
        world.by(1),
        Some(0),
        "it had its part of the time, and the other nothing"
    );
    let held = world.lock(1).held_back_by(AHEAD, 0, world.now);
    assert_eq!(
        held.map(|held| held.least_ns),
        Some(2 * MS),
        "4 ms less those allowed"
    );
    world.lock(0).charge_work(4 * MS, world.now);
    assert_eq!(world.by(1), None);
    world.lock(0).charge_work(3 * MS, world.now);
    assert_eq!(world.by(0), Some(1));
}

#[test]
fn all_hold_back_for_one_that_measures_its_work_but_not_for_long() {
    let mut world = World::new(Order::Fair, &[0, 0, 0]);
    (0..3).for_each(|who| world.begin(who));
    world.lock(0).charge_work(100 * MS, world.now);
    assert!(world.lock(0).begin_measuring(world.now));
    assert!(!world.lock(1).begin_measuring(world.now), "one at a time");
    assert_eq!(
        (world.by(0), world.by(1), world.by(2)),
        (None, Some(0), Some(0))
    );
    assert!(!world.lock(0).is_alone(world.now));
    for who in [1, 2] {
        world.lock(who).publish_queued(who == 2);
        world.lock(who).hold_back(AHEAD, MS, &|| false);
    }
    let is_back = |who: usize| world.lock(who).words.lock_state.load(Ordering::Relaxed) == BACK;
    assert!(is_back(1) && is_back(2));
    assert!(
        !world.lock(0).is_alone(world.now),
        "the last has work queued"
    );
    world.lock(2).publish_queued(false);
    assert!(world.lock(0).is_alone(world.now));
    world.lock(0).end_measuring();
    assert_eq!((world.by(1), world.by(2)), (None, None));
    assert_eq!(world.by(0), None, "those that are held back submit nothing");
    assert!(world.lock(1).begin_measuring(world.now));
    world.now += 2 * MEASURING_NS;
    assert_eq!(world.by(2), None, "it may have been stopped");
}

#[test]
fn only_clients_of_mps_under_fair_are_charged_by_their_work() {
    for (order, mps, wanted) in [
        (Order::Fair, true, true),
        (Order::Fair, false, false),
        (Order::Priority, true, false),
    ] {
        let world = World::new(order, &[0]);
        let (process, entry) = &world.processes[0];
        process.publish_mps(*entry, mps, false);
        assert_eq!(
            world.lock(0).is_charged_best_by_work(),
            wanted,
            "{order:?} {mps}"
        );
    }
}

#[test]
fn who_was_away_gets_no_pay_for_it() {
    let mut world = World::new(Order::Fair, &[0, 0]);
    world.begin(0);
    world.pass(10_000 * MS);
    world.begin(1);
    assert_eq!(world.by(0), None, "else it would wait for ten seconds");
}

#[test]
fn a_cap_holds_back_wholly_and_for_nobody() {
    let mut world = World::new(Order::Priority, &[0]);
    world.share(0, Set::Keep, Set::To(10));
    world.begin(0);
    assert!(world.lock(0).may_have_to_hold_back(world.now));
    world.pass(200 * MS);
    let held = world.lock(0).held_back_by(AHEAD, 0, world.now);
    let own = HeldBack {
        by: None,
        tolerance: None,
        with_gang: false,
        least_ns: u64::MAX,
    };
    assert_eq!(held, Some(own));
    world.now += 5_000 * MS;
    assert_eq!(world.by(0), None);
}

#[test]
fn a_larger_cap_shortens_the_pause_for_what_was_used_before_and_none_ends_it() {
    for (cap, left_ms) in [(100, 0), (50, 1_978), (2, 49_450), (1, 98_900)] {
        let mut world = World::new(Order::Priority, &[0]);
        world.share(0, Set::Keep, Set::To(1));
        world.begin(0);
        (0..5).for_each(|_| world.pass(200 * MS));
        assert_eq!(world.by(0), Some(0));
        world.share(0, Set::Keep, Set::To(cap));
        assert_eq!(world.by(0).is_some(), left_ms > 0, "{cap} %");
        world.now += (left_ms * MS).saturating_sub(100 * MS);
        assert_eq!(world.by(0).is_some(), left_ms > 0, "{cap} %");
        world.now += 200 * MS;
        assert_eq!(world.by(0), None, "{cap} %");
    }
}

#[test]
fn what_trickles_beside_an_urgent_process_is_charged_and_a_wait_is_not() {
    let world = World::new(Order::Priority, &[0, 5]);
    world.begin(0);
    world.begin(1);
    world.lock(1).keep_active(clock::now());
    world.lock(0).hold_back(AHEAD, MS, &|| false);
    let now = clock::now();
    let words = world.lock(0).words;
    assert_eq!(words.lock_state.load(Ordering::Relaxed), BACK);
    let held = || words.held_ns.load(Ordering::Relaxed);
    let at_first = held();
    world.lock(0).keep_active(now + 10 * MS);
    assert_eq!(held(), at_first, "it has submitted nothing");
    world.lock(0).trickle(now + 10 * MS);
    world.lock(0).keep_active(now + 20 * MS);
    assert_eq!(held(), at_first + 5 * MS, "the device was divided by two");
    world.lock(0).trickle(now + 20 * MS);
    world.lock(0).go_on(now + 30 * MS);
    assert_eq!(held(), at_first + 10 * MS);
}

#[test]
fn a_wait_is_counted_once_however_often_it_is_interrupted() {
    let world = World::new(Order::Priority, &[0, 5]);
    world.begin(0);
    world.begin(1);
    for _ in 0..5 {
        world.lock(1).keep_active(clock::now());
        world.lock(0).hold_back(AHEAD, MS, &|| false);
    }
    world.lock(1).end_activity(clock::now());
    world.lock(0).go_on(clock::now());
    let words = world.lock(0).words;
    let mut waits = crate::Histogram::default();
    words.waits.read(&mut waits);
    assert_eq!(waits.count(), 1);
    assert!(words.waited_ns.load(Ordering::Relaxed) >= 5 * MS);
    assert_eq!(words.lock_state.load(Ordering::Relaxed), ACTIVE);
}

#[test]
fn a_step_holds_the_waits_and_delays_since_the_last_step() {
    let world = World::new(Order::Priority, &[0]);
    let words = world.lock(0).words;
    words.count_step(MS);
    words.count_wait(20 * MS);
    words.count_wait(20 * MS);
    words.delay_step(7 * MS);
    words.count_step(2 * MS);
    words.count_step(MS);
    let mut steps = crate::Histogram::default();
    words.steps.read(&mut steps);
    assert_eq!(steps.count(), 3);
    assert_eq!(steps.max_ns, 49 * MS);
    assert!(steps.quantile(0.5) < Some(2 * MS), "{steps:?}");
}

/// Two members of a gang, one on each of two devices, and a process beside each; the second has this priority.
fn gang(priority: i32) -> World {
    let mut world = World::new(Order::Priority, &[]);
    for (device, gang, priority) in [
        (1, true, 0),
        (2, true, 0),
        (1, false, priority),
        (2, false, 0),
    ] {
        let limits = LaunchLimits {
            settings: SettingValues {
                priority: Some(priority),
                ..SettingValues::default()
            },
            gang: gang.then(|| crate::Gang::Named("both".into())),
            ..LaunchLimits::default()
        };
        let process = register(world.operator.segments(), &Identity::default(), &limits);
        let process = process.expect("a slot");
        let entry = process
            .add_device([device; 16], 0, "", 1, 0)
            .expect("an entry");
        world.processes.push((process, entry));
    }
    world
}

#[test]
fn a_gang_holds_back_as_one_where_a_process_beside_it_has_work() {
    let world = gang(5);
    (0..4).for_each(|who| world.begin(who));
    assert!(world.lock(1).may_have_to_hold_back(world.now));
    assert_eq!((world.by(0), world.by(1)), (Some(2), None));
    // The first waits until the urgent process is done; then the second holds back for the process beside it.
    let hold = |who: usize| world.lock(who).hold_back(AHEAD, MS, &|| false);
    hold(0);
    assert_eq!(world.lock(0).words.lock_state.load(Ordering::Relaxed), BACK);
    assert_eq!(world.by(1), Some(3));
    hold(1);
    // Neither waits for the other.
    world.lock(2).end_activity(world.now);
    assert_eq!(world.by(0), None);
    world.lock(0).go_on(world.now);
    assert_eq!(world.by(1), None);
}

#[test]
fn a_gang_does_not_hold_back_where_it_is_alone() {
    let world = gang(5);
    (0..3).for_each(|who| world.begin(who));
    world.lock(0).hold_back(AHEAD, MS, &|| false);
    assert_eq!(world.by(1), None);
}
