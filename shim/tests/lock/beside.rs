//! The policy `overlap`: there are no turns, and the order decides which process holds back. The driver of these tests gives
//! each program a device of its own, so only the library's decisions make a program wait.

use std::time::{Duration, Instant};

use gpushare_testbed::{Watched, eventually};
use rustix::process::Signal;
use shm_layout::{Change, LockState, Set, ShareEdit};

use crate::stage::{Kernel, PATIENCE, Stage, last_line, number};

const PRIORITY: &str = "overlap=2ms order=priority";
const PRIORITY_1MS: &str = "overlap=1ms order=priority";
/// Arguments of a spinner with endless kernels of 1 ms, each too long to be let in while it holds back. It queues as much as
/// the library allows.
const BUSY: &str = "60 1000 0";

fn urgent(stage: &Stage, words: &str) -> Watched {
    let mut command = stage.spinner(PRIORITY, words);
    let mut program = Watched::spawn(command.env("GPUSHARE_PRIORITY", "5"));
    assert_eq!(program.line(), "ready");
    program
}

fn state(stage: &Stage, pid: u32) -> LockState {
    stage.process(pid).devices[0].lock.state
}

/// Waits until a program is in a state.
fn is(stage: &Stage, program: &Watched, wanted: LockState) {
    eventually(
        &format!("{} is {wanted:?}", program.pid()),
        PATIENCE,
        || state(stage, program.pid()) == wanted,
    );
}

/// Waits until a program has run more kernels than now.
fn goes_on(stage: &Stage, program: &Watched) {
    let before = stage.kernels_of(program.pid());
    eventually("it goes on", PATIENCE, || {
        stage.kernels_of(program.pid()) > before + 20
    });
}

#[test]
fn those_of_one_priority_submit_beside_each_other_and_none_is_held_back() {
    let stage = Stage::new();
    let programs = [0, 1].map(|_| Watched::spawn(&mut stage.spinner(PRIORITY, "2 200 0")));
    let pids = programs.each_ref().map(Watched::pid);
    let lines = programs.map(last_line);
    assert!(stage.overlaps() > 100, "{} overlaps", stage.overlaps());
    for (pid, line) in pids.into_iter().zip(lines) {
        let launched = number(&line, "kernels") as usize;
        assert_eq!(
            stage.kernels_of(pid),
            launched,
            "every kernel reached the driver"
        );
        assert_eq!(
            number(&line, "synchronised"),
            0,
            "and nothing was waited for"
        );
    }
}

#[test]
fn an_urgent_process_waits_for_nobody_and_the_others_hold_back() {
    let stage = Stage::new();
    let busy = stage.started(PRIORITY, BUSY);
    let urgent = urgent(&stage, "3 8000 1 sleep 30");
    let (low, high) = (busy.pid(), urgent.pid());
    last_line(urgent);
    let kernels = stage.kernels();
    let of = |pid| -> Vec<Kernel> {
        kernels
            .iter()
            .copied()
            .filter(|kernel| kernel.pid == pid)
            .collect()
    };
    let (busy_kernels, urgent_kernels) = (of(low), of(high));
    // After the first few kernels, the duration of a kernel is known. The list has, for each urgent kernel, how long the others
    // ran after its start.
    let mut tails: Vec<i64> = urgent_kernels
        .iter()
        .skip(10)
        .map(|urgent| {
            let during = busy_kernels
                .iter()
                .filter(|one| one.start < urgent.end && one.end > urgent.start);
            let last = during.map(|one| one.end.min(urgent.end)).max();
            last.map_or(0, |end| end - urgent.start)
        })
        .collect();
    tails.sort_unstable();
    assert!(tails.len() > 20, "{} urgent kernels", tails.len());
    let quarter = tails[tails.len() / 4];
    // At most 2 ms of queued work and one kernel; without the limit it would be 8 ms. A busy machine lengthens many of them.
    assert!(quarter < 6_000_000, "queued ahead: {tails:?} ns");
    let view = stage.process(low).devices[0].clone();
    assert!(view.lock.waited_ns > 0);
    assert!(
        !view.lock.waited_for.is_empty(),
        "the process it waited for is known"
    );
    assert!(
        busy_kernels.len() > 500,
        "{} kernels beside it",
        busy_kernels.len()
    );
    drop(busy);
}

