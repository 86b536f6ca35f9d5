//! `gpushare tune` over workloads on the simulated GPU.

mod cli_support;

use std::process::{Command, Stdio};
use std::time::Duration;

use cli_support::Said;
use gpushare_testbed::{Testbed, Watched, artifact, eventually};
use rustix::process::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

fn command(bed: &Testbed, args: &[&str]) -> Command {
    let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    command
        .args(args)
        .env("GPUSHARE_LIB", artifact("libgpushare.so"));
    command
}

fn gpushare(bed: &Testbed, args: &[&str]) -> Said {
    command(bed, args).output().expect("it is built").into()
}

fn processes(bed: &Testbed) -> Vec<Value> {
    let ps = gpushare(bed, &["ps", "--json"]).done().json();
    ps["processes"].as_array().expect("a list").clone()
}

/// Starts a workload and waits until its keeper has counted its work.
fn job(bed: &Testbed, name: &str, priority: &str, rhythm: &[&str]) -> Watched {
    let run = ["run", "--name", name, "--priority", priority, "--"];
    let mut command = command(bed, &run);
    command
        .arg(artifact("gpushare-workload"))
        .args(rhythm)
        .arg("--seconds=600");
    let job = Watched::spawn(&mut command);
    eventually("it is at work", LIMIT, || {
        let all = processes(bed);
        let own = all.iter().find(|process| process["name"] == name);
        own.is_some_and(|own| own["devices"][0]["lock"]["step_p99_us"].is_number())
    });
    job
}

/// An urgent server whose requests take 10 ms alone, and three batch jobs that fill the device.
fn mix(bed: &Testbed) -> [Watched; 4] {
    let flat_out = ["--kernel-us=500", "--burst=200"];
    [
        job(
            bed,
            "serve",
            "5",
            &["--kernel-us=1000", "--burst=10", "--gap-us=5000"],
        ),
        job(bed, "batch", "0", &flat_out),
        job(bed, "night", "0", &flat_out),
        job(bed, "sweep", "0", &flat_out),
    ]
}

fn policy(bed: &Testbed) -> Value {
    gpushare(bed, &["policy", "show", "--json"]).done().json()["policies"][0].clone()
}

#[test]
fn an_urgent_job_beside_flat_out_ones_gets_a_policy_by_priority_and_undo_takes_it_back() {
    let bed = Testbed::with_scenario("one-gpu");
    let why = gpushare(&bed, &["tune"]);
    why.refused(1, &["nothing to try"]);
    let _jobs = mix(&bed);

    let dry = gpushare(&bed, &["tune", "--dry-run", "--rounds", "2"])
        .done()
        .out;
    assert!(dry.contains("7 policies, 2 times each"), "{dry}");
    assert!(dry.contains("the shortest p99 of serve"), "{dry}");
    assert!(
        dry.contains("  off (now)\n  overlap order=priority\n"),
        "{dry}"
    );
    gpushare(&bed, &["tune", "--aim", "p99:nobody"]).refused(1, &["no job of that target"]);

    // By its rate, which is three times as high: one late request makes the p99 of a second on a busy machine.
    let by_rate = [
        "tune",
        "--rounds=2",
        "--trial=1s",
        "--aim=rate:serve",
        "--json",
    ];
    let found = gpushare(&bed, &by_rate).done().json();
    let chosen = found["chosen"].as_str().expect("a policy");
    assert!(chosen.ends_with("order=priority"), "{found:#}");
    assert_eq!(found["applied"], true);
    assert_eq!(policy(&bed)["order"], "priority");
    assert_eq!(policy(&bed)["reverts_in_ns"], Value::Null, "it stays");
    let under = |words: &str| {
        let mut policies = found["policies"].as_array().expect("a list").iter();
        let line = policies
            .find(|line| line["policy"] == words)
            .expect("it was tried");
        line["jobs"][0].clone()
    };
    assert_eq!(under("off")["launches_factor"], 1.0);
    let factor = under(chosen)["launches_factor"].as_f64();
    assert!(factor.expect("it launches") > 1.0, "{found:#}");
    assert!(under(chosen)["step_p99_us"].is_number(), "{found:#}");

    // One undo takes the search back, whose trials are no edits of their own.
    gpushare(&bed, &["undo"]).done();
    assert_eq!(policy(&bed)["policy"], "off");
    gpushare(&bed, &["undo"]).refused(1, &["no edit to undo"]);
    let advised = gpushare(&bed, &["advise", "--over=1s", "--json"])
        .done()
        .json();
    let advised = &advised["devices"][0];
    let sentence = advised["sentence"].as_str().expect("advice");
    assert_eq!(advised["rule"], "priorities", "{advised}");
    assert!(!sentence.contains("not measured here"), "{sentence}");
    let again = gpushare(&bed, &["tune", "--rounds=1", "--trial=500ms", "--restore"])
        .done()
        .out;
    assert!(
        again.contains("POLICY") && again.contains("off is in force as before"),
        "{again}"
    );
    assert_eq!(policy(&bed)["policy"], "off");
    gpushare(&bed, &["undo"]).refused(1, &["no edit to undo"]);
    let audit = gpushare(&bed, &["audit", "--json"]).done().json();
    let newest = audit["edits"].as_array().expect("a list").iter();
    let number = newest.filter_map(|edit| edit["number"].as_u64()).max();
    let number = number.expect("a trial").to_string();
    gpushare(&bed, &["undo", &number]).refused(1, &["is a trial of gpushare tune"]);
    assert_eq!(policy(&bed)["policy"], "off");
}

