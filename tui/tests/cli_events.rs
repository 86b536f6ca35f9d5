//! `gpushare events`: the events as lines.

mod cli_support;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use cli_support::World;
use gpushare_testbed::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shm_layout::{Event, EventKind, clock};

const PATIENCE: Duration = Duration::from_secs(30);

/// A running `gpushare events --follow` and its output.
struct Follower {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Follower {
    fn of(world: &World) -> Self {
        let mut command = world.command(&["events", "--follow", "--json", "--last", "1"]);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program is built");
        let lines = child.stdout.take().map(BufReader::new);
        Self { child, lines }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        let lines = self.lines.as_mut().expect("not closed");
        lines.read_line(&mut line).expect("a whole line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    fn ended(&mut self) -> Option<i32> {
        let mut code = None;
        eventually("the follower ended", PATIENCE, || {
            code = self.child.try_wait().expect("our child");
            code.is_some()
        });
        code.and_then(|status| status.code())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn events_are_lines_with_the_time_the_process_and_the_dashboards_sentence() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    let state = train.registration.segments().state();
    state.publish(Event {
        device: gpu.device(),
        arg0: 3 << 30,
        arg1: 2 << 30,
        call: gpushare_abi::call_code("cuMemAlloc_v2"),
        ..Event::of(clock::now(), train.registration.slot(), EventKind::Denial)
    });

    let said = world.gpushare(&["events"]).done();
    let lines: Vec<&str> = said.out.lines().collect();
    let pid = std::process::id().to_string();
    assert!(lines[0].contains(" start "), "{said:?}");
    let denial = lines.last().expect("a line");
    let words: Vec<&str> = denial.split_whitespace().collect();
    assert_eq!(words[2..6], ["DENIED", &pid, "train", "GPU0"], "{said:?}");
    assert!(
        denial.ends_with("3.0G over its quota of 2.0G by cuMemAlloc_v2"),
        "{said:?}"
    );

    let last = world.gpushare(&["events", "--last", "1", "--json"]).done();
    assert_eq!(last.out.lines().count(), 1);
    let event = last.json();
    let keys: Vec<&String> = event.as_object().expect("an object").keys().collect();
    let wanted =
        "asked_bytes call gpu kind name pid quota_bytes schema_version sentence seq unix_ms";
    assert_eq!(keys, wanted.split(' ').collect::<Vec<_>>());
    assert_eq!(event["kind"], "denial");
    assert_eq!(event["call"], "cuMemAlloc_v2");
    assert_eq!(event["asked_bytes"], 3_u64 << 30);
    assert_eq!(event["pid"], std::process::id());
}

#[test]
fn without_events_it_says_so_and_nothing_else() {
    let world = World::new();
    let said = world.gpushare(&["events"]).done();
    assert_eq!(said.out, "");
    assert!(said.err.starts_with("gpushare: "), "{said:?}");
}

#[test]
fn a_follower_says_what_happens_and_ends_well_at_a_signal() {
    let world = World::new();
    let train = world.actor("train");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut follower = Follower::of(&world);
        assert!(follower.line()["seq"].is_u64());
        world.gpushare(&["policy", "set", "all", "always"]).done();
        assert_eq!(follower.line()["kind"], "edit");
        let pid = Pid::from_child(&follower.child);
        kill_process(pid, signal).expect("our child");
        assert_eq!(follower.ended(), Some(0));
    }
    drop(train);
}

#[test]
fn a_follower_ends_when_its_reader_is_gone_though_nothing_happens() {
    let world = World::new();
    let train = world.actor("train");
    let mut follower = Follower::of(&world);
    assert_eq!(follower.line()["kind"], "register");
    follower.lines = None;
    assert_eq!(follower.ended(), Some(0));
    drop(train);
}
