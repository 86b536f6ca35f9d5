//! Memory that is reserved for a program, from its start to its end.

use super::*;

/// A card of 1 GiB without memory in no account.
fn card() -> (tempfile::TempDir, Testbed) {
    let dir = tempfile::tempdir().expect("a directory");
    let scenario = dir.path().join("card.toml");
    std::fs::write(&scenario, "[[device]]\nmemory = \"1GiB\"").expect("ours");
    let bed = Testbed::with_scenario(scenario.to_str().expect("a path in UTF-8"));
    (dir, bed)
}

#[test]
fn a_program_starts_only_if_what_it_wants_reserved_can_be_given() {
    let (_dir, bed) = card();
    let mut one = start(&bed, &["--name", "one", "--reserve", "600M"]);
    assert_eq!(one.ask("alloc 100M"), "ok");
    let device = on_first_device(&bed, "one");
    assert_eq!(device["reserved_bytes"], 600 * MIB);
    let run = |options: &[&str]| gpushare(&bed, &[&["run"], options, &["--", "true"]].concat());
    let said = run(&["--reserve", "500M"]);
    said.refused(
        1,
        &["--reserve: gpu0 cannot reserve 500.0 MiB: 424.0 MiB of 1.0 GiB"],
    );
    let said = run(&["--reserve", "50%", "--memory", "400M"]);
    said.refused(2, &["--reserve", "more than its quota there, 400.0 MiB"]);
    run(&["--reserve", "2GiB"]).refused(2, &["gpu0 has 1.0 GiB and cannot reserve 2.0 GiB"]);
    run(&["--reserve", "all"]).refused(2, &["--reserve"]);
    run(&["--reserve", "400M"]).done();
    let mut two = start(&bed, &["--name", "two"]);
    assert!(two.ask("alloc 500M").starts_with("error 2 "));
    assert_eq!(two.ask("alloc 400M"), "ok");
    let table = gpushare(&bed, &["ps"]).done().out;
    assert!(
        table.contains("RESERVED") && table.contains("600M"),
        "{table}"
    );
}

#[test]
fn a_start_waits_for_what_it_wants_reserved() {
    let (_dir, bed) = card();
    let one = start(&bed, &["--name", "one", "--reserve", "600M"]);
    let run = |on_full| {
        let words = ["run", "--reserve=500M", "--on-full", on_full, "--", "true"];
        gpushare(&bed, &words)
    };
    run("wait=500ms").refused(1, &["cannot reserve"]);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| run("wait"));
        std::thread::sleep(Duration::from_millis(700));
        assert!(!waits.is_finished());
        drop(one);
        waits.join().expect("an answer").done();
    });
}

#[test]
fn an_edit_gives_a_running_program_a_reserve_or_says_why_not() {
    let (_dir, bed) = card();
    let mut one = start(&bed, &["--name", "one", "--memory", "700M"]);
    let mut two = start(&bed, &["--name", "two"]);
    assert_eq!(one.ask("alloc 100M"), "ok");
    assert_eq!(two.ask("alloc 500M"), "ok");
    let set = |value: &str| gpushare(&bed, &["set", "name:one", value]);
    set("reserve=600M").refused(1, &["one", "524.0 MiB that no other process"]);
    set("reserve=800M").refused(1, &["its quota there is 700.0 MiB"]);
    set("reserve=50%").done();
    eventually("it has it", LIMIT, || {
        on_first_device(&bed, "one")["reserved_bytes"] == 512 * MIB
    });
    assert!(two.ask("alloc 100M").starts_with("error 2 "));
    gpushare(&bed, &["undo"]).done();
    eventually("it has none", LIMIT, || {
        on_first_device(&bed, "one")["reserved_bytes"] == 0
    });
    assert_eq!(two.ask("alloc 100M"), "ok");
}

#[test]
fn a_wait_for_memory_that_others_have_reserved_says_so_everywhere() {
    let (_dir, bed) = card();
    gpushare(&bed, &["group", "create", "team", "reserve=600M"]).done();
    let mut member = start(&bed, &["--name", "member", "--group", "team"]);
    assert_eq!(member.ask("alloc 100M"), "ok");
    let mut other = start(&bed, &["--name", "other", "--on-full", "wait"]);
    other.say("alloc 500M");
    eventually("it waits for the reserve", LIMIT, || {
        on_first_device(&bed, "other")["memory_wait"]["limit"] == "reserve"
    });
    let said = gpushare(&bed, &["ps"]).done();
    let named = "600M are reserved for group team (it uses 100M)";
    assert!(said.err.contains(named), "{said:?}");
    let metrics = gpushare(&bed, &["metrics"]).done().out;
    assert!(metrics.contains("limit=\"reserve\""), "{metrics}");
    gpushare(&bed, &["group", "set", "team", "reserve=none"]).done();
    assert_eq!(other.line(), "ok");
}

#[test]
fn a_groups_reserve_is_kept_for_its_members_together() {
    let (_dir, bed) = card();
    let group = |verb: &str, value: &str| gpushare(&bed, &["group", verb, "team", value]);
    group("create", "reserve=600M").done();
    let mut other = start(&bed, &["--name", "other"]);
    assert!(other.ask("alloc 500M").starts_with("error 2 "));
    assert_eq!(other.ask("alloc 400M"), "ok");
    group("set", "reserve=700M").refused(1, &["group team", "624.0 MiB that no other process"]);
    let member = |name: &str| start(&bed, &["--name", name, "--group", "team"]);
    let (mut one, mut two) = (member("one"), member("two"));
    assert_eq!(one.ask("alloc 300M"), "ok");
    assert_eq!(two.ask("alloc 300M"), "ok");
    drop(one);
    eventually("it has ended", LIMIT, || two.ask("alloc 200M") == "ok");
    assert!(other.ask("alloc 100M").starts_with("error 2 "));
    let shown = gpushare(&bed, &["group", "show", "team"]).done().out;
    assert!(
        shown.contains("RESERVE") && shown.contains("600M"),
        "{shown}"
    );
    let groups = &gpushare(&bed, &["group", "show", "--json"]).json()["groups"];
    assert_eq!(groups[0]["reserve"], "600MiB", "{groups}");
    let metrics = gpushare(&bed, &["metrics"]).done().out;
    let line = "gpushare_group_reserved_bytes{group=\"team\"";
    assert!(metrics.contains(line), "{metrics}");
    group("set", "reserve=none").done();
    assert_eq!(other.ask("alloc 100M"), "ok");
}
