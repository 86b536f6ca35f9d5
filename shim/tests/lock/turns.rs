//! Two programs on one device, which take turns and never run at the same time.

use std::time::Duration;

use gpushare_testbed::{Watched, eventually};

use crate::stage::{PATIENCE, Stage, last_line, number};

/// Runs the same spinner twice at once. Returns the stage and each one's number of kernels.
fn two(policy: &str, words: &str, devices: &str) -> (Stage, [u64; 2]) {
    two_without(&[], policy, words, devices)
}

/// Runs the two spinners without some system calls.
fn two_without(calls: &[i64], policy: &str, words: &str, devices: &str) -> (Stage, [u64; 2]) {
    let stage = Stage::new();
    let start = || {
        let spinner = stage.spinner(policy, words);
        Watched::spawn(stage.without(calls, &spinner).env("DEVICES", devices))
    };
    let (one, other) = (start(), start());
    let kernels = [one, other].map(|program| number(&last_line(program), "kernels"));
    (stage, kernels)
}

fn alternates(policy: &str, words: &str) {
    alternates_without(&[], policy, words);
}

fn alternates_without(calls: &[i64], policy: &str, words: &str) {
    let (stage, kernels) = two_without(calls, policy, words, "1");
    assert_eq!(stage.overlaps(), 0, "{policy}");
    assert!(
        stage.switches() >= 4,
        "{policy}: {} switches",
        stage.switches()
    );
    assert!(
        kernels.iter().all(|kernels| *kernels >= 10),
        "{policy}: {kernels:?}"
    );
    let device = &stage.snapshot().devices[0];
    assert_eq!(device.violations, 0, "two holders at once");
    assert!(
        device.handoffs >= 4,
        "{policy}: {} hand-offs",
        device.handoffs
    );
}

#[test]
fn a_time_slice_ends_and_the_other_runs() {
    alternates("timeslice=5ms", "2 500 4");
}

#[test]
fn a_holder_that_never_synchronises_is_drained_at_the_end_of_its_slice() {
    alternates("timeslice=5ms", "2 500 0");
}

#[test]
fn a_count_of_launches_ends_a_turn() {
    alternates("launches=10", "2 500 0");
}

#[test]
fn every_call_may_be_a_turn() {
    alternates("always", "2 500 0");
}

#[test]
fn work_in_many_streams_is_drained() {
    alternates("timeslice=5ms", "2 500 7 streams");
}

#[test]
fn work_in_the_threads_own_default_stream_is_drained() {
    alternates("timeslice=5ms", "2 500 5 ptds");
}

#[test]
fn work_of_threads_that_have_ended_is_drained() {
    alternates("timeslice=5ms", "2 500 4 threads");
    alternates("launches=3", "2 500 0 threads");
}

const MEMBARRIER: i64 = libc::SYS_membarrier;
const FUTEX_WAITV: i64 = 449;

#[test]
fn where_the_kernel_has_less_they_take_turns_all_the_same() {
    for calls in [
        &[MEMBARRIER][..],
        &[FUTEX_WAITV],
        &[MEMBARRIER, FUTEX_WAITV],
    ] {
        alternates_without(calls, "timeslice=5ms", "2 500 4");
        alternates_without(calls, "launches=10", "2 500 0");
    }
}

#[test]
fn the_launch_of_a_captured_graph_takes_the_lock_and_is_drained() {
    alternates("timeslice=5ms", "2 500 0 graph");
    alternates("launches=3", "2 500 0 graph");
}

#[test]
fn two_devices_are_taken_in_order() {
    let (stage, kernels) = two("timeslice=5ms", "1 500 3 twodev", "2");
    assert_eq!(stage.overlaps(), 0);
    assert!(kernels.iter().all(|kernels| *kernels >= 10), "{kernels:?}");
}

