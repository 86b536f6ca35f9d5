//! Edits that are undone.

use super::*;

#[test]
fn undo_restores_what_was_and_goes_one_edit_further_each_time() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    world.gpushare(&["undo"]).refused(1, &["no edit to undo"]);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    world.gpushare(&["quota", "set", "all", "1GiB"]).done();
    world.gpushare(&["undo"]).done();
    assert_eq!(train.registration.ledger(gpu).quota().bytes, Some(4 * GIB));
    world.gpushare(&["undo"]).done();
    assert_eq!(train.registration.ledger(gpu).quota().bytes, None);
    world.gpushare(&["undo"]).refused(1, &["no edit to undo"]);
    let audit = world.gpushare(&["audit", "--json"]).done().json();
    let edits = audit["edits"].as_array().expect("a list");
    assert_eq!(edits.len(), 4, "an undo is an edit forward");
    assert_eq!(edits[2]["undoes"], 2);
}

/// Waits until the timed quota has reverted to this one.
fn reverts_to(train: &cli_support::Actor, gpu: shm_layout::Entry, bytes: Option<u64>) {
    eventually("the timed quota reverts", Duration::from_secs(30), || {
        train.registration.ledger(gpu).quota().bytes == bytes
    });
}

/// Waits until a temporary edit has ended, even if another edit has replaced it.
fn times_out(world: &World) {
    eventually("the timed edits are over", Duration::from_secs(30), || {
        let audit = world.gpushare(&["audit", "--json"]).done().json();
        let edits = audit["edits"].as_array().cloned().unwrap_or_default();
        let ends = edits
            .iter()
            .filter_map(|edit| edit["change"]["until_ns"].as_u64());
        ends.max()
            .is_some_and(|end| end <= shm_layout::clock::now())
    });
}

#[test]
fn undo_goes_past_a_timed_quota_that_a_later_edit_replaced_and_that_is_over() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    let quota = || train.registration.ledger(gpu).quota().bytes;
    let set = |words: &[&str]| {
        world
            .gpushare(&[&["quota", "set", "all"], words].concat())
            .done()
    };
    set(&["4GiB"]);
    set(&["1GiB", "--for", "1s"]);
    set(&["2GiB"]);
    times_out(&world);
    world.gpushare(&["undo"]).done();
    assert_eq!(quota(), Some(4 * GIB), "what followed the timed one");
    let said = world.gpushare(&["undo"]).done();
    assert!(
        said.err.contains("edit 2 ") && said.err.contains("reverted by itself"),
        "{said:?}"
    );
    assert_eq!(quota(), None);
    let refusal = world.gpushare(&["undo"]);
    refusal.refused(1, &["no edit to undo"]);
}

#[test]
fn undo_brings_a_timed_quota_back_with_its_end_and_with_what_follows_it() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    let quota = || train.registration.ledger(gpu).quota().bytes;
    let set = |words: &[&str]| {
        world
            .gpushare(&[&["quota", "set", "all"], words].concat())
            .done()
    };
    set(&["4GiB"]);
    set(&["1GiB", "--for", "10m"]);
    set(&["2GiB"]);
    world.gpushare(&["undo"]).done();
    assert_eq!(quota(), Some(GIB));
    let shown = world.gpushare(&["quota", "show", "--json"]).done().json();
    assert!(shown["quotas"][0]["reverts_in_ns"].as_u64().is_some());
    let restored = world.gpushare(&["audit", "--json"]).done().json();
    assert_eq!(restored["edits"][3]["change"]["then"], "4GiB");
    world.gpushare(&["undo"]).done();
    assert_eq!(quota(), Some(4 * GIB));
    world.gpushare(&["undo"]).done();
    assert_eq!(quota(), None);
}

