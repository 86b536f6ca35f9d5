//! Two programs on one device: they take turns, and never run at the same time.

use gpushare_testbed::Watched;

use crate::stage::{Stage, last_line, number};

/// Runs the same spinner twice at once. Returns the stage and how many kernels each launched.
fn two(policy: &str, words: &str, devices: &str) -> (Stage, [u64; 2]) {
    let stage = Stage::new();
    let start = || Watched::spawn(stage.spinner(policy, words).env("DEVICES", devices));
    let (one, other) = (start(), start());
    let kernels = [one, other].map(|program| number(&last_line(program), "kernels"));
    (stage, kernels)
}

fn alternates(policy: &str, words: &str) {
    let (stage, kernels) = two(policy, words, "1");
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
    alternates("timeslice=5ms", "1 500 4");
}

#[test]
fn a_holder_that_never_synchronises_is_drained_at_the_end_of_its_slice() {
    alternates("timeslice=5ms", "1 500 0");
}

#[test]
fn a_count_of_launches_ends_a_turn() {
    alternates("launches=10", "1 500 0");
}

#[test]
fn every_call_may_be_a_turn() {
    alternates("always", "1 500 0");
}

#[test]
fn work_in_many_streams_is_drained() {
    alternates("timeslice=5ms", "1 500 7 streams");
}

#[test]
fn work_in_the_threads_own_default_stream_is_drained() {
    alternates("timeslice=5ms", "1 500 5 ptds");
}

#[test]
fn two_devices_are_taken_in_order() {
    let (stage, kernels) = two("timeslice=5ms", "1 500 3 twodev", "2");
    assert_eq!(stage.overlaps(), 0);
    assert!(kernels.iter().all(|kernels| *kernels >= 10), "{kernels:?}");
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
