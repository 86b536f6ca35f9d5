//! `gpushare events`: the events as lines.

mod cli_support;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use cli_support::World;
use gpushare_observe::source::live::Live;
use gpushare_testbed::eventually;
use gpushare_top::palette::{Depth, Palette};
use gpushare_top::screencast;
use gpushare_top::state::State;
use gpushare_top::view::Look;
use jiff::tz::TimeZone;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shm_layout::{Event, EventKind, Reason, clock};

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
fn turns_of_the_lock_hide_no_edit_unless_all_events_are_wanted() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    world.gpushare(&["policy", "set", "all", "always"]).done();
    let registration = &train.registration;
    let publish = |kind, arg0| {
        registration.segments().state().publish(Event {
            device: gpu.device(),
            arg0,
            ..Event::of(clock::now(), registration.slot(), kind)
        });
    };
    for _ in 0..50 {
        publish(EventKind::Wait, 0);
        publish(EventKind::Hold, 1_000_000);
        publish(EventKind::Release(Reason::Slice), 5_000_000);
    }
    publish(EventKind::Hold, 2_000_000_000);
    let kinds = |words: &[&str]| -> Vec<String> {
        let said = world.gpushare(&[&["events", "--json"], words].concat());
        let events = said.done().out;
        let kind = |line| serde_json::from_str::<Value>(line).expect("an object")["kind"].clone();
        let kinds = events.lines().map(kind);
        kinds
            .map(|kind| kind.as_str().expect("a word").to_owned())
            .collect()
    };
    let notable = kinds(&[]);
    assert!(notable.contains(&"edit".to_owned()), "{notable:?}");
    let holds = notable.iter().filter(|kind| *kind == "hold").count();
    assert_eq!(holds, 1, "only the one after a long wait: {notable:?}");
    assert!(!notable.contains(&"release".to_owned()), "{notable:?}");
    let all = kinds(&["--all", "-n", "4"]);
    assert_eq!(all, ["wait", "hold", "release", "hold"]);
}

#[test]
fn without_events_it_says_so_and_nothing_else() {
    let world = World::new();
    let said = world.gpushare(&["events"]).done();
    assert_eq!(said.out, "");
    assert!(said.err.starts_with("gpushare: "), "{said:?}");
}

#[test]
fn the_line_of_the_dashboards_cursor_says_the_same() {
    let world = World::new();
    let actors = ["train", "notebook"].map(|label| world.actor(label));
    let gpu = actors[0].enter(0);
    actors[1].enter(0);
    let publish = |actor: usize, at_ns: u64, kind: EventKind, arg0: u64| {
        let registration = &actors[actor].registration;
        registration.segments().state().publish(Event {
            device: gpu.device(),
            arg0,
            ..Event::of(at_ns, registration.slot(), kind)
        });
    };
    let now_ns = clock::now();
    let began_ns = |turn| now_ns - (6 - turn) * 501_000_000;
    for turn in 0..6_u64 {
        let (taker, at_ns) = ((turn % 2) as usize, began_ns(turn));
        publish(
            1 - taker,
            at_ns - 1_000,
            EventKind::Release(Reason::Slice),
            500_000_000,
        );
        publish(taker, at_ns, EventKind::Hold, (400 + turn) * 1_000_000);
    }

    let mut state = State::default();
    state.update(Live::new(world.dir(), false).look().expect("segments"));
    let look = Look {
        palette: Palette::new(Depth::Mono, false, false),
        zone: TimeZone::UTC,
    };
    let events = world.gpushare(&["events", "--all", "--json"]).done();
    let events = events
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"));
    let turns: Vec<Value> = events
        .filter(|event: &Value| event["kind"] == "hold")
        .collect();
    assert_eq!(turns.len(), 6);
    for (turn, number) in turns.into_iter().zip(0..) {
        let unix_ms = turn["unix_ms"].as_i64().expect("a time");
        state.look_at(began_ns(number));
        let frame = screencast::frame(&state, &look, (120, 40));
        let line = screencast::lines(&frame);
        let line = line.lines().last().expect("40 lines").trim_start();
        let (time, said) = line.split_once(' ').expect("a time");
        // Each program has its own view of what the wall clock was.
        let known = (-50..=50).any(|more| {
            let at = jiff::Timestamp::from_millisecond(unix_ms + more).expect("a time");
            at.strftime("%H:%M:%S%.3f").to_string() == time
        });
        assert!(known, "{line} for {turn}");
        let name = turn["name"].as_str().expect("a name");
        let other = if name == "train" { "notebook" } else { "train" };
        let waited_ms = turn["waited_ns"].as_u64().expect("a time") / 1_000_000;
        let words = format!("{name} takes over from ");
        assert!(said.contains(&words), "{line}");
        assert!(
            said.contains(&format!("{other} after {waited_ms}ms")),
            "{line}"
        );
    }
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
