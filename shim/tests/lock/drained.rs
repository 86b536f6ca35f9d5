//! Drains of all streams: work on a stream that the program used earlier is drained too. This driver runs streams concurrently,
//! so a stream may be busy long after a later one is done.

use gpushare_testbed::Watched;

use crate::stage::{Stage, last_line, number};

/// Checks that two programs with many streams take turns and that no kernel of one runs in the other's turn.
fn is_drained(how: &str) {
    for policy in ["timeslice=5ms", "launches=7", "always"] {
        let stage = Stage::new();
        let start = || {
            let mut command = stage.program("weaver.c", policy);
            Watched::spawn(command.args(["2", how]).env("SIDE_BY_SIDE", "1"))
        };
        let programs = [start(), start()];
        for program in programs {
            assert!(number(&last_line(program), "kernels") >= 10, "{policy}");
        }
        let device = &stage.snapshot().devices[0];
        assert_eq!(device.violations, 0, "two holders at once, {policy}");
        assert!(stage.switches() >= 4, "{policy}: {}", stage.switches());
        // A run in which a drain exceeded its grace shows nothing; that happens on a very busy machine.
        assert!(
            device.forced > 0 || stage.overlaps() == 0,
            "{policy}: {} overlaps in {} switches",
            stage.overlaps(),
            stage.switches()
        );
    }
}

#[test]
fn work_in_several_contexts_of_a_device_is_drained() {
    is_drained("contexts");
}

#[test]
fn a_stream_of_a_context_that_was_destroyed_is_not_asked() {
    is_drained("foreign");
}

#[test]
fn work_that_waits_for_the_applications_own_events_is_drained() {
    is_drained("events");
}

#[test]
fn work_beside_a_release_that_is_not_the_last_is_drained() {
    is_drained("releases");
}

#[test]
fn work_in_a_context_that_the_driver_does_not_destroy_is_drained() {
    is_drained("refused");
}

#[test]
fn work_in_a_stream_that_was_destroyed_is_drained() {
    is_drained("destroyed");
}

#[test]
fn work_from_before_a_capture_is_drained() {
    is_drained("captured");
}
