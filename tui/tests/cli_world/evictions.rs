//! Evictions and restores, as an operator sees them.

use super::*;

#[test]
fn a_workload_is_evicted_by_hand_and_comes_back_at_its_next_call() {
    let bed = Testbed::new();
    let mut workload = start(&bed, &["--name", "w"]);
    assert_eq!(workload.ask("alloc 48M"), "ok");
    let said = gpushare(&bed, &["pause", "name:w", "--evict"]).done();
    assert!(said.out.contains("evicted, 48M in "), "{said:?}");
    let seen = process(&bed, "w");
    assert_eq!(seen["state"], "evicted");
    assert_eq!(seen["residence"]["state"], "evicted");
    assert_eq!(seen["devices"][0]["used_bytes"], 0);
    assert_eq!(seen["devices"][0]["evicted_bytes"], 48 * MIB);
    let table = gpushare(&bed, &["ps"]).done();
    assert!(table.out.contains("evicted"), "{table:?}");
    assert_eq!(seen["residence"]["method"], "checkpoint");
    assert_eq!(seen["residence"]["wake_max_ns"], Value::Null);
    let columns = ["ps", "--columns", "where,total,moves,wake_p99"];
    let table = gpushare(&bed, &columns).done();
    let row = table.out.lines().nth(1).unwrap_or_default();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells, ["deep", "48M", "1", "-"], "{table:?}");
    gpushare(&bed, &["resume", "name:w"]).done();
    assert_eq!(process(&bed, "w")["state"], "evicted", "until it calls");
    assert_eq!(workload.ask("alloc 1M"), "ok");
    let seen = process(&bed, "w");
    assert_eq!(seen["devices"][0]["used_bytes"], 49 * MIB);
    assert_eq!(seen["devices"][0]["evicted_bytes"], 0);
    let residence = &seen["residence"];
    assert_eq!(residence["method"], Value::Null);
    let counts = ["evictions", "evictions_in_hour"].map(|key| residence[key].as_u64());
    assert_eq!(counts, [Some(1), Some(1)]);
    for key in ["moving_ns", "wake_p50_ns", "wake_p99_ns", "wake_max_ns"] {
        assert!(residence[key].as_u64() > Some(0), "{key}: {residence}");
    }
    let events = gpushare(&bed, &["events", "-n", "100"]).out;
    for word in ["evicting", "evicted", "returning", "restoring", "resident"] {
        assert!(events.contains(word), "{word}: {events}");
    }
    let audit = gpushare(&bed, &["audit"]).done();
    assert!(audit.out.contains("evict=yes"), "{audit:?}");
}

#[test]
fn a_pinned_workload_leaves_only_by_force_and_comes_back_by_itself() {
    let bed = Testbed::new();
    let mut workload = start(&bed, &["--name", "w", "--pin"]);
    assert_eq!(workload.ask("alloc 48M"), "ok");
    gpushare(&bed, &["pause", "name:w", "--evict"]).refused(1, &["is pinned", "unpin", "--force"]);
    assert_eq!(process(&bed, "w")["residence"]["state"], "resident");
    let said = gpushare(&bed, &["pause", "name:w", "--evict", "--force"]).done();
    assert!(said.out.contains("evicted, 48M in "), "{said:?}");
    gpushare(&bed, &["resume", "name:w"]).done();
    eventually("it is back without a call", LIMIT, || {
        process(&bed, "w")["residence"]["state"] == "resident"
    });
    let table = gpushare(&bed, &["ps"]).done();
    assert!(table.out.contains("pinned"), "{table:?}");
    gpushare(&bed, &["unpin", "name:w"]).done();
    let said = gpushare(&bed, &["pause", "name:w", "--evict"]).done();
    assert!(said.out.contains("evicted"), "{said:?}");
}

#[test]
fn what_cannot_be_evicted_is_the_answer_of_the_verb() {
    let bed = Testbed::new();
    let mut workload = start(&bed, &["--name", "w"]);
    let said = gpushare(&bed, &["pause", "name:w", "--evict"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.out.contains("paused, not evicted: it holds no memory"),
        "{said:?}"
    );
    assert_eq!(process(&bed, "w")["state"], "paused");
    let why = process(&bed, "w")["residence"]["refused"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("no memory")));
    gpushare(&bed, &["resume", "name:w"]).done();
    assert_eq!(workload.ask("alloc 1M"), "ok");
}

#[test]
fn an_idle_workload_is_evicted_by_itself_and_the_seconds_are_counted() {
    let bed = Testbed::new();
    let mut workload = start(&bed, &["--name", "w", "--evict-after", "10m"]);
    assert_eq!(workload.ask("alloc 48M"), "ok");
    eventually("it counts down", LIMIT, || {
        let left = process(&bed, "w")["residence"]["evicts_in_ns"].as_u64();
        left.is_some_and(|left| (1..600_000_000_000).contains(&left))
    });
    gpushare(&bed, &["set", "name:w", "evict-after=200ms"]).done();
    eventually("it is evicted", LIMIT, || {
        process(&bed, "w")["state"] == "evicted"
    });
    gpushare(&bed, &["set", "name:w", "evict-after=never"]).done();
    assert_eq!(workload.ask("alloc 1M"), "ok");
    assert_eq!(process(&bed, "w")["residence"]["state"], "resident");
    gpushare(&bed, &["set", "name:w", "evict-after=soon"]).refused(2, &["evict-after"]);
}

#[test]
fn a_device_evicts_who_has_no_setting_of_its_own() {
    let bed = Testbed::new();
    let (mut idle, mut kept) = (
        start(&bed, &["--name", "idle"]),
        start(&bed, &["--name", "kept", "--evict-after", "never"]),
    );
    assert_eq!(idle.ask("alloc 8M"), "ok");
    assert_eq!(kept.ask("alloc 8M"), "ok");
    gpushare(&bed, &["policy", "set", "all", "evict-after=300ms"]).done();
    eventually("the idle one is evicted", LIMIT, || {
        process(&bed, "idle")["state"] == "evicted"
    });
    let shown = gpushare(&bed, &["policy", "show", "--json"]).done().json();
    assert_eq!(shown["policies"][0]["evict_after_ns"], 300_000_000);
    assert_eq!(shown["policies"][0]["policy"], "off", "which it left alone");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(process(&bed, "kept")["residence"]["state"], "resident");
    let said = gpushare(&bed, &["quota", "set", "name:idle", "1M", "--dry-run"]).done();
    assert!(
        said.err.contains("holds 8.0 MiB"),
        "evicted or not: {said:?}"
    );
    gpushare(&bed, &["policy", "set", "0", "evict-after=never"]).done();
    assert_eq!(idle.ask("info").split(' ').next(), Some("ok"));
    gpushare(&bed, &["undo"]).done();
}
