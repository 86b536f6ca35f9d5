//! `gpushare ps`, for people and for programs.

mod cli_support;

use std::time::Duration;

use cli_support::{Run as _, World};
use gpushare_testbed::eventually;
use shm_layout::{LaunchLimits, MemoryLimit, Reason, SettingValues, Source, clock};

#[test]
fn the_json_has_the_promised_keys_and_the_ledger_to_the_byte() {
    let world = World::new();
    let limits = LaunchLimits {
        settings: SettingValues {
            weight: Some(200),
            cap: Some(30),
            ..SettingValues::default()
        },
        memory: [MemoryLimit::Bytes(8 << 30); 16],
        memory_source: Source::LaunchEnv,
        share_source: Source::LaunchEnv,
        group: Some("team-a".into()),
        ..LaunchLimits::default()
    };
    let train = world.actor_with("train", &limits);
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 6_000_000_001));
    assert!(!train.takes(gpu, 8 << 30));

    let said = world.gpushare(&["ps", "--json"]).done();
    let process = &said.json()["processes"][0];
    assert_eq!(process["pid"], std::process::id());
    assert_eq!(process["ns_pid"], std::process::id());
    assert_eq!(process["devices"][0]["used_bytes"], 6_000_000_001_u64);
    insta::assert_snapshot!("ps_json", without_this_machine(&said.out));
}

#[test]
fn percentiles_are_those_of_the_events_to_two_digits_and_never_above_the_longest() {
    let world = World::new();
    world.gpushare(&["policy", "set", "all", "always"]).done();
    let train = world.actor("train");
    let lock = train.registration.lock(train.enter(0));
    for hold in 1..=200_u64 {
        lock.acquire(&|| false);
        lock.release(Reason::Count, clock::now() + hold * hold * 12_345);
    }
    let said = world
        .gpushare(&["events", "--all", "-n", "1000", "--json"])
        .done();
    let events = said
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let mut held: Vec<u64> = events
        .filter_map(|event: serde_json::Value| event["held_ns"].as_u64())
        .collect();
    held.sort_unstable();
    assert_eq!(held.len(), 200);

    let said = world.gpushare(&["ps", "--json"]).done();
    let told = &said.json()["processes"][0]["devices"][0]["lock"];
    let us = |key: &str| told[key].as_f64().expect("a number");
    assert_eq!(us("hold_max_us"), held[199] as f64 / 1e3);
    for (key, truth) in [("hold_p50_us", held[99]), ("hold_p99_us", held[197])] {
        let truth = truth as f64 / 1e3;
        assert!(
            (us(key) / truth - 1.0).abs() < 0.1,
            "{key}: {} for {truth}",
            us(key)
        );
        assert!(us(key) <= us("hold_max_us"));
        let digits = format!("{}", us(key)).replace('.', "");
        assert!(
            digits.trim_end_matches('0').len() <= 2,
            "{key}: {}",
            us(key)
        );
    }
}

#[test]
fn the_json_says_who_was_waited_for_how_holds_ended_and_who_set_the_policy() {
    let world = World::new();
    let holder = world.actor("holder");
    let limits = LaunchLimits {
        policy_source: Source::Invalid,
        invalid: true,
        ..LaunchLimits::default()
    };
    let waiter = world.actor_with("waiter", &limits);
    let (held, wanted) = (holder.enter(0), waiter.enter(0));
    let lock_of = |at: usize| {
        let said = world.gpushare(&["ps", "--json"]).done();
        said.json()["processes"][at]["devices"][0]["lock"].clone()
    };
    assert_eq!(lock_of(1)["policy_source"], "invalid");
    world.gpushare(&["policy", "set", "all", "always"]).done();
    let lock = holder.registration.lock(held);
    lock.acquire(&|| false);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let lock = waiter.registration.lock(wanted);
            lock.acquire(&|| false);
            lock.release(Reason::Sync, clock::now());
        });
        eventually("the other waits", Duration::from_secs(30), || {
            lock_of(1)["state"] == "wait"
        });
        lock.release(Reason::Count, clock::now());
        waits.join().expect("it got the lock");
    });
    assert_eq!(lock_of(0)["ended_by"], serde_json::json!({"count": 1}));
    let lock = lock_of(1);
    assert_eq!(lock["policy_source"], "operator");
    assert_eq!(lock["ended_by"], serde_json::json!({"sync": 1}));
    assert_eq!(lock["waited_for"][0]["pid"], std::process::id());
    assert!(lock["waited_for"][0]["waited_ns"].as_u64() > Some(0));
}

