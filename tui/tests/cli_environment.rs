//! Variables of other tools: each one's limit is in force, and its name is shown as the source.

mod cli_support;

use std::time::Duration;

use cli_support::{Run as _, processes, scripted};
use gpushare_testbed::{Testbed, artifact, eventually};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

fn first_process(bed: &Testbed) -> Value {
    processes(bed).first().cloned().unwrap_or_default()
}

/// Locations of a limit and its source in `ps --json`.
const QUOTA: [&str; 2] = ["/devices/0/quota_bytes", "/devices/0/quota_source"];
const CAP: [&str; 2] = ["/cap_percent", "/share_source"];
const PRIORITY: [&str; 2] = ["/priority", "/share_source"];
const POLICY: [&str; 2] = ["/devices/0/lock/policy", "/devices/0/lock/policy_source"];

/// The variable, a value, the locations, and the expected limit as JSON.
const SHOWN: [(&str, &str, [&str; 2], &str); 11] = [
    ("WRAPPER_MAX_MEMORY", "1048576", QUOTA, "1048576"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "2m", QUOTA, "2097152"),
    ("CUDA_MEM_LIMIT", "1g", QUOTA, "1073741824"),
    ("ALNAIR_VGPU_COMPUTE_PERCENTILE", "40", CAP, "40"),
    ("CUDA_DEVICE_SM_LIMIT", "50", CAP, "50"),
    ("CUDA_CORE_LIMIT", "60", CAP, "60"),
    ("CUDA_TASK_PRIORITY", "0", PRIORITY, "10"),
    (
        "CUDA_OVERRIDE_KERNEL_N_SYNC",
        "25",
        POLICY,
        "\"launches=25\"",
    ),
    (
        "CUDA_OVERRIDE_MAX_SYNC_MS",
        "2.5",
        POLICY,
        "\"timeslice=2.5ms\"",
    ),
    ("CUDA_OVERRIDE_ALWAYS_LOCK", "1", POLICY, "\"always\""),
    (
        "CUDA_OVERRIDE_SYNC_LOCK_SKIPS",
        "3",
        POLICY,
        "\"launches=10\"",
    ),
];

#[test]
fn every_name_of_another_tool_is_in_force_and_shown_as_the_source() {
    let known: Vec<&str> = SHOWN.iter().map(|(name, ..)| *name).collect();
    for alias in shm_layout::ALIASES {
        // This variable asks for logs and sets no limit; it has its own test.
        let is_here = alias == "PFLOG" || known.contains(&alias);
        assert!(is_here, "{alias} has no row here");
    }
    for (name, value, [limit, source], wanted) in SHOWN {
        let bed = Testbed::with_scenario("one-gpu");
        let _workload = scripted(bed.gpushare(&["run", "--"]).env(name, value));
        eventually(name, LIMIT, || first_process(&bed).pointer(limit).is_some());
        let process = first_process(&bed);
        let found = process.pointer(limit).map(Value::to_string);
        assert_eq!(found.as_deref(), Some(wanted), "{name}: {process}");
        assert_eq!(process.pointer(source), Some(&json!(name)), "{process}");
    }
}

#[test]
fn what_the_operator_says_stands_above_another_tools_name_and_is_the_source() {
    let bed = Testbed::with_scenario("one-gpu");
    let limits = [("CUDA_MEM_LIMIT", "1m"), ("CUDA_DEVICE_SM_LIMIT", "50")];
    let mut workload = scripted(bed.gpushare(&["run", "--"]).envs(limits));
    for words in [
        &["quota", "set", "all", "4M"][..],
        &["set", "all", "cap=30%"],
    ] {
        bed.gpushare(words).said().done();
    }
    assert_eq!(workload.ask("alloc 3M"), "ok");
    let process = first_process(&bed);
    assert_eq!(process["devices"][0]["quota_source"], "operator");
    assert_eq!(
        (&process["cap_percent"], &process["share_source"]),
        (&json!(30), &json!("operator"))
    );
}

#[test]
fn what_another_tool_does_and_we_do_not_is_one_line_at_the_start_and_in_the_doctors_report() {
    let bed = Testbed::with_scenario("one-gpu");
    for (name, value, instead) in [
        (
            "CUDA_OVERSUBSCRIBE",
            "true",
            "gpushare policy set GPU overcommit=on",
        ),
        (
            "CUDA_MEM_RATIO_0",
            "2",
            "gpushare policy set GPU overcommit=on",
        ),
        ("ACTIVE_OOM_KILLER", "1", "GPUSHARE_ON_FULL"),
    ] {
        let mut command = bed.gpushare(&["run", "--"]);
        command.arg(artifact("gpushare-workload")).arg("--script");
        command.env(name, value).stdin(std::process::Stdio::null());
        let said = command.said();
        let lines: Vec<&str> = said
            .err
            .lines()
            .filter(|line| line.contains(name))
            .collect();
        assert_eq!(lines.len(), 1, "{}", said.err);
        assert!(lines[0].contains(instead), "{}", said.err);
        let mut doctor = bed.gpushare(&["doctor"]);
        let said = doctor.env(name, value).said();
        assert!(
            said.out.contains(&format!("{name}={value}: ")),
            "{}",
            said.out
        );
    }
}

#[test]
fn pflog_is_shown_as_a_trace_and_its_logs_are_written() {
    let bed = Testbed::with_scenario("one-gpu");
    let dir = bed.dir().join("profile");
    std::fs::create_dir(&dir).expect("ours");
    let mut workload = scripted(bed.gpushare(&["run", "--"]).env("PFLOG", &dir));
    assert!(workload.ask("launch 10 3").starts_with("ok"));
    eventually("it is shown", LIMIT, || {
        first_process(&bed)["trace"].is_object()
    });
    workload.close_input();
    workload.wait_output();
    let metrics = std::fs::read_to_string(dir.join("metrics.log")).expect("written");
    assert!(
        metrics.contains("name:cuLaunchKernel\ncount:3\n"),
        "{metrics}"
    );
}
