//! Programs that wait for memory, as an operator sees and controls them.

use super::*;

/// Starts a workload in a group of 64 MiB.
fn member(bed: &Testbed, name: &str) -> Watched {
    start(
        bed,
        &["--name", name, "--group", "team", "--on-full", "wait"],
    )
}

/// Has the workload `waiting` allocate, and returns when it waits for memory.
fn waits_for(bed: &Testbed, waiting: &mut Watched, command: &str) {
    waiting.say(command);
    eventually("it waits", LIMIT, || {
        let answer = waiting.line_within(Duration::ZERO);
        assert_eq!(answer, None, "it does not wait; {}", waiting.stderr());
        !on_first_device(bed, "waiting")["memory_wait"].is_null()
    });
}

#[test]
fn who_waits_for_memory_is_shown_with_who_holds_it_and_told_to_give_up() {
    let bed = Testbed::new();
    gpushare(&bed, &["group", "create", "team", "memory=64M"]).done();
    let (mut full, mut waiting) = (member(&bed, "full"), member(&bed, "waiting"));
    assert_eq!(full.ask("alloc 60M"), "ok");
    waits_for(&bed, &mut waiting, "alloc 32M");
    let said = gpushare(&bed, &["ps", "--json"]).done().json();
    let processes = said["processes"].as_array().expect("a list");
    let process = processes
        .iter()
        .find(|process| process["name"] == "waiting");
    let process = process.expect("it is there");
    assert_eq!(
        (&process["state"], &process["on_full"]),
        (&"memwait".into(), &"wait".into())
    );
    let wait = &process["devices"][0]["memory_wait"];
    assert_eq!(
        (&wait["bytes"], &wait["limit"]),
        (&(32 * MIB).into(), &"group".into())
    );
    assert_eq!(wait["left_ns"], Value::Null);
    assert_eq!(wait["held_by"][0]["name"], "full");
    assert_eq!(wait["held_by"][0]["used_bytes"], 60 * MIB);

    let said = gpushare(&bed, &["ps"]).done();
    assert!(said.out.contains("memwait"), "{said:?}");
    let who = format!("{} full (60M)", full.pid());
    assert!(said.err.contains(&who), "{said:?}");
    assert!(said.err.contains("its group's quota is full"), "{said:?}");

    let edit = ["set", "name:waiting", "on-full=fail"];
    gpushare(&bed, &edit).done();
    assert!(waiting.line().starts_with("error 2 "));
    gpushare(&bed, &["undo"]).done();
    waits_for(&bed, &mut waiting, "alloc 32M");
    assert!(full.ask("free").starts_with("ok"));
    assert_eq!(waiting.line(), "ok");
    let device = on_first_device(&bed, "waiting");
    assert_eq!(
        (&device["memory_waits"], &device["memory_gave_up"]),
        (&2.into(), &1.into())
    );
    let events = gpushare(&bed, &["events", "--all", "-n", "50"]).done().out;
    assert!(
        events.contains("waits for 32M: its group's quota is full"),
        "{events}"
    );
    assert!(events.contains("gave up waiting for memory"), "{events}");
    assert!(events.contains("has its memory after"), "{events}");
}

#[test]
fn an_overcommitted_device_is_filled_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    let scenario = dir.path().join("card.toml");
    std::fs::write(&scenario, "[[device]]\nmemory = \"1GiB\"").expect("ours");
    let bed = Testbed::with_scenario(scenario.to_str().expect("a path in UTF-8"));
    let mut one = start(&bed, &["--name", "one"]);
    assert_eq!(one.ask("alloc 600M"), "ok");
    gpushare(&bed, &["policy", "set", "all", "overcommit=on"]).done();
    let shown = gpushare(&bed, &["policy", "show", "--json"]).done().json();
    assert_eq!(shown["policies"][0]["overcommit"], true);
    gpushare(&bed, &["pause", "name:one"]).done();
    let mut two = start(&bed, &["--name", "two"]);
    assert_eq!(two.ask("alloc 600M"), "ok");
    let device = on_first_device(&bed, "one");
    assert_eq!(device["used_bytes"], 0);
    assert_eq!(device["evicted_bytes"], 600 * MIB);
    gpushare(&bed, &["resume", "name:one"]).done();
    gpushare(&bed, &["pause", "name:two"]).done();
    assert_eq!(one.ask("alloc 1M"), "ok");
    assert_eq!(on_first_device(&bed, "two")["evicted_bytes"], 600 * MIB);
    gpushare(&bed, &["policy", "set", "all", "overcommit=off"]).done();
    let shown = gpushare(&bed, &["policy", "show", "--json"]).done().json();
    assert_eq!(shown["policies"][0]["overcommit"], false);
    let wrong = gpushare(&bed, &["policy", "set", "all", "overcommit=maybe"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
}

#[test]
fn a_time_to_wait_that_makes_no_sense_is_refused_before_the_start() {
    let bed = Testbed::new();
    for value in ["later", "wait=5", "wait=0"] {
        let said = gpushare(&bed, &["run", "--on-full", value, "--", "true"]);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains("--on-full"), "{said:?}");
    }
}