/// Masks the values that differ between machines.
fn without_this_machine(text: &str) -> String {
    let varying = [
        "pid",
        "ns_pid",
        "user",
        "exe",
        "container",
        "unused_ns",
        "number",
        "cpu_percent",
        "busiest_percent",
        "waits_percent",
    ];
    let line = |line: &str| match line.split_once(": ") {
        Some((key, _)) if varying.contains(&key.trim().trim_matches('"')) => {
            format!("{key}: […],\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn an_empty_world_is_an_empty_list_and_not_a_failure() {
    let world = World::new();
    let said = world.gpushare(&["ps", "--json"]).done();
    assert_eq!(
        said.json(),
        serde_json::json!({"schema_version": 1, "refused": 0, "refused_last_unix_ms": null, "processes": []})
    );
    let said = world.gpushare(&["ps"]).done();
    assert!(said.out.starts_with("PID"), "{said:?}");
    assert!(said.err.contains("gpushare run"), "{said:?}");
}

#[test]
fn a_directory_that_is_not_there_is_an_empty_world_too() {
    let world = World::new();
    let absent = world.dir().join("absent");
    let output = world
        .command(&["ps", "--json"])
        .env("GPUSHARE_DIR", &absent)
        .output()
        .expect("built");
    assert!(output.status.success(), "{output:?}");
    assert!(!absent.exists(), "looking makes nothing");
}

#[test]
fn the_table_shows_who_holds_what_in_eighty_columns() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 6 << 30));
    let idle = world.actor("no-device-yet");
    let said = world.gpushare(&["ps"]).done();
    let line = said
        .out
        .lines()
        .find(|line| line.contains("train"))
        .expect("its line");
    assert!(line.contains("6.0G"), "{line}");
    assert!(
        said.out.lines().any(|line| line.contains("no-device-yet")),
        "{said:?}"
    );
    assert!(said.out.lines().all(|line| line.len() <= 80), "{said:?}");
    drop(idle);
}

#[test]
fn a_name_is_whole_where_no_terminal_has_to_fit_it() {
    let world = World::new();
    let name = "serve-llama-3-70b-instruct-of-team-blue-0";
    let serve = world.actor(name);
    serve.enter(0);
    let said = world.gpushare(&["ps"]).done();
    assert!(said.out.contains(name), "{said:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let world = World::new();
    let _actors: Vec<_> = (0..20)
        .map(|number| world.actor(&format!("actor-{number}")))
        .collect();
    let mut child = world
        .command(&["ps", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program is built");
    drop(child.stdout.take());
    assert!(child.wait().expect("our child").success());
}

#[test]
fn a_process_whose_name_is_cut_inside_a_character_keeps_its_row_and_its_pid() {
    let world = World::new();
    for name in [&b"trainer-f\xc3\xbcr-m\xc3"[..], b") R (\n)", b"\xff\xfe"] {
        std::fs::write("/proc/self/comm", name).expect("our own name");
        let train = world.actor("train");
        train.enter(0);
        let ps = world.gpushare(&["ps", "--json"]).done().json();
        let rows = ps["processes"].as_array().expect("a list");
        assert_eq!(rows.len(), 1, "{name:?}: {ps}");
        assert_eq!(rows[0]["pid"], std::process::id(), "{name:?}");
        drop(train);
    }
}

#[test]
fn a_filter_and_columns_choose_what_is_shown_and_a_wrong_one_is_named() {
    let world = World::new();
    let (train, other) = (world.actor("train"), world.actor("other"));
    assert!(train.takes(train.enter(0), 3 << 30));
    assert!(other.takes(other.enter(0), 1 << 20));
    let ps = |more: &[&str]| world.gpushare(&[&["ps"], more].concat());
    let said = ps(&["--filter", "used>1G", "--columns", "name,peak"]).done();
    assert_eq!(said.out, "NAME   PEAK\ntrain  3.0G\n");
    let said = ps(&["--filter", "name~oth", "--json"]).done();
    let json = said.json();
    assert_eq!(json["processes"].as_array().map(Vec::len), Some(1));
    assert_eq!(json["processes"][0]["name"], "other");
    let said = ps(&["--filter", "name=nobody"]).done();
    assert!(
        said.err.contains("no process matches the filter"),
        "{said:?}"
    );
    ps(&["--filter", "colour=red"]).refused(2, &["--filter", "colour", "used"]);
    ps(&["--columns", "pid,colour"]).refused(2, &["--columns", "colour", "used"]);
}

#[test]
fn watching_shows_the_table_again_with_what_has_changed() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 1 << 30));
    let mut command = world.command(&[
        "ps",
        "--watch",
        "0.2",
        "--count",
        "3",
        "--columns",
        "name,used",
    ]);
    let said = command.said();
    let tables: Vec<&str> = said.out.split("\n\n").collect();
    assert_eq!(tables.len(), 3, "{said:?}");
    assert!(
        tables.iter().all(|table| table.starts_with("NAME")),
        "{said:?}"
    );
    let said = world.gpushare(&["ps", "--watch", "0"]);
    assert!(said.code == 2 && said.err.contains("0.1"), "{said:?}");
}
