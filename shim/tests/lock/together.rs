//! Launches on several devices, which are locked on each, and streams, which are locked on the device of their context.

use gpushare_testbed::{Watched, eventually};

use crate::stage::{PATIENCE, Stage, last_line, number};

fn start(stage: &Stage, policy: &str, how: &str) -> Watched {
    let mut command = stage.program("together.c", policy);
    Watched::spawn(command.args(["1", how]).env("DEVICES", "2"))
}

#[test]
fn a_launch_on_two_devices_has_both_to_itself() {
    for policy in ["timeslice=5ms", "launches=7", "always"] {
        let stage = Stage::new();
        let programs = ["together", "together", "strange"].map(|how| start(&stage, policy, how));
        for program in programs {
            assert!(number(&last_line(program), "kernels") >= 10, "{policy}");
        }
        let devices = stage.snapshot().devices;
        assert_eq!(devices.len(), 2);
        assert!(devices.iter().all(|device| device.violations == 0));
        assert!(stage.switches() >= 4, "{policy}: {}", stage.switches());
        // A run in which a drain exceeded its grace shows nothing; that happens on a very busy machine.
        let forced: u64 = devices.iter().map(|device| device.forced).sum();
        assert!(
            forced > 0 || stage.overlaps() == 0,
            "{policy}: {} overlaps in {} switches",
            stage.overlaps(),
            stage.switches()
        );
    }
}

/// Runs a program and returns, for each device, its launches and acquisitions of the lock.
fn seen(policy: &str, how: &str) -> (u64, [(u64, u64); 2]) {
    let stage = Stage::new();
    let mut command = stage.program("together.c", policy);
    command.args(["0.2", how, "stay"]).env("DEVICES", "2");
    let mut program = Watched::spawn(&mut command);
    let kernels = number(&program.line(), "kernels");
    // The keeper publishes the threads' counts.
    let sum = || {
        let devices = stage.process(program.pid()).devices;
        [0, 1].map(|ordinal| {
            let of = devices.iter().find(|device| device.ordinal == ordinal);
            of.map_or((0, 0), |device| {
                (device.counters.launches, device.lock.acquisitions)
            })
        })
    };
    eventually("all launches are counted", PATIENCE, || {
        sum().iter().map(|(launches, _)| launches).sum::<u64>() >= kernels
    });
    (kernels, sum())
}

#[test]
fn a_launch_on_two_devices_counts_and_locks_on_both() {
    let (kernels, devices) = seen("always", "together");
    for (launches, acquisitions) in devices {
        assert_eq!(launches, kernels / 2);
        assert!(acquisitions > 0);
    }
}

#[test]
fn a_stream_counts_and_locks_where_it_is_at_home() {
    let (kernels, devices) = seen("always", "strange");
    assert_eq!(devices[0], (0, 0), "nothing was done on the first device");
    assert_eq!(devices[1].0, kernels);
    assert!(devices[1].1 > 0);
}