#[test]
fn small_kernels_fill_the_moments_that_an_urgent_process_leaves() {
    let stage = Stage::new();
    let busy = stage.started(PRIORITY, "60 50 0");
    let urgent = urgent(&stage, "3 8000 1 sleep 30");
    let (low, high) = (busy.pid(), urgent.pid());
    last_line(urgent);
    let kernels = stage.kernels();
    let urgent_kernels: Vec<_> = kernels.iter().filter(|one| one.pid == high).collect();
    let during = |urgent: &Kernel| {
        let inside = |one: &&Kernel| {
            one.pid == low && one.start > urgent.start + 4_000_000 && one.end < urgent.end
        };
        kernels.iter().filter(inside).count()
    };
    // Four milliseconds after its start, none of the kernels that were queued before it is left.
    let filled = urgent_kernels.iter().filter(|one| during(one) > 0).count();
    assert!(
        filled > urgent_kernels.len() / 2,
        "{filled} of {}",
        urgent_kernels.len()
    );
    assert!(
        stage.process(low).devices[0].lock.waited_ns > 0,
        "all the same it is held back"
    );
}

#[test]
fn kernels_that_fit_between_an_urgent_process_s_requests_are_not_held_back_for_them() {
    let stage = Stage::new();
    // Longer than what may be queued beside any urgent process (125 us), shorter than the pauses.
    let busy = stage.started(PRIORITY_1MS, "60 300 0");
    let mut urgent = stage.spinner(PRIORITY_1MS, "4 20 1 sleep 0.5");
    let mut urgent = Watched::spawn(urgent.env("GPUSHARE_PRIORITY", "5"));
    assert_eq!(urgent.line(), "ready");
    let (low, high) = (busy.pid(), urgent.pid());
    last_line(urgent);
    let kernels = stage.kernels();
    let of = |pid| kernels.iter().filter(move |kernel| kernel.pid == pid);
    let (first, last) = (of(high).nth(100), of(high).next_back());
    let (first, last) = first.zip(last).expect("some hundreds of requests");
    let requests = of(high).count() - 100;
    let beside = of(low)
        .filter(|one| one.start > first.start && one.end < last.end)
        .count();
    // Held back, it would run a few in half a second.
    assert!(
        beside > requests / 4,
        "{beside} kernels beside {requests} requests"
    );
}

#[test]
fn an_urgent_process_that_is_never_idle_leaves_the_device_to_the_others_while_its_processor_works()
{
    let stage = Stage::new();
    let busy = stage.started(PRIORITY, BUSY);
    // As a model that writes a token in 10 ms, of 20 kernels, and reads each.
    let urgent = urgent(&stage, "4 50 20 cpu 0.5");
    let (low, high) = (busy.pid(), urgent.pid());
    last_line(urgent);
    let kernels = stage.kernels();
    let of = |pid| kernels.iter().filter(move |kernel| kernel.pid == pid);
    let (first, last) = (of(high).nth(1000), of(high).next_back());
    let (first, last) = first.zip(last).expect("some thousands of kernels");
    let within = |one: &&Kernel| one.start > first.start && one.end < last.end;
    let (tokens, beside) = (
        of(high).filter(within).count() / 20,
        of(low).filter(within).count(),
    );
    // Of a millisecond each. Held back, it would run one or two in a tenth of a second.
    assert!(
        beside > 3 * tokens,
        "{beside} kernels beside {tokens} tokens"
    );
    drop(busy);
}

