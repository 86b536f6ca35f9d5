//! The previous setting is restored exactly, at the end of a temporary edit or by `gpushare undo`, and every log can be
//! continued.

mod cli_support;

use std::fs;
use std::time::Duration;

use cli_support::{Actor, World};
use gpushare_testbed::eventually;
use shm_layout::Entry;

const GIB: u64 = 1 << 30;
const LIMIT: Duration = Duration::from_secs(30);

/// Makes a process on two devices with 4 GiB on the first, and then 2 GiB on both.
fn stage(world: &World, more: &[&str]) -> (Actor, [Entry; 2]) {
    let train = world.actor("train");
    let entries = [train.enter(0), train.enter(1)];
    let one = ["quota", "set", "all", "4GiB", "--gpu", "0"];
    world.gpushare(&one).done();
    assert_eq!(quotas(&train, entries), [Some(4 * GIB), None]);
    let all = ["quota", "set", "all", "2GiB"];
    world.gpushare(&[&all, more].concat()).done();
    assert_eq!(quotas(&train, entries), [Some(2 * GIB), Some(2 * GIB)]);
    (train, entries)
}

fn quotas(actor: &Actor, entries: [Entry; 2]) -> [Option<u64>; 2] {
    entries.map(|entry| actor.registration.ledger(entry).quota().bytes)
}

#[test]
fn a_quota_for_every_device_that_ends_by_itself_gives_each_device_its_own_back() {
    let world = World::new();
    let (train, entries) = stage(&world, &["--for", "700ms"]);
    eventually("each has what it had", LIMIT, || {
        quotas(&train, entries) == [Some(4 * GIB), None]
    });
    // The next edit records that it has ended.
    world.gpushare(&["set", "all", "weight=7"]).done();
    assert_eq!(quotas(&train, entries), [Some(4 * GIB), None]);
}

#[test]
fn a_quota_for_every_device_that_is_undone_gives_each_device_its_own_back() {
    for more in [&[][..], &["--for", "10m"]] {
        let world = World::new();
        let (train, entries) = stage(&world, more);
        let said = world.gpushare(&["undo"]).done();
        assert_eq!(quotas(&train, entries), [Some(4 * GIB), None], "{said:?}");
        assert!(said.out.contains("4GiB on its device 0"), "{said:?}");
        let said = world.gpushare(&["undo"]).done();
        assert_eq!(quotas(&train, entries), [None, None], "{said:?}");
        world.gpushare(&["undo"]).refused(1, &["no edit to undo"]);
    }
}

#[test]
fn a_timed_quota_of_one_device_comes_back_with_its_end() {
    let world = World::new();
    let train = world.actor("train");
    let entries = [train.enter(0), train.enter(1)];
    let set = |words: &[&str]| {
        world
            .gpushare(&[&["quota", "set", "all"], words].concat())
            .done();
    };
    set(&["1GiB"]);
    set(&["3GiB", "--gpu", "1", "--for", "2500ms"]);
    set(&["2GiB"]);
    assert_eq!(quotas(&train, entries), [Some(2 * GIB); 2]);
    world.gpushare(&["undo"]).done();
    assert_eq!(quotas(&train, entries), [Some(GIB), Some(3 * GIB)]);
    eventually("its time is over", LIMIT, || {
        quotas(&train, entries) == [Some(GIB); 2]
    });
}

/// Changes the newest line of the log.
fn spoil(world: &World, spoilt: impl Fn(&str) -> String) {
    let path = world.dir().join("audit.jsonl");
    let text = fs::read_to_string(&path).expect("a log");
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    let newest = lines.last_mut().expect("an edit");
    *newest = spoilt(newest);
    fs::write(&path, lines.join("\n") + "\n").expect("ours");
}

#[test]
fn an_edit_whose_earlier_value_cannot_be_read_is_passed_over_with_a_sentence() {
    let unknown_kind = |line: &str| {
        let (before, restore) = line.split_once("\"restore\":").expect("an edit");
        format!(
            "{before}\"restore\":{}",
            restore.replace("process_quota", "of_a_later_version")
        )
    };
    let spoilers: [&dyn Fn(&str) -> String; 4] = [
        &unknown_kind,
        &|line| line.replace("process_quota", "of_a_later_version"),
        &|line| line[..line.len() / 2].to_owned(),
        &|_| "\u{0}\u{1b}noise".to_owned(),
    ];
    for (case, spoiler) in spoilers.iter().enumerate() {
        let world = World::new();
        let train = world.actor("train");
        let entries = [train.enter(0), train.enter(1)];
        for value in ["1GiB", "2GiB", "3GiB"] {
            world.gpushare(&["quota", "set", "all", value]).done();
        }
        spoil(&world, spoiler);
        let said = world.gpushare(&["undo"]).done();
        assert!(said.err.contains("edit 3"), "{case}: {said:?}");
        assert!(
            said.err.contains("set the value by hand"),
            "{case}: {said:?}"
        );
        assert!(said.out.contains("undid edit 2"), "{case}: {said:?}");
        assert_eq!(quotas(&train, entries), [Some(GIB); 2], "{case}");
        world.gpushare(&["undo"]).done();
        assert_eq!(quotas(&train, entries), [None; 2], "{case}");
        // The log continues from there.
        world.gpushare(&["quota", "set", "all", "5GiB"]).done();
        world.gpushare(&["undo"]).done();
        assert_eq!(quotas(&train, entries), [None; 2], "{case}");
        world.gpushare(&["undo"]).refused(1, &["no edit to undo"]);
    }
}

