//! Holders that die, stop, compute or hang: they do not keep the device.

use std::{thread::sleep, time::Duration};

use gpushare_testbed::{Watched, eventually};
use rustix::process::Signal;
use shm_layout::{EventKind, LockState, Segments, SlotId};

use crate::stage::{PATIENCE, Stage, events, last_line, number};

/// A policy under which a process holds the lock as long as possible.
const GREEDY: &str = "timeslice=60s idle=60s max-hold=60s";

#[test]
fn the_other_runs_when_the_holder_is_killed() {
    let stage = Stage::new();
    let holder = stage.started(GREEDY, "30 100 0");
    let mut waiter = Watched::spawn(&mut stage.spinner(GREEDY, "30 100 0"));
    assert_eq!(
        waiter.line_within(Duration::from_millis(300)),
        None,
        "it does not wait"
    );
    holder.signal(Signal::KILL);
    assert_eq!(waiter.line(), "ready");
    eventually("the dead one's slot is free", PATIENCE, || {
        stage
            .snapshot()
            .processes
            .iter()
            .all(|process| process.identity.pid != holder.pid())
    });
}

#[test]
fn the_other_runs_when_the_holder_becomes_another_program() {
    let stage = Stage::new();
    let holder = stage.started(GREEDY, "30 100 0 exec");
    let mut other = Watched::spawn(&mut stage.spinner(GREEDY, "30 100 0"));
    assert_eq!(other.line(), "ready");
    assert_eq!(stage.kernels_of(holder.pid()), 1, "it sleeps as another");
}

#[test]
fn the_other_runs_when_a_waiter_before_it_is_killed() {
    let stage = Stage::new();
    let policy = format!("{GREEDY} order=fifo");
    let holder = stage.started(&policy, "30 100 0");
    let waits = |count: usize| {
        let waiter = Watched::spawn(&mut stage.spinner(&policy, "30 100 0"));
        eventually("it waits", PATIENCE, || {
            stage.snapshot().devices[0].waiters.len() == count
        });
        waiter
    };
    let (first, mut second) = (waits(1), waits(2));
    first.signal(Signal::KILL);
    holder.signal(Signal::KILL);
    assert_eq!(second.line(), "ready");
}

#[test]
fn a_stopped_holder_loses_the_lock_and_finds_out() {
    let stage = Stage::new();
    let policy = "timeslice=50ms max-hold=100ms grace=50ms idle=1s";
    let holder = stage.started(policy, "60 100 0");
    holder.signal(Signal::STOP);
    let mut other = stage.started(policy, "1 100 2");
    assert!(number(&other.line(), "kernels") >= 1);
    let before = stage.kernels_of(holder.pid());
    holder.signal(Signal::CONT);
    eventually("the stopped one goes on", PATIENCE, || {
        stage.kernels_of(holder.pid()) > before + 10
    });
    assert_eq!(stage.snapshot().devices[0].violations, 0);
}

#[test]
fn who_is_handed_the_lock_while_it_is_stopped_shows_as_its_holder() {
    let stage = Stage::new();
    // The other's turns are short, and a stopped holder keeps its own turn.
    let policy = "timeslice=5ms max-hold=60s grace=60s";
    let _other = stage.started(policy, "60 100 0");
    let stopped = stage.started(policy, "60 100 0");
    let slot = stage.slot_of(stopped.pid());
    let state = || stage.process(stopped.pid()).devices[0].lock.state;
    let owns = || stage.snapshot().devices[0].owner == Some(slot);
    for _ in 0..5 {
        eventually("it is handed the lock", PATIENCE, || {
            eventually("it waits", PATIENCE, || state() == LockState::Wait);
            stopped.stop();
            // It polled a moment ago, so it counts as waiting and its turn comes at once. On a busy machine the signal
            // may reach it when its turn is over already, and nobody hands the lock to that.
            let handed = (0..100).any(|_| {
                sleep(Duration::from_millis(5));
                owns()
            });
            if !handed {
                stopped.signal(Signal::CONT);
            }
            handed
        });
        let shown = stage.snapshot();
        let lock = &stage.process(stopped.pid()).devices[0].lock;
        assert_eq!(lock.state, LockState::Hold);
        assert!(lock.since_ns >= shown.devices[0].owner_since_ns);
        stopped.signal(Signal::CONT);
    }
}

#[test]
fn a_slice_ends_while_the_application_computes() {
    let stage = Stage::new();
    // One launch, then five seconds of computing without a driver call.
    let holder = stage.started("timeslice=5ms idle=60s", "20 100 0 cpu");
    let other = stage.started("timeslice=5ms idle=60s", "0.1 100 0");
    assert!(number(&last_line(other), "kernels") >= 1);
    assert_eq!(stage.kernels_of(holder.pid()), 1, "it computes still");
}

