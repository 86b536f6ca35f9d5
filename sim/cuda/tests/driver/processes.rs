//! Processes share the device: its memory, its time, and what a killed one leaves.

use std::time::Duration;

use gpushare_sim::{World, timeline, usage};
use gpushare_testbed::{Testbed, Watched, eventually};
use rustix::process::Signal;

use crate::client::{
    NOT_INITIALIZED, NULL, OUT_OF_MEMORY, context, in_a_process, kernel, module, spin,
};
use crate::{cu, ok};

const LIMIT: Duration = Duration::from_secs(60);
const ILLEGAL_STATE: u32 = 401;
/// `CUDA_ERROR_OPERATING_SYSTEM`.
const NO_PROCESS: u32 = 304;

fn world(testbed: &Testbed) -> World {
    World::open_named(testbed.world(), None).expect("the world is there")
}

fn child(testbed: &Testbed, test: &str) -> Watched {
    Watched::spawn_for(&mut in_a_process(testbed, test), LIMIT)
}

/// Waits for the line that says a child has done its part.
fn ready(child: &mut Watched) {
    while !child.line().contains("ready") {}
}

/// Says so, and lives on until killed.
fn say_ready_and_stay() {
    use std::io::Write;
    writeln!(std::io::stdout(), "\nready").expect("the parent listens");
    loop {
        std::thread::sleep(LIMIT);
    }
}

#[test]
fn a_killed_process_gives_its_memory_and_its_time_back() {
    let testbed = Testbed::with_scenario("one-gpu");
    let mut hog = child(&testbed, "processes::child_takes_all_memory_and_time");
    ready(&mut hog);
    let world = world(&testbed);
    let before = usage::of(&world, 0, 1_000_000_000);
    assert_eq!(before.processes.len(), 1);
    assert_eq!(before.used, world.devices()[0].memory);

    let refused = child(&testbed, "processes::child_is_refused");
    refused.succeed();
    hog.signal(Signal::KILL);
    eventually("the dead one's memory is back", LIMIT, || {
        usage::of(&world, 0, 1_000_000_000).used == 0
    });
    let served = child(&testbed, "processes::child_allocates_and_computes");
    // The dead process's twenty minutes of kernel are gone too.
    served.succeed();
}

#[test]
#[ignore = "run in a process of its own"]
fn child_takes_all_memory_and_time() {
    context();
    let (mut free, mut total, mut address) = (0usize, 0usize, 0u64);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cuMemAlloc_v2(&mut address, free));
    assert_eq!(
        spin(kernel(module(), "gpushare_spin"), 1_200_000_000_000, 0),
        0
    );
    say_ready_and_stay();
}

#[test]
#[ignore = "run in a process of its own"]
fn child_is_refused() {
    context();
    let mut address = 0u64;
    assert_eq!(cu!(cuMemAlloc_v2(&mut address, 1usize)), OUT_OF_MEMORY);
}

#[test]
#[ignore = "run in a process of its own"]
fn child_allocates_and_computes() {
    context();
    let mut address = 0u64;
    ok!(cuMemAlloc_v2(&mut address, 1usize << 30));
    assert_eq!(spin(kernel(module(), "gpushare_spin"), 1_000_000, 0), 0);
    ok!(cuCtxSynchronize());
}

#[test]
fn a_stopped_process_holds_nobody_up() {
    let testbed = Testbed::with_scenario("one-gpu");
    let mut stopped = child(&testbed, "processes::child_computes_for_a_moment_and_stays");
    ready(&mut stopped);
    stopped.signal(Signal::STOP);
    let other = child(&testbed, "processes::child_allocates_and_computes");
    other.succeed();
    stopped.signal(Signal::KILL);
}

#[test]
#[ignore = "run in a process of its own"]
fn child_computes_for_a_moment_and_stays() {
    context();
    let function = kernel(module(), "gpushare_spin");
    for _ in 0..100 {
        assert_eq!(spin(function, 1_000_000, 0), 0);
    }
    say_ready_and_stay();
}

#[test]
fn two_processes_with_long_kernels_take_turns() {
    let testbed = Testbed::with_scenario("one-gpu");
    let two = [
        child(&testbed, "processes::child_computes_sixty_times"),
        child(&testbed, "processes::child_computes_sixty_times"),
    ];
    for child in two {
        child.succeed();
    }
    let log = timeline::log(&world(&testbed), 0);
    assert_eq!(log.len(), 120);
    assert!(
        log.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "one kernel at a time"
    );
    assert!(log.iter().all(|ran| ran.end - ran.start == 5_000_000));
    let first_of_second = log
        .iter()
        .position(|ran| ran.pid != log[0].pid)
        .expect("two processes");
    let last_of_first = log
        .iter()
        .rposition(|ran| ran.pid == log[0].pid)
        .expect("the first");
    let together = &log[first_of_second..last_of_first.max(first_of_second)];
    let turns = together
        .windows(2)
        .filter(|pair| pair[0].pid != pair[1].pid)
        .count();
    // A process that is itself kept waiting for a processor leaves the engine to the other.
    assert!(
        turns * 10 + 10 >= together.len(),
        "{turns} turns in {} kernels",
        together.len()
    );
}

