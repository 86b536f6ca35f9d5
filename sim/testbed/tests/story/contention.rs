//! Two programs that compete for one GPU, the policy that makes them take turns, and the death of one.

use std::time::{Duration, Instant};

use gpushare_testbed::{Watched, eventually};
use serde_json::Value;

use crate::stage::Stage;

const LIMIT: Duration = Duration::from_secs(60);

fn number(device: &Value, field: &str) -> u64 {
    device["lock"][field].as_u64().unwrap()
}

#[test]
fn a_timeslice_makes_two_spinning_processes_alternate_until_it_is_taken_off() {
    let stage = Stage::new();
    let mut pair = [
        stage.puppet(&["--name", "one"]),
        stage.puppet(&["--name", "two"]),
    ];
    for puppet in &mut pair {
        puppet.say("spin 1000 60000");
    }
    let both = |wanted: &dyn Fn(&Value) -> bool| {
        let shown = stage.ps();
        ["one", "two"].iter().all(|name| {
            let process = shown.get(*name);
            process.is_some_and(|process| wanted(&process["devices"][0]))
        })
    };
    eventually("both have launched", LIMIT, || {
        both(&|device| device["launches"].as_u64() > Some(0))
    });
    assert!(
        both(&|device| number(device, "acquisitions") == 0),
        "a fresh segment changes nothing"
    );

    let said = stage.gpushare(&["policy", "set", "all", "timeslice=5ms", "-v"]);
    assert!(said.contains("applied by all 2 processes"), "{said}");
    eventually("both have held and waited, turn by turn", LIMIT, || {
        both(&|device| {
            number(device, "acquisitions") >= 10
                && number(device, "held_ns") > 0
                && number(device, "waited_ns") > 0
                && device["lock"]["policy"] == "timeslice=5ms"
        })
    });

    let said = stage.gpushare(&["policy", "set", "all", "off", "-v"]);
    assert!(said.contains("applied by all 2 processes"), "{said}");
    eventually("no process holds or waits", LIMIT, || {
        both(&|device| device["lock"]["state"] == "idle")
    });
    let turns = |name| number(&stage.on_device(name), "acquisitions");
    let launches = |name| stage.on_device(name)["launches"].as_u64();
    let (turns_before, launches_before) = (turns("one"), launches("one"));
    eventually("it goes on", LIMIT, || launches("one") > launches_before);
    assert_eq!(turns("one"), turns_before, "without a turn");
}

#[test]
fn the_next_runs_at_once_when_the_holder_is_killed_and_what_it_held_comes_back() {
    let stage = Stage::new();
    // No slice, idle release or deadline ends this turn within the test.
    let policy = ["timeslice=60s", "idle=60s", "max-hold=60s"];
    stage.gpushare(&[["policy", "set", "all"].as_slice(), &policy].concat());
    let mut holder = stage.puppet(&["--name", "holder"]);
    let mut waiter = stage.puppet(&["--name", "waiter"]);
    assert_eq!(holder.ask("alloc 512M"), "ok");
    assert_eq!(holder.ask("launch 1000"), "ok");
    waiter.say("launch 1000");
    let state = |name| stage.on_device(name)["lock"]["state"].clone();
    eventually("one holds, one waits", LIMIT, || {
        state("holder") == "hold" && state("waiter") == "wait"
    });
    let waited_in_vain = waiter.line_within(Duration::from_millis(200));
    assert_eq!(waited_in_vain, None, "the holder keeps it");

    let holder_pid = holder.pid();
    holder.signal(rustix::process::Signal::KILL);
    let killed = Instant::now();
    assert_eq!(waiter.line(), "ok");
    let took = killed.elapsed();
    // Only the death can explain such a short wait; on an idle machine it is well under 1 ms.
    assert!(took < Duration::from_secs(10), "{took:?}");

    eventually("its bytes come back and its slot is free", LIMIT, || {
        stage.held(holder_pid) == 0 && !stage.ps().contains_key("holder")
    });
    let mut heir = stage.puppet(&["--name", "heir"]);
    assert_eq!(heir.ask("alloc 512M"), "ok");
    assert_eq!(stage.ps().len(), 2);
    end(waiter);
}

#[test]
fn a_program_that_never_touches_the_gpu_leaves_no_trace() {
    let stage = Stage::new();
    let output = Watched::spawn(stage.run(&[], "echo").arg("untouched")).wait_output();
    assert_eq!(output.stdout, b"untouched\n");
    assert_eq!(output.stderr, b"");
    stage.gpushare(&["init"]);
    assert_eq!(stage.ps().len(), 0);
}

fn end(mut puppet: Watched) {
    puppet.say("quit");
    puppet.succeed();
}
