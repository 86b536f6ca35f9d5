//! MPS on the simulated GPU: its clients, NVML's lists, and the effect of one client's fault on the others.

use std::process::Command;
use std::time::Duration;

use gpushare_testbed::{Testbed, Watched, artifact, eventually};
use serde_json::{Value, json};

use crate::cli_support::{Run as _, Said, gpushare};

const LIMIT: Duration = Duration::from_secs(60);

/// A simulated machine with a running MPS until the test ends.
struct Machine {
    bed: Testbed,
}

impl Machine {
    fn new() -> Self {
        artifact("gpushare-sim-mps");
        let bed = Testbed::with_scenario("one-gpu");
        let machine = Self { bed };
        machine.gpushare(&["mps", "start", "--sim"]).done();
        machine
    }

    fn gpushare(&self, args: &[&str]) -> Said {
        gpushare(&self.bed, args)
    }

    fn command(&self, args: &[&str]) -> Command {
        self.bed.gpushare(args)
    }

    /// Starts a scripted workload.
    fn puppet(&self, name: &str, options: &[&str]) -> Watched {
        let workload = artifact("gpushare-workload");
        let workload = workload.to_str().expect("a plain path");
        let name = format!("--name={name}");
        let all = [&["run", &name], options, &["--", workload, "--script"]].concat();
        let mut puppet = Watched::spawn(&mut self.command(&all));
        assert_eq!(puppet.line(), format!("ready {}", puppet.pid()));
        puppet
    }

    /// Returns the dashboard's data as JSON.
    fn look(&self) -> Value {
        let mut top = self.bed.sim_only(artifact("gpushare-top"));
        top.args(["--once", "--format", "json"])
            .said()
            .done()
            .json()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.command(&["mps", "stop", "--force"]).output();
    }
}

fn process(document: &Value, pid: u32) -> Value {
    let all = document["processes"].as_array().expect("a list");
    let found = all.iter().find(|process| process["pid"] == pid);
    found.cloned().unwrap_or(Value::Null)
}

fn alert<'a>(document: &'a Value, kind: &str) -> Option<&'a str> {
    let all = document["alerts"].as_array().expect("a list");
    let found = all.iter().find(|alert| alert["kind"] == kind);
    found.and_then(|alert| alert["sentence"].as_str())
}

#[test]
fn every_tool_says_who_is_under_mps_and_takes_the_server_for_no_stranger() {
    let machine = Machine::new();
    let mut train = machine.puppet("train", &[]);
    let mut apart = machine.puppet("apart", &["--no-mps"]);
    for puppet in [&mut train, &mut apart] {
        assert_eq!(puppet.ask("alloc 64M"), "ok");
        assert!(puppet.ask("spin 1000 20").starts_with("ok "));
    }
    let status = machine.gpushare(&["mps", "status", "--json"]).done().json();
    let client =
        json!([{"pid": train.pid(), "name": "train", "managed": true, "submission_ns": null}]);
    assert_eq!(status["servers"][0]["clients"], client);
    assert_eq!(status["servers"][0]["status"], "ACTIVE");
    let server = status["servers"][0]["pid"].as_u64().expect("a pid") as u32;

    let ps = machine.gpushare(&["ps", "--json"]).done().json();
    let mps = |pid| process(&ps, pid)["devices"][0]["mps"].clone();
    assert_eq!(mps(train.pid()), true, "{ps}");
    assert_eq!(mps(apart.pid()), false, "{ps}");
    assert_eq!(process(&ps, server)["state"], "server", "{ps}");
    assert_eq!(process(&ps, server)["devices"][0]["used_bytes"], 0);
    let table = machine.gpushare(&["ps"]).done().out;
    let row = |name: &str| table.lines().find(|line| line.contains(name));
    assert!(
        row("train").is_some_and(|row| row.ends_with(" mps")),
        "{table}"
    );
    assert!(
        row("apart").is_some_and(|row| !row.ends_with(" mps")),
        "{table}"
    );

    let seen = machine.look();
    assert_eq!(seen["devices"][0]["mps"], true);
    assert_eq!(alert(&seen, "unmanaged"), None, "{seen}");
    let mut top = machine.bed.sim_only(artifact("gpushare-top"));
    let screen = top.arg("--once").said().done().out;
    let header = screen.lines().next().expect("a header");
    assert!(
        header.contains("MPS") && !header.contains("without shim"),
        "{header}"
    );

    let picked = machine.gpushare(&["pick", "--json"]).done().json();
    assert_eq!(picked["devices"][0]["mps"], true);
    let doctor = machine.gpushare(&["doctor", "--json"]).json();
    let found = crate::support::finding(&doctor)["found"].clone();
    let under = format!("under it are {} train", train.pid());
    assert!(
        found.as_str().is_some_and(|text| text.contains(&under)),
        "{found}"
    );
}