#[test]
#[ignore = "run in a process of its own"]
fn child_computes_sixty_times() {
    context();
    let function = kernel(module(), "gpushare_spin");
    for _ in 0..60 {
        assert_eq!(spin(function, 5_000_000, 0), 0);
    }
    ok!(cuCtxSynchronize());
}

#[test]
fn nobody_gets_more_than_there_is_however_they_race() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios/64mib.toml");
    let testbed = Testbed::with_scenario(scenario);
    let children: Vec<_> = (0..4)
        .map(|_| child(&testbed, "processes::child_takes_what_it_can"))
        .collect();
    let world = world(&testbed);
    for child in children {
        child.succeed();
        assert!(usage::of(&world, 0, 1_000_000_000).used <= world.devices()[0].memory);
    }
}

#[test]
#[ignore = "run in a process of its own"]
fn child_takes_what_it_can() {
    context();
    for round in 0..200usize {
        let mut held = Vec::new();
        let mut address = 0u64;
        while held.len() < 8 && cu!(cuMemAlloc_v2(&mut address, (1 + round % 9) << 20)) == 0 {
            held.push(address);
        }
        let (mut free, mut total) = (0usize, 0usize);
        ok!(cuMemGetInfo_v2(&mut free, &mut total));
        assert!(free <= total);
        for address in held {
            ok!(cuMemFree_v2(address));
        }
    }
}

#[test]
fn processes_killed_at_any_moment_leave_nothing_and_hold_nobody_up() {
    let testbed = Testbed::with_scenario("one-gpu");
    for round in 0..8u64 {
        let mut victims: Vec<_> = (0..3)
            .map(|_| child(&testbed, "processes::child_works_until_killed"))
            .collect();
        victims.iter_mut().for_each(ready);
        std::thread::sleep(Duration::from_micros(500 + 2_300 * round));
        victims
            .iter()
            .for_each(|victim| victim.signal(Signal::KILL));
        let survivor = child(&testbed, "processes::child_allocates_and_computes");
        survivor.succeed();
    }
    let world = world(&testbed);
    eventually("the dead are gone", LIMIT, || {
        usage::of(&world, 0, 1_000_000).processes.is_empty()
    });
    assert_eq!(usage::of(&world, 0, 1_000_000).used, 0);
    let log = timeline::log(&world, 0);
    assert!(
        log.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "one kernel at a time"
    );
}

#[test]
#[ignore = "run in a process of its own"]
fn child_works_until_killed() {
    context();
    let function = kernel(module(), "gpushare_spin");
    std::thread::spawn(say_ready_and_stay);
    loop {
        let mut address = 0u64;
        ok!(cuMemAlloc_v2(&mut address, 64usize << 20));
        for microseconds in [300, 5, 2_000, 50] {
            assert_eq!(spin(function, microseconds * 1000, 0), 0);
        }
        ok!(cuMemFree_v2(address));
    }
}

#[test]
fn a_process_that_has_not_started_the_driver_checkpoints_another() {
    let testbed = Testbed::with_scenario("one-gpu");
    let mut there = child(&testbed, "processes::child_has_a_context");
    ready(&mut there);
    let mut command = in_a_process(&testbed, "processes::child_checkpoints_the_other");
    command.env("OTHER_PID", there.pid().to_string());
    Watched::spawn_for(&mut command, LIMIT).succeed();
}

#[test]
#[ignore = "run in a process of its own"]
fn child_has_a_context() {
    context();
    say_ready_and_stay();
}

#[test]
#[ignore = "run in a process of its own"]
fn child_checkpoints_the_other() {
    const RUNNING: u32 = 0;
    const LOCKED: u32 = 1;
    const CHECKPOINTED: u32 = 2;
    let other: i32 = std::env::var("OTHER_PID").unwrap().parse().unwrap();
    let is = |expected: u32| {
        let mut state = 99u32;
        ok!(cuCheckpointProcessGetState(other, &mut state));
        assert_eq!(state, expected);
    };
    let mut thread = 0i32;
    ok!(cuCheckpointProcessGetRestoreThreadId(other, &mut thread));
    let name = std::fs::read_to_string(format!("/proc/{other}/task/{thread}/comm"));
    let name = name.expect("a thread of that process");
    let digits = name
        .trim_end()
        .strip_prefix("cuda")
        .expect("named by the driver");
    assert!(
        digits.len() == 11 && u64::from_str_radix(digits, 16).is_ok(),
        "{name}"
    );
    is(RUNNING);
    assert_eq!(cu!(cuCheckpointProcessUnlock(other, NULL)), ILLEGAL_STATE);
    ok!(cuCheckpointProcessLock(other, NULL));
    is(LOCKED);
    ok!(cuCheckpointProcessCheckpoint(other, NULL));
    is(CHECKPOINTED);
    ok!(cuCheckpointProcessRestore(other, NULL));
    is(LOCKED);
    ok!(cuCheckpointProcessUnlock(other, NULL));
    is(RUNNING);
    // This process has no driver in it, and no process has the number 0.
    for (pid, answer) in [
        (std::process::id() as i32, NOT_INITIALIZED),
        (0, NO_PROCESS),
    ] {
        let mut state = 0u32;
        assert_eq!(cu!(cuCheckpointProcessGetState(pid, &mut state)), answer);
    }
}
