//! `gpushare advise` over workloads on the simulated GPU.

mod cli_support;

use std::time::Duration;

use cli_support::{gpushare, processes};
use gpushare_testbed::{Testbed, Watched, artifact, eventually};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Starts a workload with these options of `run`.
fn job(bed: &Testbed, options: &[&str], arguments: &[&str]) -> Watched {
    let mut command = bed.gpushare(&[&["run"], options, &["--"]].concat());
    command
        .arg(artifact("gpushare-workload"))
        .args(arguments)
        .arg("--seconds=600");
    let job = Watched::spawn(&mut command);
    let pid = job.pid();
    eventually("it is at work", LIMIT, || {
        let own = processes(bed)
            .into_iter()
            .find(|process| process["pid"] == pid);
        own.is_some_and(|own| own["devices"][0]["launches"].as_u64() > Some(0))
    });
    job
}

fn advice(bed: &Testbed) -> Value {
    let document = gpushare(bed, &["advise", "--over", "2s", "--json"])
        .done()
        .json();
    let devices = document["devices"].as_array().expect("a list");
    assert_eq!(devices.len(), 1, "{document}");
    devices[0].clone()
}

/// Waits for the advice of this rule and returns it. On a busy machine a program may be idle for most of a window.
fn advised(bed: &Testbed, rule: &str) -> Value {
    let mut found = Value::Null;
    eventually("it is advised", LIMIT, || {
        found = advice(bed);
        found["rule"] == rule
    });
    found
}

/// Applies advice as soon as there is some, and returns the output.
fn applied(bed: &Testbed, more: &[&str]) -> String {
    let mut said = String::new();
    eventually("it is applied", LIMIT, || {
        let words = [&["advise", "--over", "1s", "--apply"], more].concat();
        said = gpushare(bed, &words).done().out;
        said.contains("(was: ")
    });
    said
}

const BUSY: [&str; 2] = ["--kernel-us=2000", "--burst=4"];

#[test]
fn two_equal_jobs_without_a_policy_are_advised_to_take_turns() {
    let bed = Testbed::with_scenario("one-gpu");
    assert!(
        gpushare(&bed, &["advise"])
            .done()
            .out
            .contains("nothing to advise")
    );
    let _one = job(&bed, &["--name", "a"], &BUSY);
    let alone = advice(&bed);
    assert_eq!(alone["rule"], Value::Null);
    assert!(
        alone["sentence"]
            .as_str()
            .is_some_and(|said| said.contains("a runs alone")),
        "{alone}"
    );
    assert_eq!(alone["commands"], serde_json::json!([]));

    let _two = job(&bed, &["--name", "b"], &BUSY);
    let found = advised(&bed, "equals");
    assert_eq!(found["policy"], "off", "{found}");
    let command = "gpushare policy set 0 timeslice=5ms order=fair";
    assert_eq!(found["commands"], serde_json::json!([command]));
    let cost = found["cost"].as_str().expect("a cost");
    assert!(cost.ends_with("(not measured here)"), "{cost}");

    let policy =
        || gpushare(&bed, &["policy", "show", "--json"]).done().json()["policies"][0].clone();
    let said = applied(&bed, &["--for", "1500ms"]);
    assert!(said.contains("shares by weight for "), "{said}");
    eventually("it reverts by itself", LIMIT, || {
        policy()["policy"] == "off"
    });
    let launches = || {
        let ps = gpushare(&bed, &["ps", "--json"]).done().json();
        let lock = |at: usize| ps["processes"][at]["devices"][0]["lock"]["acquisitions"].as_u64();
        (lock(0), lock(1))
    };
    eventually("the programs follow, and take no more turns", LIMIT, || {
        let before = launches();
        std::thread::sleep(Duration::from_millis(200));
        launches() == before
    });

    let said = applied(&bed, &[]);
    for words in [
        "2 equal jobs",
        "measured elsewhere: H200",
        command,
        "(was: the policy of all GPUs)",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(policy()["policy"], "timeslice=5ms");
    let found = advice(&bed);
    assert_eq!(
        found["rule"],
        Value::Null,
        "what was advised is in force: {found}"
    );
    let audit = gpushare(&bed, &["audit", "--json"]).done().json();
    assert_eq!(audit["edits"][0]["reason"], "gpushare advise: equals");
    gpushare(&bed, &["undo"]).done();
    assert_eq!(policy()["policy"], "off");
    let found = advised(&bed, "equals");
    assert_eq!(found["commands"], serde_json::json!([]), "it was undone");
    let said = found["sentence"].as_str().expect("a sentence");
    assert!(
        said.ends_with("timeslice=5ms order=fair was tried and undone"),
        "{said}"
    );
    let said = gpushare(&bed, &["advise", "--for", "1h"]);
    assert_eq!(said.code, 2, "{said:?}");
}

#[test]
fn a_small_job_beside_big_ones_in_turns_is_advised_to_go_first() {
    let bed = Testbed::with_scenario("one-gpu");
    gpushare(
        &bed,
        &["policy", "set", "all", "timeslice=50ms", "order=fair"],
    )
    .done();
    let small = ["--kernel-us=500", "--gap-us=5000"];
    let _jobs = [
        job(&bed, &["--name", "serve"], &small),
        job(&bed, &["--name", "one"], &BUSY),
        job(&bed, &["--name", "two"], &BUSY),
    ];
    let found = advised(&bed, "small_waits");
    assert_eq!(found["advised"], "overlap order=priority");
    let commands = found["commands"].as_array().expect("a list");
    assert_eq!(commands.len(), 2, "{found}");
    assert!(
        commands[0]
            .as_str()
            .is_some_and(|text| text.ends_with(" priority=5")),
        "{found}"
    );
    eventually(
        "the ring tells enough, and nothing is watched",
        LIMIT,
        || {
            let said = gpushare(&bed, &["advise"]).done();
            said.err.is_empty() && said.out.contains("serve used")
        },
    );
    gpushare(&bed, &["advise", "--apply"]).done();
    let ps = gpushare(&bed, &["ps", "--json"]).done().json();
    let processes = ps["processes"].as_array().expect("a list");
    let serve = processes
        .iter()
        .find(|process| process["name"] == "serve")
        .expect("it runs");
    assert_eq!(serve["priority"], 5);
    let found = advice(&bed);
    assert_eq!(
        (&found["rule"], &found["policy"]),
        (&Value::Null, &"overlap order=priority".into())
    );
}

#[test]
fn a_priority_that_no_policy_acts_on_is_pointed_out() {
    let bed = Testbed::with_scenario("one-gpu");
    let _jobs = [
        job(
            &bed,
            &["--name", "serve", "--priority", "5"],
            &["--gap-us=5000"],
        ),
        job(&bed, &["--name", "train"], &BUSY),
    ];
    let found = advice(&bed);
    assert_eq!(
        (&found["rule"], &found["advised"]),
        (&"priorities".into(), &"overlap order=priority".into())
    );
}

#[test]
fn a_wrong_time_is_refused() {
    let bed = Testbed::new();
    gpushare(&bed, &["advise", "--over", "5 apples"]).refused(2, &["--over: "]);
    gpushare(&bed, &["advise", "--over", "1ms"]).refused(2, &["--over: 1ms is out of range"]);
}