#[test]
fn a_process_that_may_have_to_hold_back_is_checked_once_for_several_short_kernels() {
    let stage = Stage::new();
    let _urgent = urgent(&stage, "60 20 1 sleep 60000");
    let mut command = stage.spinner(PRIORITY, "60 20 0");
    let mut busy = Watched::spawn(command.env("LAUNCHES", "20000").env("LINGER", "60"));
    assert_eq!(busy.line(), "ready");
    let pid = busy.pid();
    let counters = || stage.process(pid).devices[0].counters;
    eventually("all its launches are counted", PATIENCE, || {
        counters().launches == 20_000
    });
    let misses = counters().gate_misses;
    // An event covers a quarter of 2 ms; the duration of a kernel is known after the first few.
    assert!(misses < 5_000, "{misses} checks for 20000 launches");
    drop(busy);
}

#[test]
fn who_is_held_back_shows_it_and_goes_on_when_the_urgent_process_is_killed() {
    let stage = Stage::new();
    let busy = stage.started(PRIORITY, BUSY);
    let urgent = urgent(&stage, "60 5000000 1");
    is(&stage, &busy, LockState::Back);
    is(&stage, &urgent, LockState::Active);
    drop(urgent);
    let since = Instant::now();
    goes_on(&stage, &busy);
    // A starved process would need seconds for this many kernels; a death is noticed at once.
    assert!(
        since.elapsed() < Duration::from_millis(2000),
        "{:?}",
        since.elapsed()
    );
}