#[test]
fn a_timed_edit_that_is_over_is_not_taken_back_and_hides_nothing_older() {
    let world = World::new();
    let (train, serve) = (world.actor("train"), world.actor("serve"));
    let (gpu, other) = (train.enter(0), serve.enter(0));
    let set = |target: &str, words: &[&str]| {
        world
            .gpushare(&[&["quota", "set", target], words].concat())
            .done()
    };
    set("name:train", &["4GiB"]);
    set("name:train", &["3GiB"]);
    set("name:serve", &["1GiB", "--for", "300ms"]);
    set("name:train", &["1GiB", "--for", "300ms"]);
    world
        .gpushare(&["set", "name:train", "priority=7", "--for", "300ms"])
        .done();
    reverts_to(&train, gpu, Some(3 * GIB));
    reverts_to(&serve, other, None);
    eventually("the boost is over", Duration::from_secs(30), || {
        train.registration.share().boost_until_ns.is_none()
    });
    let dir = shm_layout::SegmentDir::at(world.dir());
    let editor = gpushare_control::Editor::open(&dir);
    let history = editor.log().read().expect("our own log");
    for entry in &history.entries[2..5] {
        let failure = editor
            .undo(entry, gpushare_control::audit::Place::Tui, None)
            .expect_err("it is over");
        assert!(
            failure.to_string().contains("reverted by itself"),
            "{failure}"
        );
    }
    let said = world.gpushare(&["undo", "--last", "2"]).done();
    for number in 3..=5 {
        assert!(said.err.contains(&format!("edit {number} ")), "{said:?}");
    }
    assert_eq!(train.registration.ledger(gpu).quota().bytes, None);
    let again = world.gpushare(&["undo"]);
    again.refused(1, &["no edit to undo"]);
}

#[test]
fn undo_leaves_a_boost_away_that_would_have_ended() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    let set = |words: &[&str]| {
        world
            .gpushare(&[&["set", "name:train"], words].concat())
            .done()
    };
    set(&["priority=3"]);
    set(&["priority=10", "--for", "1s"]);
    set(&["priority=5", "--for", "10m"]);
    eventually(
        "the first boost would be over",
        Duration::from_secs(30),
        || {
            let audit = world.gpushare(&["audit", "--json"]).done().json();
            let boost = audit["edits"][1]["change"]["boost"]
                .as_str()
                .unwrap_or("")
                .to_owned();
            let end = boost.rsplit(' ').next().and_then(|end| end.parse().ok());
            end.is_some_and(|end: u64| end <= shm_layout::clock::now())
        },
    );
    world.gpushare(&["undo"]).done();
    assert_eq!(train.registration.share().priority, 3);
    assert_eq!(train.registration.share().boost_until_ns, None);
    world.gpushare(&["undo"]).done();
    assert_eq!(train.registration.share().priority, 0);
}

#[test]
fn undo_is_refused_when_the_settings_moved_outside_the_log() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    let operator = shm_layout::Operator::open(world.dir()).expect("our own");
    let change = shm_layout::Change::Policy {
        device: Some(uuid(0)),
        policy: None,
        until: None,
    };
    operator
        .edit(None, &change, shm_layout::clock::now())
        .expect("a valid edit");
    world.gpushare(&["undo"]).refused(1, &["outside the log"]);
}

#[test]
fn undo_knows_that_new_segments_count_from_one_again() {
    let world = World::new();
    for quota in ["4GiB", "3GiB"] {
        let train = world.actor("train");
        train.enter(0);
        world.gpushare(&["quota", "set", "all", quota]).done();
        world.gpushare(&["quota", "set", "all", "2GiB"]).done();
    }
    // As after a boot: the segments are made again, and the log continues.
    for file in ["state", "control"] {
        std::fs::remove_file(world.dir().join(file)).expect("ours");
    }
    let train = world.actor("train");
    let gpu = train.enter(0);
    world.gpushare(&["quota", "set", "all", "1GiB"]).done();
    world.gpushare(&["undo"]).done();
    assert_eq!(train.registration.ledger(gpu).quota().bytes, None);
    world.gpushare(&["undo"]).refused(1, &["no edit to undo"]);
}

