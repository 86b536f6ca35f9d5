//! Caps and weights, measured as the time for which the device ran each program's kernels.

use std::time::Duration;

use gpushare_testbed::Watched;

use crate::stage::{Stage, last_line};

/// Returns each busy program's share of the device, in percent of the time for which all ran. The programs differ in the value
/// of one variable. Runs five seconds, or `GPUSHARE_TEST_SECONDS`.
fn shares(policy: &str, variable: &str, values: &[&str]) -> Vec<f64> {
    let seconds = std::env::var("GPUSHARE_TEST_SECONDS").unwrap_or("5".into());
    let limit = Duration::from_secs(120);
    let stage = Stage::new();
    let start = |value: &&str| {
        let mut command = stage.spinner(policy, &format!("{seconds} 200 0"));
        Watched::spawn_for(command.env(variable, value), limit)
    };
    let programs: Vec<_> = values.iter().map(start).collect();
    let pids: Vec<_> = programs.iter().map(Watched::pid).collect();
    for program in programs {
        last_line(program);
    }
    assert_eq!(stage.overlaps(), 0);
    let kernels = stage.kernels();
    let of = |pid| kernels.iter().filter(move |kernel| kernel.pid == pid);
    let began = pids
        .iter()
        .filter_map(|pid| of(*pid).map(|one| one.start).min());
    let ended = pids
        .iter()
        .filter_map(|pid| of(*pid).map(|one| one.end).max());
    let (from, to) = (began.max().unwrap_or(0), ended.min().unwrap_or(0));
    assert!(to > from, "they were never there all at once");
    let busy = |pid| -> i64 {
        let inside = of(pid).map(|one| (one.end.min(to) - one.start.max(from)).max(0));
        inside.sum()
    };
    let share = |pid: u32| busy(pid) as f64 * 100.0 / (to - from) as f64;
    pids.into_iter().map(share).collect()
}

#[test]
fn caps_of_ten_thirty_and_fifty_percent_hold() {
    let caps = [10.0, 30.0, 50.0];
    let shares = shares(
        "timeslice=4ms order=fair",
        "GPUSHARE_CAP",
        &["10", "30", "50"],
    );
    eprintln!("caps {caps:?} %: {shares:.2?} %");
    for (share, cap) in shares.iter().zip(caps) {
        // On a saturated device the share is within two points; a busy machine cannot saturate it for three programs.
        assert!((cap * 0.6..cap + 5.0).contains(share), "{shares:.2?}");
    }
}

/// Checks that three programs with weights one, two and four share the device under this policy, within this many points.
fn weighed(policy: &str, points: f64) {
    let weights = ["100", "200", "400"];
    let shares = shares(policy, "GPUSHARE_WEIGHT", &weights);
    let sum: f64 = shares.iter().sum();
    // Relative to the time of all together, because other load on the machine affects all programs.
    let shares: Vec<_> = shares.iter().map(|share| share * 100.0 / sum).collect();
    eprintln!("{policy}, weights 1:2:4: {shares:.2?} % of {sum:.2} %");
    for (share, wanted) in shares.iter().zip([1.0, 2.0, 4.0]) {
        assert!(
            (share - wanted * 100.0 / 7.0).abs() < points,
            "{shares:.2?}"
        );
    }
}

#[test]
fn weights_of_one_two_and_four_share_the_device() {
    weighed("timeslice=4ms order=fair", 6.0);
}

#[test]
fn weights_of_one_two_and_four_share_the_device_under_a_count() {
    // A turn is only a few kernels, so other load has a visible effect; equal shares would be 19 and 24 points off.
    weighed("launches=8 order=fair", 12.0);
    weighed("always order=fair", 12.0);
}