/// Three processes run ten thousand random programs on two devices at once, or `GPUSHARE_TEST_PROGRAMS`. The watchdog ends a
/// process that hangs, and the test fails.
#[test]
fn random_programs_on_two_devices_never_stop_each_other() {
    const PROCESSES: u64 = 3;
    let programs = std::env::var("GPUSHARE_TEST_PROGRAMS").unwrap_or("10000".into());
    let policies = ["timeslice=1ms", "launches=3", "always"];
    let all: u64 = programs.parse().expect("a number of programs");
    let each = (all / (PROCESSES * policies.len() as u64))
        .max(1)
        .to_string();
    for policy in policies {
        let stage = Stage::new();
        let start = |seed: u64| {
            let mut command = stage.program("couples.c", policy);
            command.args([&each, &seed.to_string()]).env("DEVICES", "2");
            Watched::spawn_for(&mut command, PATIENCE * 4 + Duration::from_millis(10 * all))
        };
        let players: Vec<_> = (1..=PROCESSES).map(start).collect();
        for player in players {
            assert_eq!(last_line(player), format!("played {each}"), "{policy}");
        }
        let snapshot = stage.snapshot();
        assert_eq!(snapshot.violations, 0, "two holders at once, {policy}");
        let forced: u64 = snapshot.devices.iter().map(|device| device.forced).sum();
        assert!(forced > 0 || stage.overlaps() == 0, "{policy}");
        let handoffs = snapshot.devices.iter().map(|device| device.handoffs);
        assert!(handoffs.min() > Some(0), "{policy}");
    }
}

#[test]
fn a_program_that_would_run_far_ahead_is_paced() {
    let stage = Stage::new();
    // Without a limit it would queue half a second of work in each slice, more than can be drained within the grace.
    let start = || {
        let mut command = stage.spinner("timeslice=5ms", "3 200 0");
        Watched::spawn(command.env("QUEUE_MS", "500").env("LINGER", "20"))
    };
    let mut programs = [start(), start()];
    let pids = [programs[0].pid(), programs[1].pid()];
    for program in &mut programs {
        assert_eq!(program.line(), "ready");
        assert!(number(&program.line(), "kernels") >= 100);
    }
    for pid in pids {
        let device = &stage.process(pid).devices[0];
        assert!(device.lock.acquisitions >= 5, "{:?}", device.lock);
        // The library learns the kernels' duration in the first slice; work queued in it may spoil the next ones.
        assert!(
            device.counters.drain_timeouts * 2 < device.lock.acquisitions,
            "{} of {} holds were forced",
            device.counters.drain_timeouts,
            device.lock.acquisitions
        );
        // The library limits the queue while the device runs, and only the end of a turn waits for all work.
        assert!(
            device.counters.drains <= device.lock.acquisitions + 1,
            "{} drains in {} holds",
            device.counters.drains,
            device.lock.acquisitions
        );
    }
}

#[test]
fn a_holder_queues_little_from_the_moment_that_another_process_waits() {
    // The slice ends after the test.
    const LONG: &str = "timeslice=60s max-hold=2m";
    let stage = Stage::new();
    let holder = stage.started(LONG, "60 200 0");
    let misses = || stage.process(holder.pid()).devices[0].counters.gate_misses;
    let alone = misses();
    let _waiter = Watched::spawn(&mut stage.spinner(LONG, "60 200 0"));
    eventually("the holder's queue is checked", PATIENCE, || {
        misses() > alone + 20
    });
}

