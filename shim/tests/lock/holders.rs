//! Holders that die, stop, compute or wedge do not keep the device.

use std::time::Duration;

use gpushare_testbed::{Watched, eventually};
use rustix::process::Signal;

use crate::stage::{PATIENCE, Stage, last_line, number};

/// Holds the lock as long as anybody lets it.
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
fn a_slice_ends_while_the_application_computes() {
    let stage = Stage::new();
    // One launch, then five seconds of computing, and no call into the driver meanwhile.
    let holder = stage.started("timeslice=5ms idle=60s", "20 100 0 cpu");
    let other = stage.started("timeslice=5ms idle=60s", "0.1 100 0");
    assert!(number(&last_line(other), "kernels") >= 1);
    assert_eq!(stage.kernels_of(holder.pid()), 1, "it computes still");
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
    let mut reader =
        shm_layout::Segments::open_viewer(&stage.segments()).expect("our own segments");
    assert_eq!(registered(&mut reader), 2, "each of them registered once");
}

fn registered(segments: &mut shm_layout::Segments) -> usize {
    let mut reader = shm_layout::EventReader::from_start(segments.state());
    let mut count = 0;
    while let Some(event) = reader.next(segments.state()) {
        if event.is_ok_and(|event| event.kind == shm_layout::EventKind::Register) {
            count += 1;
        }
    }
    count
}