#[test]
fn what_a_command_changed_besides_is_named_when_one_edit_of_it_is_undone() {
    let world = World::new();
    let jobs = [world.actor("train"), world.actor("train")];
    jobs.iter().for_each(|job| _ = job.enter(0));
    world
        .gpushare(&["quota", "set", "name:train", "2GiB"])
        .done();
    let said = world.gpushare(&["undo"]).done();
    let stays = "edit 1 on ";
    assert!(
        said.err.contains(stays) && said.err.contains("stays"),
        "{said:?}"
    );
    let said = world.gpushare(&["undo"]).done();
    assert!(!said.err.contains("stays"), "{said:?}");
}

#[test]
fn the_reason_of_an_undo_is_in_the_log_beside_the_edit_it_undoes() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    let why = "too tight for the evaluation, which needs twice as much at the end of each epoch";
    world.gpushare(&["undo", "--reason", why]).done();
    let audit = world.gpushare(&["audit", "--json"]).done().json();
    let reason = format!("undo of edit 1: {why}");
    assert_eq!(audit["edits"][1]["reason"], *reason);
    let table = world.gpushare(&["audit"]).done().out;
    assert!(table.contains(&reason), "whole in a pipe: {table}");
}

#[test]
fn a_number_is_the_one_of_the_log_and_last_counts_from_the_newest() {
    let world = World::new();
    let (train, serve) = (world.actor("train"), world.actor("serve"));
    let (on, off) = (train.enter(0), serve.enter(0));
    for (target, value) in [
        ("name:train", "4GiB"),
        ("name:serve", "1GiB"),
        ("name:train", "3GiB"),
        ("name:train", "2GiB"),
    ] {
        world.gpushare(&["quota", "set", target, value]).done();
    }
    let quota = |actor: &Actor, entry| actor.registration.ledger(entry).quota().bytes;
    let said = world.gpushare(&["undo", "2"]).done();
    assert!(said.out.starts_with("undid edit 2 on "), "{said:?}");
    assert_eq!(quota(&serve, off), None);
    assert_eq!(quota(&train, on), Some(2 * GIB), "only edit 2");
    // An edit on which a later edit depends is not undone.
    world
        .gpushare(&["undo", "1"])
        .refused(1, &["edit 4", "undo that one first"]);
    world
        .gpushare(&["undo", "2"])
        .refused(1, &["edit 2", "already undone"]);
    world
        .gpushare(&["undo", "99"])
        .refused(5, &["no edit 99", "gpushare audit", "--last 99"]);
    let said = world.gpushare(&["undo", "--last", "2"]).done();
    assert!(
        said.out.contains("undid edit 4") && said.out.contains("undid edit 3"),
        "{said:?}"
    );
    assert_eq!(quota(&train, on), Some(4 * GIB));
    assert_eq!(world.gpushare(&["undo", "1", "--last", "1"]).code, 2);
}

#[test]
fn an_edit_of_earlier_segments_and_a_line_that_cannot_be_read_are_not_undone_by_number() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    world.gpushare(&["quota", "set", "all", "3GiB"]).done();
    drop(train);
    spoil(&world, |line| line[..line.len() / 2].to_owned());
    world
        .gpushare(&["undo", "2"])
        .refused(1, &["edit 2", "cannot be read", "by hand"]);
    for file in ["state", "control"] {
        fs::remove_file(world.dir().join(file)).expect("ours");
    }
    let train = world.actor("train");
    let entry = train.enter(0);
    world.gpushare(&["quota", "set", "all", "1GiB"]).done();
    world
        .gpushare(&["undo", "1"])
        .refused(1, &["edit 1", "earlier segments"]);
    world.gpushare(&["undo", "3"]).done();
    assert_eq!(train.registration.ledger(entry).quota().bytes, None);
}
