//! An inference with two trainings on the simulated GPU, in the order measured on an H100. The inference waits longest under
//! plain MPS, less with time slices, and hardly at all with an MPS priority. Under `overlap` it waits no longer than with time
//! slices; the simulator's slices are exact, so `overlap` cannot shorten the waits there.
//!
//! Programs that never pause share an MPS server kernel by kernel, so long kernels win, as was measured on an H200.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use gpushare_testbed::{Testbed, Watched, artifact, eventually};
use serde_json::Value;

use crate::cli_support::{Run as _, gpushare};

/// A world with MPS, if wanted, and a policy.
struct World {
    bed: Testbed,
    workload: PathBuf,
    mps: bool,
}

impl World {
    fn new(bed: Testbed, mps: bool, policy: Option<&str>) -> Self {
        if mps {
            artifact("gpushare-sim-mps");
            gpushare(&bed, &["mps", "start", "--sim"]).done();
        }
        if let Some(policy) = policy {
            gpushare(&bed, &["policy", "set", "all", policy]).done();
        }
        let workload = artifact("gpushare-workload");
        Self { bed, workload, mps }
    }

    /// Returns the command of a workload under these options of `run`.
    fn run(&self, options: &[&str], words: &[&str]) -> Command {
        let workload = self.workload.to_str().expect("a plain path");
        let tail = ["--", workload, "--report-json"];
        self.bed
            .gpushare(&[&["run"], options, &tail, words].concat())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.mps {
            let _ = self.bed.gpushare(&["mps", "stop", "--force"]).output();
        }
    }
}

struct Way {
    mps: bool,
    policy: Option<&'static str>,
    priority: Option<&'static str>,
}

const BARE: Way = Way {
    mps: false,
    policy: None,
    priority: None,
};

/// Returns the median and the 99th percentile of a request's time, in nanoseconds.
fn requests(way: &Way) -> (u64, u64) {
    let world = World::new(Testbed::with_scenario("time-slices"), way.mps, way.policy);
    // A training's kernels have many blocks, and its queue is longer than a request.
    let training = [
        "--kernel-us=300",
        "--burst=32",
        "--blocks=1200",
        "--until-eof",
    ];
    let trainings = [(); 2].map(|()| Watched::spawn(&mut world.run(&[], &training)));
    let priority: Vec<String> = way
        .priority
        .iter()
        .map(|p| format!("--priority={p}"))
        .collect();
    let priority: Vec<&str> = priority.iter().map(String::as_str).collect();
    let request = [
        "--kernel-us=20",
        "--burst=60",
        "--blocks=16",
        "--gap-us=10000",
        "--seconds=1.5",
    ];
    let inference = world.run(&priority, &request).said().done().json();
    drop(trainings);
    let of = |key: &str| inference.get(key).and_then(Value::as_u64).expect("a time");
    (of("burst_p50_ns"), of("burst_p99_ns"))
}

#[test]
fn an_inference_beside_trainings_waits_as_was_measured() {
    let overlap = Some("overlap=1ms order=priority");
    let (mps, priority) = (true, Some("5"));
    let mut seen = Vec::new();
    // A busy machine sometimes delays any of these.
    for _ in 0..8 {
        let bare = requests(&BARE);
        let plain = requests(&Way { mps, ..BARE });
        let urgent = requests(&Way {
            mps,
            priority,
            ..BARE
        });
        let beside = requests(&Way {
            policy: overlap,
            priority,
            ..BARE
        });
        if urgent.0 < bare.0 && bare.0 < plain.0 && beside.1 < bare.1 + bare.1 / 8 {
            return;
        }
        seen.push((bare, plain, urgent, beside));
    }
    panic!("bare, MPS, MPS by priority, overlap (p50, p99 in ns): {seen:?}");
}

/// Kernels of four programs that never pause: microseconds, kernels before each wait, and blocks.
const FLAT_OUT: [[u32; 3]; 4] = [
    [300, 60, 400],
    [3000, 4, 1024],
    [400, 30, 512],
    [1000, 6, 4096],
];

/// Returns the part of the device that each of the programs had over MPS, in percent of the time.
fn parts(policy: Option<&str>) -> Vec<u64> {
    let world = World::new(Testbed::new(), true, policy);
    let start = |[us, burst, blocks]: [u32; 3]| {
        let words = [
            format!("--kernel-us={us}"),
            format!("--burst={burst}"),
            format!("--blocks={blocks}"),
            "--seconds=4".to_owned(),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Watched::spawn(&mut world.run(&[], &words))
    };
    let part = |(program, [us, ..]): (Watched, [u32; 3])| {
        let output = program.wait_output();
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let of = |key: &str| report.get(key).and_then(Value::as_u64).expect("a number");
        of("launches") * u64::from(us) * 100_000 / of("elapsed_ns")
    };
    let programs = FLAT_OUT.map(start);
    programs.into_iter().zip(FLAT_OUT).map(part).collect()
}

/// Returns how many times as much as another a program had, at most, in percent.
fn spread(parts: &[u64]) -> u64 {
    let (least, most) = (parts.iter().min(), parts.iter().max());
    most.zip(least)
        .map_or(u64::MAX, |(most, least)| 100 * most / least.max(&1))
}

#[test]
fn programs_that_never_pause_share_fairly_over_mps_whatever_the_length_of_their_kernels() {
    let mut seen = Vec::new();
    // A busy machine sometimes delays one of them.
    for _ in 0..6 {
        let bare = parts(None);
        let fair = parts(Some("overlap order=fair"));
        // Where the processors do not keep the device at work, who has long kernels waits for a processor less often.
        let is_kept_at_work = fair.iter().sum::<u64>() >= 85;
        let most = match is_kept_at_work {
            true => 150,
            false => spread(&bare) / 2,
        };
        if spread(&bare) > 300 && spread(&fair) < most {
            return;
        }
        seen.push([bare, fair]);
    }
    panic!("plain MPS and fair: {seen:?} %");
}

#[test]
fn a_client_with_long_kernels_is_named_beside_those_that_wait_for_it() {
    const LIMIT: Duration = Duration::from_secs(60);
    let world = World::new(Testbed::new(), true, Some("overlap order=priority"));
    let gpushare = |args: &[&str]| gpushare(&world.bed, args).done();
    let start = |name: &str, kernel: &str| {
        let words = [kernel, "--burst=4", "--blocks=1200", "--until-eof"];
        Watched::spawn(&mut world.run(&["--name", name], &words))
    };
    let _long = start("long", "--kernel-us=20000");
    eventually("its kernels are measured", LIMIT, || {
        let ps = gpushare(&["ps", "--json"]).json();
        let each = &ps["processes"][0]["devices"][0]["submission_ns"];
        each.as_u64() > Some(15_000_000)
    });
    let delays = || {
        gpushare(&["mps", "status"])
            .out
            .contains("delay the others")
    };
    assert!(!delays(), "there are no others");
    let _short = start("short", "--kernel-us=50");
    eventually("mps status names it", LIMIT, delays);
    eventually("so does advise", LIMIT, || {
        let advice = gpushare(&["advise", "--over", "1s", "--json"]).json();
        let device = &advice["devices"][0];
        let sentence = device["sentence"].as_str().unwrap_or_default();
        device["rule"] == "long_kernels"
            && sentence.contains(" waits ")
            && sentence.contains("--no-mps")
    });
}