#[test]
fn undo_passes_over_a_process_that_has_gone() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    let brief = world.actor("brief");
    world
        .gpushare(&["quota", "set", "name:brief", "1GiB"])
        .done();
    drop(brief);
    let said = world.gpushare(&["undo"]).done();
    assert!(
        said.err.contains("edit 2 on") && said.err.contains("the process has ended"),
        "{said:?}"
    );
    assert_eq!(train.registration.ledger(gpu).quota().bytes, None);
}

#[test]
fn undo_passes_over_edits_that_changed_nothing() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    let overcommit = ["policy", "set", "all", "overcommit=on"];
    let said = world.gpushare(&overcommit).done();
    assert_eq!(said.out.lines().count(), 1, "no GPU had its own: {said:?}");
    let again = world.gpushare(&overcommit).done();
    assert!(again.out.contains("as before"), "{again:?}");
    let undone = world.gpushare(&["undo"]).done();
    assert!(
        undone.out.contains("undid edit 1 on all GPUs"),
        "{undone:?}"
    );
    world.gpushare(&["undo"]).refused(1, &["no edit to undo"]);
}

#[test]
fn undo_says_how_many_edits_of_one_command_stay() {
    let world = World::new();
    let jobs = ["one", "two", "three"].map(|name| world.actor(name));
    jobs.iter().for_each(|job| {
        job.enter(0);
    });
    world.gpushare(&["pause", "all"]).done();
    let said = world.gpushare(&["undo"]).done();
    assert!(said.err.contains("undo --last 2"), "{said:?}");
    world.gpushare(&["undo", "--last", "2"]).done();
    world.gpushare(&["undo"]).refused(1, &["no edit to undo"]);
}

#[test]
fn several_edits_are_undone_in_one_go() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    for quota in ["4GiB", "3GiB", "2GiB"] {
        world.gpushare(&["quota", "set", "all", quota]).done();
    }
    world.gpushare(&["undo", "--last", "2"]).done();
    assert_eq!(train.registration.ledger(gpu).quota().bytes, Some(4 * GIB));
    for wrong in [&["undo", "0"][..], &["undo", "--last", "0"]] {
        assert_eq!(world.gpushare(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn undo_names_a_trace_that_it_does_not_take_back_and_the_command_that_ends_it() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    let dir = shm_layout::SegmentDir::at(world.dir());
    let change = shm_layout::Change::Trace {
        slot: train.registration.slot(),
        on: Some(1000),
    };
    let ctl = gpushare_control::audit::Place::Ctl;
    let request = gpushare_control::EditRequest::new(change, "7 train", ctl);
    let editor = gpushare_control::Editor::open(&dir);
    editor.apply(request).expect("a valid edit");
    let audit = world.gpushare(&["audit"]).done();
    let told = "trace off -> on, room for 1000 records";
    assert!(audit.out.contains(told), "{audit:?}");
    let named = "edit 2 is a trace and is not undone; gpushare trace stop 7 ends it";
    world.gpushare(&["undo", "2"]).refused(1, &[named]);
    let said = world.gpushare(&["undo"]).done();
    assert!(said.err.contains(named), "{said:?}");
    assert!(said.out.contains("undid edit 1"), "{said:?}");
}

#[test]
fn undo_takes_settings_back_and_not_the_traces_that_came_after() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    let dir = shm_layout::SegmentDir::at(world.dir());
    let editor = gpushare_control::Editor::open(&dir);
    for on in [Some(1000), None] {
        let change = shm_layout::Change::Trace {
            slot: train.registration.slot(),
            on,
        };
        let ctl = gpushare_control::audit::Place::Ctl;
        let request = gpushare_control::EditRequest::new(change, "7 train", ctl);
        editor.apply(request).expect("a valid edit");
    }
    let said = world.gpushare(&["undo"]).done();
    assert!(said.out.contains(": quota none"), "{said:?}");
    assert_eq!(train.registration.ledger(gpu).quota().bytes, None);
    let wanted = train.registration.trace_order();
    assert_eq!(wanted.and_then(shm_layout::trace::Order::room), None);
}
