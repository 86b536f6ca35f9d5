//! Work that lies where the program was not seen last is drained too. The driver runs streams side by side here, so a
//! stream may be busy long after one used later is done.

use gpushare_testbed::Watched;

use crate::stage::{Stage, last_line, number};

/// Two weavers take turns, and nothing of either runs in the other's turn.
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
        // A machine so busy that a drain outlasts grace proves nothing.
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