#[test]
fn the_cards_own_slices_are_tried_where_they_obey() {
    let bed = Testbed::with_scenario("time-slices");
    let start = |name: &str| {
        let mut run = command(&bed, &["run", "--name", name, "--"]);
        run.arg(artifact("gpushare-workload")).args([
            "--kernel-us=500",
            "--burst=50",
            "--seconds=600",
        ]);
        // The kernel module of the simulated driver answers only there.
        Watched::spawn(run.env("LD_PRELOAD", artifact("libcuda.so")))
    };
    let _jobs = ["one", "other"].map(start);
    let plan = || gpushare(&bed, &["tune", "--dry-run"]).out;
    eventually("both have published that they obey", LIMIT, || {
        plan().contains("\n  hw-timeslice=8ms\n")
    });
    let found = gpushare(&bed, &["tune", "--rounds=1", "--trial=500ms", "--restore"]).done();
    assert!(found.out.contains("hw-timeslice=8ms"), "{}", found.out);
    assert_eq!(policy(&bed)["policy"], "off");
}

/// Starts a search and waits until a policy is on trial.
fn search(bed: &Testbed) -> std::process::Child {
    let mut tune = command(bed, &["tune", "--trial=2s"]);
    let tune = tune
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let tune = tune.spawn().expect("it is built");
    eventually("a policy is on trial", LIMIT, || {
        policy(bed)["policy"] != "off"
    });
    tune
}

fn signal(tune: &std::process::Child, signal: Signal) {
    let pid = rustix::process::Pid::from_child(tune);
    rustix::process::kill_process(pid, signal).expect("it runs");
}

fn failure(tune: std::process::Child) -> String {
    let ended = tune.wait_with_output().expect("its output");
    assert_eq!(ended.status.code(), Some(1));
    String::from_utf8(ended.stderr).expect("text")
}

#[test]
fn however_a_search_ends_no_trial_stays_in_force_and_another_operators_edit_does() {
    let bed = Testbed::with_scenario("one-gpu");
    let _jobs = mix(&bed);
    let is_back = || policy(&bed)["policy"] == "off";

    let mut killed = search(&bed);
    assert!(policy(&bed)["reverts_in_ns"].is_number());
    signal(&killed, Signal::KILL);
    killed.wait().expect("it has ended");
    eventually("the trial reverts by itself", LIMIT, is_back);

    let ended = search(&bed);
    signal(&ended, Signal::TERM);
    let said = failure(ended);
    assert!(
        said.contains("ended by SIGTERM; the settings of the start are back: off"),
        "{said}"
    );
    assert!(is_back());

    let disturbed = search(&bed);
    let late = job(&bed, "late", "0", &["--kernel-us=500", "--gap-us=50000"]);
    let said = failure(disturbed);
    assert!(said.contains("late started to use the GPU"), "{said}");
    assert!(is_back());
    late.signal(Signal::KILL);
    eventually("it has gone", LIMIT, || {
        processes(&bed).iter().all(|job| job["name"] != "late")
    });

    let edited = search(&bed);
    gpushare(&bed, &["policy", "set", "0", "timeslice=7ms"]).done();
    let said = failure(edited);
    assert!(
        said.contains("somebody else") && said.contains("left alone"),
        "{said}"
    );
    assert_eq!(policy(&bed)["policy"], "timeslice=7ms");
}
