//! Times measured on an H100 with kernels of 4 ms (driver 580.159.04), in the same proportions.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::mps::Client;
use crate::process::tests::Private;
use crate::world::World;

const MS: u64 = 1_000_000;
const ALL: u64 = 132;
const PATIENCE: Duration = Duration::from_secs(20);

fn client(world: &Arc<World>, priority: u8, percent: u8) -> Member {
    let client = Client {
        server: 1,
        priority,
        percent,
    };
    Member::join_as(world, Some(client)).expect("room")
}

/// Returns when the kernel of each MPS client ended, in milliseconds from the start. A kernel is its client's priority and
/// share in per cent, its blocks, its duration and its arrival.
fn ends(world: &Arc<World>, kernels: &[(u8, u8, u64, u64, u64)]) -> Vec<f64> {
    let run = |&(priority, percent, blocks, ms, at): &(u8, u8, u64, u64, u64)| {
        (client(world, priority, percent), blocks, ms, at)
    };
    all_end(kernels.iter().map(run).collect())
}

/// Returns when the kernel of each member ended. A kernel is its blocks, its duration and its arrival.
fn all_end(kernels: Vec<(Member, u64, u64, u64)>) -> Vec<f64> {
    let start = clock::now() + 5 * MS;
    let run = |(member, blocks, ms, at): (Member, u64, u64, u64)| {
        thread::spawn(move || {
            let ready = start + at * MS;
            clock::sleep_until(ready);
            let kernel = Kernel {
                duration: ms * MS,
                blocks,
                ready,
            };
            (member.run(0, kernel) - start) as f64 / MS as f64
        })
    };
    let threads: Vec<_> = kernels.into_iter().map(run).collect();
    threads
        .into_iter()
        .map(|thread| thread.join().expect("no panic"))
        .collect()
}

/// Compares with a tolerance for late wake-ups; a kernel reads its share every 0.1 ms.
fn near(found: f64, wanted: f64) -> bool {
    (wanted - 0.1..wanted + 3.0).contains(&found)
}

/// Repeats a round until it succeeds: a busy machine may oversleep in all of a second.
fn holds(scenario: Option<&str>, round: impl Fn(&Arc<World>) -> Result<(), String>) {
    let (mut why, began) = (String::new(), Instant::now());
    for number in 0.. {
        let private = Private::new(&format!("{:?}-{number}", thread::current().id()));
        match round(&private.open(scenario)) {
            Ok(()) => return,
            Err(said) => why = said,
        }
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    panic!("{why}");
}

fn all_near(ends: &[f64], wanted: &[f64]) -> Result<(), String> {
    let mut pairs = ends.iter().zip(wanted);
    match pairs.all(|(end, wanted)| near(*end, *wanted)) {
        true => Ok(()),
        false => Err(format!("{ends:?} instead of {wanted:?}")),
    }
}

#[test]
fn small_kernels_of_two_clients_run_at_once_and_those_that_fill_the_device_one_after_the_other() {
    holds(None, |world| {
        let small = (0, 100, 1, 20, 0);
        all_near(&ends(world, &[small, small]), &[20.0, 20.0])?;
        let full = (0, 100, ALL, 20, 0);
        let mut both = ends(world, &[full, full]);
        both.sort_by(f64::total_cmp);
        all_near(&both, &[20.0, 40.0])
    });
}

#[test]
fn half_of_the_multiprocessors_take_twice_the_time_and_leave_room_for_others() {
    holds(None, |world| {
        let half = (1, 50, ALL, 20, 0);
        let small = (0, 100, 1, 5, 10);
        all_near(&ends(world, &[half, small]), &[40.0, 15.0])
    });
}

#[test]
fn priority_passes_those_that_wait_and_takes_nothing_from_one_that_runs() {
    let train = |at| (1, 100, ALL, 20, at);
    // The urgent kernel leaves 131 multiprocessors, which the second training uses until the urgent kernel ends.
    holds(None, |world| {
        let ends = ends(world, &[train(0), train(2), (0, 100, 1, 5, 8)]);
        all_near(&ends, &[20.0, 40.0, 25.0])
    });
    // A kernel with many blocks frees multiprocessors all the time.
    holds(None, |world| {
        let many = (1, 100, 10 * ALL, 20, 0);
        all_near(&ends(world, &[many, (0, 100, ALL, 5, 8)]), &[25.0, 13.0])
    });
    // Without priority the third kernel waits for both others.
    holds(None, |world| {
        let ends = ends(world, &[train(0), train(2), (1, 100, 1, 5, 8)]);
        all_near(&ends, &[20.0, 40.0, 45.0])
    });
}

#[test]
fn what_a_dead_client_had_is_free() {
    let private = Private::new("dead");
    let world = private.open(None);
    let dead = client(&world, 0, 100);
    let wants = Wants {
        multiprocessors: ALL as u32,
        priority: 0,
        in_waves: false,
        arrived: 1,
    };
    let now = clock::now();
    let at = concurrency::enter(world.layout(), 0, dead.slot(), wants, now).expect("room");
    let end = Some(now + 3_600_000 * MS);
    concurrency::says(world.layout(), 0, at, now, (ALL as u32, end));
    drop(dead);
    let after = ends(&world, &[(0, 100, ALL, 5, 0)]);
    assert!(after[0] < 10_000.0, "it waited for a dead one: {after:?}");
}

#[test]
fn in_turns_a_short_kernel_does_not_wait_for_a_long_one_and_equals_share_the_time() {
    let process = |world: &Arc<World>| Member::join(world).expect("room");
    holds(Some("[[device]]\nslice = \"2ms\""), |world| {
        let ends = all_end(vec![(process(world), 1, 40, 0), (process(world), 1, 1, 10)]);
        // The short kernel waits for the rest of a turn, and its own turn delays the long kernel.
        all_near(&ends, &[41.0, 11.0])
    });
    holds(Some("[[device]]\nslice = \"2ms\""), |world| {
        let ends = all_end(vec![(process(world), 1, 20, 0), (process(world), 1, 20, 0)]);
        all_near(&ends, &[38.0, 38.0])
    });
}

#[test]
fn a_turn_goes_on_over_a_short_pause_and_ends_in_a_long_one() {
    holds(Some("[[device]]\nslice = \"10ms\""), |world| {
        let member = Member::join(world).expect("room");
        let mut ready = clock::now();
        for _ in 0..20 {
            let kernel = Kernel {
                duration: 50_000,
                blocks: 1,
                ready,
            };
            ready = member.run(0, kernel) + 20_000;
        }
        let turns = || crate::timeline::log(world, 0);
        let in_one = turns().is_empty();
        clock::sleep_until(ready + 2 * engine::LINGER);
        engine::advance(world.layout(), 0, clock::now(), &|_| false);
        let last = turns().pop().expect("the last turn has ended");
        assert!(last.end - last.start < 10 * MS, "it was given up: {last:?}");
        in_one
            .then_some(())
            .ok_or(format!("{} turns", turns().len()))
    });
}
