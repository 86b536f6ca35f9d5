//! A workload on the simulated GPU, the control program, and Perfetto's rules for a trace.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use gpushare_testbed::{Testbed, Watched, artifact};
use serde_json::Value;

pub use crate::cli_support::gpushare;
use crate::cli_support::{Said, process, scripted};

pub const LIMIT: Duration = Duration::from_secs(60);

/// Starts a scripted workload under this name.
pub fn start(bed: &Testbed, name: &str) -> Watched {
    scripted(&mut bed.gpushare(&["run", "--name", name, "--"]))
}

/// Starts a workload that runs by itself.
pub fn spin(bed: &Testbed, name: &str) -> Watched {
    let mut command = bed.gpushare(&["run", "--name", name, "--"]);
    command
        .arg(artifact("gpushare-workload"))
        .args(["--kernel-us=500", "--seconds=60"]);
    Watched::spawn(&mut command)
}

pub fn launches(bed: &Testbed, name: &str) -> u64 {
    let launches = &process(bed, name)["devices"][0]["launches"];
    launches.as_u64().unwrap_or(0)
}

pub fn export(bed: &Testbed, subject: &str, file: &Path) -> (Value, Said) {
    let path = file.display().to_string();
    let said = gpushare(bed, &["trace", "export", subject, "-o", &path]).done();
    let text = fs::read_to_string(file).expect("written");
    (serde_json::from_str(&text).expect("JSON"), said)
}

pub fn events(document: &Value) -> &Vec<Value> {
    document["traceEvents"].as_array().expect("a list")
}

pub fn number(event: &Value, key: &str) -> f64 {
    event[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} in {event}"))
}

/// Checks Perfetto's rules: known phases, no negative time, and on each lane spans that are disjoint or nested, the outer one
/// first.
pub fn check(document: &Value) {
    let mut lanes: HashMap<(u64, u64), Vec<(f64, f64)>> = HashMap::new();
    let mut named = HashSet::new();
    let mut met = HashSet::new();
    for event in events(document) {
        let lane = (
            event["pid"].as_u64().expect("a pid"),
            event["tid"].as_u64().expect("a tid"),
        );
        match event["ph"].as_str().expect("a phase") {
            "M" if event["name"] == "thread_name" => {
                assert!(named.insert(lane), "named twice: {event}");
            }
            "M" | "i" => {}
            "X" => {
                assert!(
                    number(event, "ts") >= 0.0 && number(event, "dur") >= 0.0,
                    "{event}"
                );
                let span = (
                    number(event, "ts"),
                    number(event, "ts") + number(event, "dur"),
                );
                lanes.entry(lane).or_default().push(span);
                met.insert(lane);
            }
            other => panic!("{other} is no phase of ours: {event}"),
        }
    }
    assert!(met.is_subset(&named), "lanes without a name");
    // Times are given to the nanosecond; their sums are not exact.
    const EXACT: f64 = 0.01;
    for (lane, mut spans) in lanes {
        // A stable sort: of two spans with the same start, the one written first stays first.
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut open: Vec<(f64, f64)> = Vec::new();
        for span in spans {
            while open.last().is_some_and(|outer| outer.1 <= span.0 + EXACT) {
                open.pop();
            }
            if let Some(outer) = open.last() {
                assert!(
                    span.1 <= outer.1 + EXACT,
                    "{lane:?}: {span:?} reaches out of {outer:?}"
                );
            }
            open.push(span);
        }
    }
}

/// Returns the operators' edits in the document.
pub fn operators(document: &Value) -> impl Iterator<Item = &str> {
    let events = events(document).iter();
    events
        .filter(|event| event["cat"] == "operator")
        .filter_map(|event| event["name"].as_str())
}

pub fn of_call<'d>(document: &'d Value, call: &str) -> Vec<&'d Value> {
    events(document)
        .iter()
        .filter(|event| {
            event["cat"] == "call"
                && event["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with(call))
        })
        .collect()
}
