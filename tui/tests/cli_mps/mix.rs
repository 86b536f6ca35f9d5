//! An inference with two trainings on the simulated GPU, in the order measured on an H100. The inference waits longest under
//! plain MPS, less with time slices, and hardly at all with an MPS priority. Under `overlap` it waits no longer than with time
//! slices; the simulator's slices are exact, so `overlap` cannot shorten the waits there.

use std::process::Command;

use gpushare_testbed::{Testbed, Watched, artifact};
use serde_json::Value;

use crate::support::said;

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
    let bed = Testbed::with_scenario("time-slices");
    let workload = artifact("gpushare-workload");
    let workload = workload.to_str().expect("a plain path");
    if way.mps {
        artifact("gpushare-sim-mps");
        said(&mut bed.gpushare(&["mps", "start", "--sim"])).done();
    }
    if let Some(policy) = way.policy {
        said(&mut bed.gpushare(&["policy", "set", "all", policy])).done();
    }
    let run = |options: &[&str], words: &[&str]| -> Command {
        bed.gpushare(&[&["run"], options, &["--", workload, "--report-json"], words].concat())
    };
    // A training's kernels have many blocks, and its queue is longer than a request.
    let training = [
        "--kernel-us=300",
        "--burst=32",
        "--blocks=1200",
        "--until-eof",
    ];
    let trainings = [(); 2].map(|()| Watched::spawn(&mut run(&[], &training)));
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
    let inference = said(&mut run(&priority, &request)).done().json();
    drop(trainings);
    if way.mps {
        said(&mut bed.gpushare(&["mps", "stop", "--force"])).done();
    }
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
