//! A program that has the device to itself: the lock costs it nothing. A capture on a stream is not disturbed.

use gpushare_testbed::{Watched, eventually};

use crate::stage::{PATIENCE, Stage, last_line, number};

#[test]
fn alone_nothing_is_ever_synchronised() {
    let stage = Stage::new();
    for policy in ["timeslice=1ms", "launches=2", "always"] {
        let line = last_line(Watched::spawn(&mut stage.spinner(policy, "0.3 50 0")));
        assert_eq!(number(&line, "synchronised"), 0, "{policy}: {line}");
    }
}

/// Launches a million kernels, or `GPUSHARE_TEST_LAUNCHES`.
#[test]
fn a_long_run_alone_is_never_drained_nor_handed_over() {
    let launches = std::env::var("GPUSHARE_TEST_LAUNCHES").unwrap_or("1000000".into());
    for policy in ["timeslice=1ms", "launches=2"] {
        let stage = Stage::new();
        let mut command = stage.spinner(policy, "0 0 0");
        command
            .env("LAUNCHES", &launches)
            .env("LINGER", "60")
            .env_remove("TIMELINE");
        let mut spinner = Watched::spawn(&mut command);
        assert_eq!(spinner.line(), "ready");
        let line = spinner.line();
        assert_eq!(line, format!("kernels {launches}, synchronised 0"));
        let pid = spinner.pid();
        eventually("the keeper adds the launches up", PATIENCE, || {
            stage.process(pid).devices[0].counters.launches.to_string() == launches
        });
        let device = &stage.process(pid).devices[0];
        assert_eq!(device.counters.drains, 0, "{policy}");
        assert_eq!(device.counters.drain_timeouts, 0, "{policy}");
        assert_eq!(device.lock.forced, 0, "{policy}");
        assert_eq!(stage.snapshot().devices[0].handoffs, 0, "{policy}");
    }
}

#[test]
fn nothing_is_drained_while_nobody_waits() {
    let stage = Stage::new();
    let spinner = Watched::spawn(
        stage
            .spinner("timeslice=1ms", "0.5 50 0")
            .env("LINGER", "20"),
    );
    let pid = spinner.pid();
    let mut spinner = spinner;
    assert_eq!(spinner.line(), "ready");
    let launched = number(&spinner.line(), "kernels");
    eventually("the keeper adds the launches up", PATIENCE, || {
        stage.process(pid).devices[0].counters.launches == launched
    });
    let device = &stage.process(pid).devices[0];
    assert_eq!(device.counters.drains, 0);
    assert_eq!(device.counters.drain_timeouts, 0);
    assert!(device.lock.acquisitions >= 1);
}

/// The legacy stream has work, so a drain queries it repeatedly while captures begin.
#[test]
fn a_capture_that_begins_during_a_drain_is_left_alone() {
    let stage = Stage::new();
    let _other = stage.started("timeslice=2ms", "60 200 2");
    let mut capturer = stage.spinner("timeslice=2ms", "0 3000 0 captures");
    capturer.env("CAPTURE_NAPS", "1").env("LAUNCHES", "30");
    let line = last_line(Watched::spawn(&mut capturer));
    assert_eq!(number(&line, "kernels"), 30);
}

#[test]
fn a_capture_is_never_synchronised_whatever_its_mode() {
    for mode in ["0", "1", "2"] {
        let stage = Stage::new();
        let _other = stage.started("timeslice=2ms", "20 200 2");
        let capturer = format!("0.1 100 0 capture 3000 {mode}");
        let line = last_line(Watched::spawn(
            &mut stage.spinner("timeslice=2ms", &capturer),
        ));
        assert_eq!(line, "captured 3000, synchronised 0", "mode {mode}");
        let mut plain = stage.spinner("", &capturer);
        let plain = last_line(Watched::spawn(plain.env_remove("LD_PRELOAD")));
        assert_eq!(line, plain, "mode {mode}, with and without us");
    }
}