#[test]
fn a_program_that_never_synchronises_does_not_run_on_in_the_next_turn() {
    const POLICY: &str = "timeslice=5ms order=fair overlap=200us";
    let stage = Stage::new();
    let spinner = stage.started(POLICY, "5 200 0");
    let mut rounds = stage.program("rounds.c", POLICY);
    let rounds = Watched::spawn(rounds.args(["4", "5", "1500"]));
    let pid = rounds.pid();
    for program in [rounds, spinner] {
        last_line(program);
    }
    // How long the rounds went on in each turn of the other program.
    let (mut tails, mut ended, mut began) = (Vec::new(), 0, None);
    for kernel in stage.kernels() {
        if kernel.pid != pid {
            began.get_or_insert(kernel.start);
        } else {
            tails.extend(began.take().map(|began| (ended - began).max(0)));
            ended = ended.max(kernel.end);
        }
    }
    tails.sort_unstable();
    assert!(tails.len() > 50, "{} turns", tails.len());
    // By the average of the short and the long kernel, a long one would be expected to end within the overlap.
    let long = tails[tails.len() * 9 / 10];
    assert!(long < 500_000, "{long} ns of {tails:?}");
}

/// Returns each program's microseconds on the device, for programs started with these variables.
fn busy(policy: &str, variables: &[(&str, &str)]) -> Vec<i64> {
    let stage = Stage::new();
    let programs: Vec<_> = variables
        .iter()
        .map(|(name, value)| {
            let mut command = stage.spinner(policy, "3 200 0");
            Watched::spawn(command.env(name, value))
        })
        .collect();
    let pids: Vec<_> = programs.iter().map(Watched::pid).collect();
    programs
        .into_iter()
        .for_each(|program| drop(last_line(program)));
    assert_eq!(stage.overlaps(), 0);
    let busy = |pid| {
        let kernels = stage.kernels();
        let own = kernels.iter().filter(|kernel| kernel.pid == pid);
        own.map(|kernel| (kernel.end - kernel.start) / 1000).sum()
    };
    pids.into_iter().map(busy).collect()
}

#[test]
fn equals_that_synchronise_after_each_kernel_have_their_slices_all_the_same() {
    let stage = Stage::new();
    let programs = [(); 2]
        .map(|()| Watched::spawn(&mut stage.spinner("timeslice=40ms order=fair", "3 1000 1")));
    programs
        .into_iter()
        .for_each(|program| drop(last_line(program)));
    let runs: Vec<usize> = stage
        .kernels()
        .chunk_by(|one, next| one.pid == next.pid)
        .map(<[_]>::len)
        .collect();
    // On a busy machine many synchronisations are noticed late, and the device then goes to the other process.
    let long = runs.iter().filter(|run| **run >= 8).count();
    assert!(runs.len() > 4, "they take turns: {runs:?}");
    assert!(
        long >= 4,
        "{long} turns of eight kernels and more: {runs:?}"
    );
}

#[test]
fn a_heavier_program_gets_more_of_the_device() {
    let weights = [("GPUSHARE_WEIGHT", "100"), ("GPUSHARE_WEIGHT", "300")];
    let busy = busy("timeslice=4ms order=fair", &weights);
    // The ratio is 3 in theory; a busy machine reduces it.
    assert!(busy[1] * 2 > busy[0] * 3, "{busy:?}");
    assert!(busy[1] < busy[0] * 6, "{busy:?}");
}

#[test]
fn an_urgent_program_comes_first_and_the_other_ages_into_its_turn() {
    let priorities = [("GPUSHARE_PRIORITY", "0"), ("GPUSHARE_PRIORITY", "3")];
    let busy = busy("timeslice=4ms order=priority", &priorities);
    assert!(busy[1] > busy[0] * 2, "{busy:?}");
    assert!(busy[0] > 0, "{busy:?}");
}

#[test]
fn a_capped_program_stays_below_its_cap() {
    let busy = busy("timeslice=4ms order=fair", &[("GPUSHARE_CAP", "20")]);
    // The cap is 600 ms of 3 s; a slice may end late.
    assert!(busy[0] < 900_000, "{busy:?}");
    assert!(busy[0] > 100_000, "{busy:?}");
}

#[test]
fn without_a_policy_nobody_waits() {
    let (stage, _) = two("", "0.5 500 4", "1");
    assert_eq!(stage.snapshot().devices[0].handoffs, 0);
    assert!(
        stage.overlaps() > 0,
        "two processes share the device as they would without us"
    );
}
