//! `gpushare kill`: the processes that get the signal, those that do not, and the audit log.

mod cli_support;

use std::time::Duration;

use cli_support::{World, gpushare, scripted};
use gpushare_testbed::{Testbed, Watched, eventually};
use serde_json::Value;

fn start(bed: &Testbed, name: &str) -> Watched {
    scripted(&mut bed.gpushare(&["run", "--name", name, "--"]))
}

fn edits(bed: &Testbed) -> Value {
    gpushare(bed, &["audit", "--json"]).done().json()["edits"].clone()
}

#[test]
fn the_named_process_ends_and_no_other_and_the_log_says_why() {
    let bed = Testbed::with_scenario("one-gpu");
    let (mut wanted, mut other) = (start(&bed, "left-over"), start(&bed, "other"));
    let words = ["kill", "name:left-over", "--reason", "nobody uses it"];
    let shown = gpushare(&bed, &[&words[..], &["--dry-run"]].concat()).done();
    assert!(shown.out.contains("would be sent"), "{shown:?}");
    assert!(
        wanted.ask("alloc 1M").starts_with("ok"),
        "a dry run sends nothing"
    );
    let said = gpushare(&bed, &words).done();
    assert!(said.out.contains("SIGTERM was sent to"), "{said:?}");
    eventually("it has ended", Duration::from_secs(60), || wanted.ended());
    assert!(other.ask("alloc 1M").starts_with("ok"));
    let edits = edits(&bed);
    let line = &edits[0];
    assert_eq!(line["new"], "signal TERM");
    assert_eq!(line["reason"], "nobody uses it");
    assert_eq!(line["change"], Value::Null);
    assert!(
        line["target"]
            .as_str()
            .is_some_and(|target| target.ends_with("left-over")),
        "{line}"
    );
    assert_eq!(edits.as_array().map(Vec::len), Some(1));
    gpushare(&bed, &["undo"]).refused(1, &["no edit to undo"]);
}

#[test]
fn a_stopped_process_gets_the_signal_and_the_command_that_continues_it_is_given() {
    let bed = Testbed::with_scenario("one-gpu");
    let wanted = start(&bed, "stopped");
    wanted.stop();
    let said = gpushare(&bed, &["kill", "name:stopped"]).done();
    assert!(said.out.contains("SIGTERM was sent to"), "{said:?}");
    let pid = wanted.pid().to_string();
    let command = format!("only once it continues: gpushare kill {pid} --signal CONT");
    assert!(said.err.contains(&command), "{said:?}");
    let said = gpushare(&bed, &["kill", &pid, "--signal", "CONT"]).done();
    assert!(!said.err.contains("is stopped"), "{said:?}");
    eventually("it has ended", Duration::from_secs(60), || wanted.ended());
}

#[test]
fn a_signal_or_target_that_is_none_is_refused() {
    let world = World::new();
    let _train = world.actor("train");
    let kill = |words: &[&str]| world.gpushare(&[&["kill"], words].concat());
    kill(&["all", "--signal", "SEGV"]).refused(2, &["SEGV", "TERM, INT, KILL"]);
    kill(&["name:other"]).refused(5, &["no process is named other"]);
    kill(&["train"]).refused(2, &["name:train"]);
    kill(&["all", "--reason", "a\u{1b}[31m"]).refused(2, &["--reason"]);
    let said = kill(&["all", "-s", "sigcont", "--dry-run"]).done();
    assert!(said.out.starts_with("SIGCONT would be sent to"), "{said:?}");
}