#[test]
fn a_fault_of_the_only_client_with_work_is_laid_at_its_door_and_ends_the_others() {
    let machine = Machine::new();
    let mut serve = machine.puppet("serve", &[]);
    let mut train = machine.puppet("train", &[]);
    let mut apart = machine.puppet("apart", &["--no-mps"]);
    assert_eq!(serve.ask("launch 100"), "ok");
    assert!(serve.ask("sync").starts_with("ok"));
    // At the time of the fault it has had no work on the device for a while.
    assert_eq!(serve.ask("sleep 2500"), "ok");
    assert_eq!(train.ask("fault"), "ok");
    assert!(train.ask("sync").starts_with("error 700 "));
    assert!(
        serve.ask("sync").starts_with("error 700 "),
        "the same error as the one that did it"
    );
    assert!(apart.ask("spin 100 1").starts_with("ok "));

    let seen = machine.look();
    let said = alert(&seen, "crash").expect("an alert").to_owned();
    let train_pid = train.pid();
    let did = format!("a kernel of {train_pid} train failed on GPU0");
    assert!(said.starts_with(&did), "{said}");
    let also = format!("ended the contexts of {} serve too", serve.pid());
    assert!(said.contains(&also), "{said}");
    assert_eq!(process(&seen, serve.pid())["state"], "lost");
    assert_eq!(
        process(&seen, serve.pid())["devices"][0]["lost"]["code"],
        700
    );
    assert_eq!(
        process(&seen, apart.pid())["devices"][0]["lost"],
        Value::Null
    );

    // The process that caused the fault usually ends first; the others still run and still show the alert.
    train.say("quit");
    drop(train.wait_output());
    let said = alert(&machine.look(), "crash")
        .expect("an alert")
        .to_owned();
    assert!(said.starts_with(&did), "{said}");
    let remedy = format!("(kill {})", serve.pid());
    assert!(said.contains(&remedy), "{said}");
    let workload = artifact("gpushare-workload");
    let workload = workload.to_str().expect("a plain path");
    let newcomer = machine.gpushare(&["run", "--", workload, "--seconds=0"]);
    assert!(
        newcomer.err.contains("MPS server is not ready"),
        "{newcomer:?}"
    );

    let status = machine.gpushare(&["mps", "status"]).done().out;
    assert!(status.contains("takes no new client"), "{status}");

    serve.say("quit");
    drop(serve.wait_output());
    let mut again = machine.puppet("again", &[]);
    assert!(again.ask("spin 100 1").starts_with("ok "));
}

#[test]
fn without_mps_a_process_that_lost_its_context_is_shown_and_no_other() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut one = Watched::spawn(&mut bed.workload(&["--script"]));
    let mut other = Watched::spawn(&mut bed.workload(&["--script"]));
    for puppet in [&mut one, &mut other] {
        assert!(puppet.line().starts_with("ready"));
    }
    assert_eq!(one.ask("fault"), "ok");
    assert!(one.ask("sync").starts_with("error 700 "));
    assert!(other.ask("spin 100 1").starts_with("ok "));
    let machine = Machine { bed };
    let seen = machine.look();
    let said = alert(&seen, "crash").expect("an alert");
    assert!(
        said.contains(&format!("{} gpushare-workload lost its context", one.pid())),
        "{said}"
    );
    assert!(said.contains("illegal memory access"), "{said}");
    assert!(!said.contains("MPS"), "{said}");
    one.say("quit");
    drop(one.wait_output());
    eventually("the event is in the log", LIMIT, || {
        let events = machine.gpushare(&["events"]).done().out;
        events.contains("CRASH") && events.contains("illegal memory access")
    });
    let doctor = machine.gpushare(&["doctor", "--json"]).json();
    assert!(
        !doctor.to_string().contains("lost their contexts"),
        "it has ended"
    );
}

#[test]
fn the_end_of_the_server_is_told_as_such() {
    let machine = Machine::new();
    let mut train = machine.puppet("train", &[]);
    assert!(train.ask("spin 100 1").starts_with("ok "));
    machine
        .gpushare(&["mps", "stop"])
        .refused(1, &["train", "--force"]);
    machine.gpushare(&["mps", "stop", "--force"]).done();
    assert!(train.ask("sync").starts_with("error 806 "));
    let said = alert(&machine.look(), "crash")
        .expect("an alert")
        .to_owned();
    let server = "the MPS server of GPU0 ended";
    assert!(said.starts_with(server), "{said}");
    let doctor = machine.gpushare(&["doctor", "--json"]).json();
    assert!(
        doctor.to_string().contains("lost their contexts"),
        "{doctor}"
    );
}