/// Returns the length of each wait of a busy program behind a holder that computes for a second after each kernel. The
/// program's first turn ends with a full queue.
fn waits_behind(how: &str, queue_ms: &str) -> Vec<Duration> {
    let stage = Stage::new();
    let policy = "timeslice=5ms idle=60s grace=2s";
    let _holder = stage.started(policy, &format!("60 100 0 {how} 1000"));
    let mut other = Watched::spawn(stage.spinner(policy, "4 500 0").env("QUEUE_MS", queue_ms));
    assert_eq!(other.line(), "ready");
    let slot = stage.slot_of(other.pid());
    assert!(number(&last_line(other), "kernels") >= 10);
    waits_of(&stage, slot)
}

/// Returns the length of each wait that ended with the lock.
fn waits_of(stage: &Stage, slot: SlotId) -> Vec<Duration> {
    let segments = Segments::open_viewer(&stage.segments()).expect("our own segments");
    let holds = events(&segments)
        .into_iter()
        .filter(|event| event.kind == EventKind::Hold && event.slot == slot.index);
    holds
        .filter(|hold| hold.arg0 > 0)
        .map(|hold| Duration::from_nanos(hold.arg0))
        .collect()
}

#[test]
fn a_waiter_waits_for_the_slice_and_not_for_a_holder_that_computes_or_sleeps() {
    for how in ["cpu", "sleep"] {
        let mut waits = waits_behind(how, "50");
        waits.sort_unstable();
        eprintln!("waits behind a holder that does {how}: {waits:?}");
        assert!(!waits.is_empty(), "{how}: it never waited");
        // Slice, drain and hand-off take about 6 ms. Without the keeper each wait would be the holder's second.
        let median = waits[waits.len() / 2];
        assert!(median < Duration::from_millis(900), "{how}: {waits:?}");
        assert!(
            waits.iter().all(|wait| *wait < PATIENCE),
            "{how}: {waits:?}"
        );
    }
}

/// The queued work is charged to its owner, and the other process may hold the lock as long. That must not happen while the
/// device is idle.
#[test]
fn a_holder_that_computes_does_not_hold_on_because_it_would_deserve_to() {
    let waits = waits_behind("cpu", "1500");
    eprintln!("waits behind a holder with a credit of 1.5 s: {waits:?}");
    assert!(!waits.is_empty(), "it never waited");
    assert!(
        waits.iter().all(|wait| *wait < Duration::from_millis(800)),
        "{waits:?}"
    );
}

#[test]
fn nobody_holds_longer_than_max_hold_while_others_wait_however_urgent_it_is() {
    let stage = Stage::new();
    let policy = "timeslice=5ms max-hold=100ms grace=100ms idle=60s order=priority";
    let start = |priority, words| {
        let mut command = stage.spinner(policy, words);
        let mut program = Watched::spawn(command.env("GPUSHARE_PRIORITY", priority));
        assert_eq!(program.line(), "ready");
        program
    };
    let _urgent = start("19", "60 500 0");
    let patient = start("-20", "60 500 0");
    let slot = stage.slot_of(patient.pid());
    // Its first turn may have begun before the other process submitted.
    eventually("it has waited and held", PATIENCE, || {
        !waits_of(&stage, slot).is_empty()
    });
    let waits = waits_of(&stage, slot);
    // Ageing alone would take nearly four seconds.
    assert!(waits[0] < Duration::from_secs(2), "{waits:?}");
}

#[test]
fn an_idle_holder_gives_the_lock_up_by_itself() {
    let stage = Stage::new();
    let mut holder = Watched::spawn(
        stage
            .spinner("timeslice=10s idle=2ms", "0.01 100 0")
            .env("LINGER", "20"),
    );
    assert_eq!(holder.line(), "ready");
    eventually("it holds nothing any more", PATIENCE, || {
        stage.snapshot().devices[0].owner.is_none()
    });
}

#[test]
fn a_kernel_that_outlasts_grace_ends_in_a_forced_release() {
    let stage = Stage::new();
    let policy = "timeslice=5ms grace=20ms max-hold=1s idle=60s";
    // One kernel of five seconds.
    let holder = stage.started(policy, "0.01 5000000 0");
    let other = stage.started(policy, "0.1 100 0");
    drop(other);
    assert!(stage.overlaps() > 0, "the long kernel runs still");
    drop(holder);
    assert!(stage.snapshot().devices[0].violations == 0);
}

#[test]
fn a_child_after_a_fork_is_a_process_of_its_own() {
    let stage = Stage::new();
    let output = Watched::spawn(&mut stage.program("forker.c", "timeslice=5ms")).wait_output();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "before 0\nchild 0\nparent 0\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let segments = Segments::open_viewer(&stage.segments()).expect("our own segments");
    let registered = events(&segments)
        .into_iter()
        .filter(|event| event.kind == EventKind::Register);
    assert_eq!(registered.count(), 2, "each of them registered once");
}