#[test]
fn a_stopped_process_holds_back_nobody() {
    let stage = Stage::new();
    let busy = stage.started(PRIORITY, BUSY);
    let urgent = urgent(&stage, "60 60000000 1");
    is(&stage, &busy, LockState::Back);
    urgent.signal(Signal::STOP);
    is(&stage, &busy, LockState::Active);
    let back = || state(&stage, busy.pid()) == LockState::Back;
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert!(!back(), "held back by a process that is stopped");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nobody_starves_behind_an_urgent_process_that_never_rests() {
    let stage = Stage::new();
    let busy = stage.started(PRIORITY, BUSY);
    let urgent = urgent(&stage, "60 1000 0");
    is(&stage, &busy, LockState::Back);
    goes_on(&stage, &busy);
    goes_on(&stage, &busy);
    assert_eq!(state(&stage, urgent.pid()), LockState::Active);
}

#[test]
fn fair_shares_follow_the_weights_without_turns() {
    let stage = Stage::new();
    let programs = ["100", "300"].map(|weight| {
        let mut command = stage.spinner("overlap=2ms order=fair", "60 200 0");
        let mut program = Watched::spawn(command.env("GPUSHARE_WEIGHT", weight));
        assert_eq!(program.line(), "ready");
        program
    });
    // Time in which both use the device counts for each in equal parts; the first holds back for two thirds of the time that it
    // could use.
    let held = || {
        let of = |program: &Watched| stage.process(program.pid()).devices[0].lock.held_ns as f64;
        (of(&programs[0]), of(&programs[1]))
    };
    let share = || {
        let from = held();
        eventually(
            "they have used the device for three seconds",
            PATIENCE,
            || held().0 + held().1 > from.0 + from.1 + 3e9,
        );
        let to = held();
        (to.0 - from.0) / (to.1 - from.1)
    };
    // Equal shares would be 1. A late keeper charges late, so on a busy machine some measurements are too high.
    let mut shares = vec![share()];
    while !shares.iter().any(|share| (0.2..0.55).contains(share)) {
        assert!(shares.len() < 8, "{shares:?} of the other's");
        shares.push(share());
    }
    assert!(stage.process(programs[0].pid()).devices[0].lock.waited_ns > 0);
}

/// Checks that a program with kernels of this length works on the device for no more than about its cap, in percent.
fn a_cap_holds(beside: impl Fn(&Stage) -> Option<Watched>, micros: u32, cap: &str) {
    let share = || {
        let stage = Stage::new();
        let _beside = beside(&stage);
        let mut command = stage.spinner(PRIORITY, &format!("4 {micros} 0"));
        let program = Watched::spawn(command.env("GPUSHARE_CAP", cap));
        let pid = program.pid();
        last_line(program);
        let mut kernels = stage.kernels();
        kernels.retain(|kernel| kernel.pid == pid);
        let busy: i64 = kernels.iter().map(|one| one.end - one.start).sum();
        let begin = kernels.iter().map(|one| one.start).min();
        let end = kernels.iter().map(|one| one.end).max();
        busy as f64 / (end.expect("some") - begin.expect("some")) as f64
    };
    // Without the cap it would be all of the time. On a busy machine a cap is not used up, or a late keeper ends a use late.
    let mut shares = vec![share()];
    while !shares.iter().any(|share| (0.02..0.3).contains(share)) {
        assert!(shares.len() < 5, "{shares:?} of the time");
        shares.push(share());
    }
}

#[test]
fn a_cap_holds_without_turns() {
    a_cap_holds(|_| None, 200, "25");
}

#[test]
fn a_cap_holds_for_what_fills_the_moments_of_an_urgent_process() {
    // Charged is half of the time, because a device is divided by two. The driver of these tests gives each a whole one.
    a_cap_holds(|stage| Some(urgent(stage, "60 8000 1 sleep 1")), 50, "10");
}

#[test]
fn a_paused_process_submits_nothing_though_it_has_work_on_the_device() {
    let stage = Stage::new();
    // Each launch queues milliseconds of work, so the keeper polls its completion many times.
    let busy = stage.started(PRIORITY, "60 20000 0 sleep 1");
    let pause = |paused| Change::ProcessShare {
        slot: stage.slot_of(busy.pid()),
        share: ShareEdit {
            paused: Set::To(paused),
            ..ShareEdit::default()
        },
    };
    stage.edit(&pause(true));
    let before = stage.kernels().len();
    std::thread::sleep(Duration::from_millis(300));
    let after = stage.kernels().len();
    assert!(after <= before + 1, "{before} kernels, then {after}");
    stage.edit(&pause(false));
    goes_on(&stage, &busy);
}

#[test]
fn the_policy_comes_and_goes_while_programs_run() {
    let stage = Stage::new();
    let programs = [0, 1].map(|_| stage.started("", BUSY));
    for policy in [
        "timeslice=2ms",
        PRIORITY,
        "always",
        "overlap order=fair",
        "off",
        PRIORITY,
        "launches=3",
    ] {
        stage.policy(policy);
        for program in &programs {
            goes_on(&stage, program);
        }
    }
    stage.policy("off");
    for program in &programs {
        goes_on(&stage, program);
        is(&stage, program, LockState::Idle);
    }
    assert_eq!(stage.snapshot().violations, 0);
}

#[test]
fn a_capture_goes_on_untouched() {
    for mode in 0..3 {
        let stage = Stage::new();
        let _other = urgent(&stage, "20 200 2");
        let capturer = format!("0.5 50 0 capture 30 {mode}");
        let line = last_line(Watched::spawn(&mut stage.spinner(PRIORITY, &capturer)));
        assert_eq!(number(&line, "captured"), 30);
        assert_eq!(number(&line, "synchronised"), 0);
    }
}

#[test]
fn streams_graphs_and_threads_are_let_in_and_none_is_forgotten() {
    for how in ["streams", "ptds", "graph", "threads", "twodev"] {
        let stage = Stage::new();
        let _urgent = urgent(&stage, "60 500 1 sleep 5");
        let mut command = stage.spinner(PRIORITY, &format!("60 100 7 {how}"));
        let line = last_line(Watched::spawn(command.env("LAUNCHES", "700")));
        assert_eq!(number(&line, "kernels"), 700, "{how}");
    }
}
