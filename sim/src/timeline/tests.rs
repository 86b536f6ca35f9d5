//! The engine, tested with the test's own clock and with the real one.

use super::*;
use crate::process::tests::Private;
use std::sync::Arc;

#[test]
fn kernels_run_one_at_a_time_for_their_duration() {
    let private = Private::new("engine");
    let world = private.open(None);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let member = Member::join(&world).unwrap();
                let mut ready = clock::now();
                for _ in 0..200 {
                    ready = member.run_kernel(0, 20_000, ready);
                }
            });
        }
    });
    let log = log(&world, 0);
    assert_eq!(log.len(), 600);
    assert!(log.iter().all(|ran| ran.end - ran.start == 20_000));
    assert!(log.windows(2).all(|pair| pair[0].end <= pair[1].start));
}

#[test]
fn two_who_keep_busy_take_turns() {
    let private = Private::new("turns");
    let world = private.open(None);
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let member = Member::join(&world).unwrap();
                barrier.wait();
                let mut ready = clock::now();
                for _ in 0..20 {
                    ready = member.run_kernel(1, 3_000_000, ready);
                }
            });
        }
    });
    let log = log(&world, 1);
    assert_eq!(log.len(), 40);
    assert!(log[39].end - log[0].start >= 40 * 3_000_000);
}

#[test]
fn a_kernel_that_was_ready_early_starts_when_it_was_ready() {
    let private = Private::new("ready");
    let world = private.open(None);
    let member = Member::join(&world).unwrap();
    let ready = (clock::now() - 50_000_000) / READY_STEP * READY_STEP;
    assert_eq!(member.run_kernel(0, 1_000_000, ready), ready + 1_000_000);
}

#[test]
fn the_ring_goes_round() {
    let private = Private::new("ring");
    let world = private.open(None);
    let member = Member::join(&world).unwrap();
    let mut ready = clock::now() - 1_000_000_000;
    for _ in 0..3 * TICKETS {
        ready = member.run_kernel(0, 10, ready);
    }
    let log = log(&world, 0);
    assert_eq!(log.len(), LOG);
    assert!(log.windows(2).all(|pair| pair[0].end <= pair[1].start));
}

#[test]
fn the_work_of_a_member_that_left_is_cut_short() {
    let private = Private::new("cut");
    let world = private.open(None);
    let (one, two) = (Member::join(&world).unwrap(), Member::join(&world).unwrap());
    let one = Arc::new(one);
    one.claim(0, LONGEST, 0);
    one.claim(0, LONGEST, 0);
    drop(one);
    let before = clock::now();
    two.run_kernel(0, 1_000, before);
    assert!(
        clock::now() - before < 10_000_000_000,
        "the dead one's twenty minutes are gone"
    );
}

/// Returns the running ticket and its end at a time that the test chooses.
fn at(world: &crate::World, now: u64, gone: bool) -> Option<(u64, u64)> {
    match advance(world.layout(), 0, now, &|_| gone) {
        Now::Idle => None,
        Now::Runs { ticket, until } => Some((ticket, until)),
    }
}

#[test]
fn anyone_moves_the_timeline_on() {
    let private = Private::new("anyone");
    let world = private.open(None);
    let member = Member::join(&world).unwrap();
    let (first, second) = (member.claim(0, 160, 1600), member.claim(0, 320, 1600));
    assert_eq!(at(&world, 1616, false), Some((first, 1760)));
    assert_eq!(at(&world, 1759, false), Some((first, 1760)));
    assert_eq!(
        at(&world, 1900, false),
        Some((second, 2080)),
        "it began when the first ended"
    );
    assert_eq!(at(&world, 5000, false), None);
    let ends: Vec<_> = log(&world, 0)
        .iter()
        .map(|ran| (ran.start, ran.end))
        .collect();
    assert_eq!(ends, [(1600, 1760), (1760, 2080)]);
}

#[test]
fn the_kernel_of_the_dead_ends_when_that_is_noticed() {
    let private = Private::new("noticed");
    let world = private.open(None);
    let member = Member::join(&world).unwrap();
    member.claim(0, 1_000_000, 1600);
    assert_eq!(at(&world, 2000, false), Some((0, 1_001_600)));
    assert_eq!(at(&world, 3000, true), None);
    assert_eq!(log(&world, 0)[0].end, 3000);
    let next = member.claim(0, 160, 2400);
    assert_eq!(
        at(&world, 3008, false),
        Some((next, 3160)),
        "not before the dead one's end"
    );
}

#[test]
fn a_ticket_whose_claimant_was_killed_before_moving_the_tail_is_cut_short_too() {
    let private = Private::new("tail");
    let world = private.open(None);
    let one = Member::join(&world).unwrap();
    let slot = one.slot();
    one.claim(0, LONGEST, 0);
    let second = one.claim(0, LONGEST, 0);
    world.layout().devices[0].tail.store(second, Relaxed);
    drop(one);
    let two = Member::join(&world).unwrap();
    assert_eq!(two.slot(), slot, "the slot has a new owner, who is alive");
    let before = clock::now();
    two.run_kernel(0, 1_000, before);
    assert!(clock::now() - before < 10_000_000_000);
}
