//! Quotas, shares, policies and groups: changed, applied, recorded, undone.

mod cli_support;

use std::time::Duration;

use cli_support::{World, uuid};
use gpushare_testbed::eventually;
use shm_layout::{Order, PolicyKind};

const GIB: u64 = 1 << 30;

#[test]
fn a_quota_is_obeyed_at_the_next_allocation_and_logged_with_its_reason() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 2 * GIB));

    let said = world
        .gpushare(&[
            "quota",
            "set",
            "name:train",
            "3GiB",
            "--reason",
            "ticket 4471",
        ])
        .done();
    assert!(
        said.out.contains("quota 3GiB") && said.out.contains("applied by 1 process"),
        "{said:?}"
    );
    assert!(!train.takes(gpu, 2 * GIB), "over the new quota");
    assert!(train.takes(gpu, GIB), "up to the new quota");

    let quota = world.gpushare(&["quota", "show", "--json"]).done().json();
    assert_eq!(quota["quotas"][0]["quota_bytes"], 3 * GIB);
    assert_eq!(quota["quotas"][0]["quota_source"], "operator");

    let audit = world.gpushare(&["audit", "--json"]).done().json();
    let edit = &audit["edits"][0];
    assert_eq!(edit["where"], "ctl");
    assert_eq!(edit["result"], "applied");
    assert_eq!(edit["reason"], "ticket 4471");
    assert_eq!(edit["generation"], 1);
    assert_eq!(edit["new"], "quota 3GiB");
    assert_eq!(edit["old"], "quota inherit");
    assert!(
        edit["target"]
            .as_str()
            .is_some_and(|target| target.ends_with("train"))
    );
    assert!(
        edit["target_start_time"]
            .as_u64()
            .is_some_and(|ticks| ticks > 0)
    );
    assert!(
        edit["time"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
}

#[test]
fn a_quota_below_use_warns_takes_nothing_and_refuses_more() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 2 * GIB));
    let said = world.gpushare(&["quota", "set", "all", "1GiB"]).done();
    assert!(said.err.contains("it keeps that"), "{said:?}");
    assert_eq!(train.registration.ledger(gpu).used(), 2 * GIB);
    assert!(!train.takes(gpu, 1));
}

#[test]
fn a_quota_for_a_while_says_when_it_ends() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    world
        .gpushare(&["quota", "set", "all", "25%", "--for", "10m"])
        .done();
    let quota = world
        .gpushare(&["quota", "show", "name:train", "--json"])
        .done()
        .json();
    assert_eq!(quota["quotas"][0]["quota_bytes"], 4 * GIB);
    let left = quota["quotas"][0]["reverts_in_ns"]
        .as_u64()
        .expect("a time");
    assert!(left <= 600_000_000_000, "{left}");
}

#[test]
fn a_quota_on_one_device_leaves_the_others() {
    let world = World::new();
    let train = world.actor("train");
    let (first, second) = (train.enter(0), train.enter(1));
    world
        .gpushare(&["quota", "set", "all", "1GiB", "--gpu", "1"])
        .done();
    assert!(train.takes(first, 2 * GIB));
    assert!(!train.takes(second, 2 * GIB));
    let other = world.actor("other");
    world
        .gpushare(&["quota", "set", "name:other", "1GiB", "--gpu", "1"])
        .refused(5, &["does not use gpu1"]);
    drop(other);
}

#[test]
fn wrong_values_change_nothing_and_say_what_would_be_right() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    let set = |value: &str| world.gpushare(&["quota", "set", "all", value]);
    set("8Q").refused(2, &["8Q", "unit"]);
    set("101%").refused(2, &["101%"]);
    set("").refused(2, &["quota"]);
    world
        .gpushare(&["quota", "set", "everybody", "1G"])
        .refused(2, &["everybody", "pid"]);
    world
        .gpushare(&["quota", "set", "all", "1G", "--for", "5"])
        .refused(2, &["--for", "unit"]);
    world
        .gpushare(&["quota", "set", "all", "1G", "--for", "0s"])
        .refused(2, &["--for"]);
    let share = |value: &str| world.gpushare(&["set", "all", value]);
    share("weight=0").refused(2, &["weight", "between 1 and 1000"]);
    share("priority=20").refused(2, &["priority", "between -20 and 19"]);
    share("cap=0").refused(2, &["cap"]);
    share("weight=-1").refused(2, &["weight", "between 1 and 1000"]);
    share("weight=heavy").refused(2, &["weight"]);
    share("speed=1").refused(2, &["speed", "weight="]);
    world
        .gpushare(&["group", "create", "team", "weight=0"])
        .refused(2, &["weight", "between 1 and 1000"]);
    let policy = |words: &[&str]| world.gpushare(&[&["policy", "set", "all"], words].concat());
    policy(&["timeslice=0"]).refused(2, &["timeslice", "between 100us and 1m"]);
    policy(&["timeslice=99h"]).refused(2, &["out of range"]);
    policy(&["timeslice=5"]).refused(2, &["5", "unit"]);
    policy(&["timeslice=-5ms"]).refused(2, &["timeslice=-5ms"]);
    policy(&["idle=11m"]).refused(2, &["idle", "between 100us and 10m"]);
    policy(&["max-hold=1h"]).refused(2, &["max-hold", "between 1ms and 10m"]);
    policy(&["launches=0"]).refused(2, &["launches", "between 1 and 1000000"]);
    policy(&["order=last"]).refused(2, &["order=fifo"]);
    policy(&["slice=5ms"]).refused(2, &["slice", "timeslice="]);
    policy(&["off", "always"]).refused(2, &["given once"]);
    policy(&["timeslice=20s", "max-hold=1s"]).refused(2, &["max-hold"]);
    world
        .gpushare(&["policy", "set", "7", "off"])
        .refused(5, &["no GPU 7"]);
    let stranger = "GPU-00000000-1111-2222-3333-444444444444";
    world
        .gpushare(&["policy", "set", stranger, "off"])
        .refused(5, &[stranger]);
    policy(&["colour=red"]).refused(2, &["colour=red", "timeslice="]);
    let ps = world.gpushare(&["policy", "show", "--json"]).done().json();
    assert_eq!(ps["generation"], 0, "nothing was changed");
}

#[test]
fn nobody_there_is_exit_code_five() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    world
        .gpushare(&["quota", "set", "4000000", "1G"])
        .refused(5, &["no process 4000000"]);
    world
        .gpushare(&["quota", "set", "1", "1G"])
        .refused(5, &["process 1 has not used a GPU"]);
    world
        .gpushare(&["pause", "name:nobody"])
        .refused(5, &["nobody"]);
    world
        .gpushare(&["resume", "group:none"])
        .refused(5, &["group none"]);
    world
        .gpushare(&["group", "set", "none", "memory=1G"])
        .refused(5, &["no group none"]);
    world
        .gpushare(&["group", "rm", "none"])
        .refused(5, &["no group none"]);
}

#[test]
fn a_policy_for_all_reaches_the_processes_and_takes_a_devices_own_away() {
    let world = World::new();
    let train = world.actor("train");
    let (first, second) = (train.enter(0), train.enter(1));
    world.gpushare(&["policy", "set", "1", "launches=7"]).done();
    assert_eq!(
        train.registration.policy(second).0.kind,
        PolicyKind::Launches(7)
    );
    assert_eq!(train.registration.policy(first).0.kind, PolicyKind::Off);
    world
        .gpushare(&["policy", "set", "all", "timeslice=5ms", "order=fifo"])
        .done();
    for entry in [first, second] {
        assert_eq!(
            train.registration.policy(entry).0.kind,
            PolicyKind::Timeslice(5_000_000)
        );
    }
    // What is not written stays: the slice, here.
    world
        .gpushare(&["policy", "set", "all", "grace=50ms"])
        .done();
    assert_eq!(
        train.registration.policy(first).0.kind,
        PolicyKind::Timeslice(5_000_000)
    );
    assert_eq!(train.registration.policy(first).0.grace_ns, 50_000_000);
    world.gpushare(&["policy", "set", "all", "off"]).done();
    assert_eq!(train.registration.policy(second).0.kind, PolicyKind::Off);
    let shown = world.gpushare(&["policy", "show"]).done();
    assert!(shown.out.contains("fifo"), "{shown:?}");
}

#[test]
fn a_policy_for_all_that_nobody_obeys_yet_is_what_the_next_edit_starts_from() {
    let world = World::new();
    let set = |gpu: &str, word: &str| world.gpushare(&["policy", "set", gpu, word]).done();
    set("all", "timeslice=5ms");
    set("all", "order=fifo");
    let train = world.actor("train");
    let (first, second) = (train.enter(0), train.enter(1));
    let slice = PolicyKind::Timeslice(5_000_000);
    let (policy, _) = train.registration.policy(first);
    assert_eq!((policy.kind, policy.order), (slice, Order::Fifo));
    // The devices differ: the policy for all is still the one that is changed.
    set("1", "launches=7");
    set("all", "order=fair");
    for entry in [first, second] {
        let (policy, _) = train.registration.policy(entry);
        assert_eq!((policy.kind, policy.order), (slice, Order::Fair));
    }
}

#[test]
fn shares_pauses_and_boosts_reach_the_process() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    world
        .gpushare(&["set", "name:train", "weight=200", "priority=-3", "cap=30%"])
        .done();
    let share = train.registration.share();
    assert_eq!(
        (share.weight, share.priority, share.cap),
        (200, -3, Some(30))
    );
    world
        .gpushare(&["set", "name:train", "priority=10", "--for", "10m"])
        .done();
    assert_eq!(train.registration.share().priority, 10);
    assert!(train.registration.share().boost_until_ns.is_some());
    world
        .gpushare(&["pause", "name:train", "--reason", "making room"])
        .done();
    assert!(train.registration.share().paused);
    world.gpushare(&["resume", "name:train"]).done();
    assert!(!train.registration.share().paused);
    world
        .gpushare(&["set", "name:train", "weight=1", "--for", "1m"])
        .refused(2, &["--for", "priority"]);
}

#[test]
fn a_boost_ends_by_itself_and_nobody_edits_it_away() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    let set = |words: &[&str]| world.gpushare(&[&["set", "name:train"], words].concat());
    set(&["priority=-3"]).done();
    set(&["priority=20", "--for", "1s"]).refused(2, &["between -20 and 19"]);
    let said = set(&["priority=10", "--for", "1s", "--reason", "a deadline"]).done();
    assert!(said.out.contains("boost=10 for a while"), "{said:?}");
    let generation = train.registration.control_generation();
    eventually("the boost is over", Duration::from_secs(30), || {
        train.registration.share().priority == -3
    });
    assert_eq!(train.registration.share().boost_until_ns, None);
    assert_eq!(train.registration.control_generation(), generation);
}

#[test]
fn every_edit_of_shares_and_policies_is_acknowledged_and_in_the_log() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    let edits: [(&[&str], &str); 6] = [
        (&["set", "name:train", "weight=200"], "weight"),
        (&["set", "name:train", "cap=30%"], "cap"),
        (
            &["set", "name:train", "priority=10", "--for", "10m"],
            "boost",
        ),
        (&["pause", "name:train"], "paused"),
        (&["resume", "name:train"], "paused"),
        (&["policy", "set", "0", "timeslice=5ms"], "timeslice=5ms"),
    ];
    let segments = train.registration.segments();
    for (number, (words, what)) in edits.iter().enumerate() {
        world.gpushare(words).done();
        let generation = number as u64 + 1;
        eventually("the edit is acknowledged", Duration::from_secs(30), || {
            let seen = shm_layout::snapshot(segments, shm_layout::clock::now());
            seen.generation == generation && seen.processes[0].acked == generation
        });
        let audit = world.gpushare(&["audit", "--json"]).done().json();
        let last = &audit["edits"][number];
        assert_eq!(last["result"], "applied", "{last}");
        assert_eq!(last["generation"], generation);
        let new = last["new"].as_str().expect("a text");
        assert!(new.contains(what), "{what}: {last}");
    }
}

#[test]
fn a_group_limits_its_members_together() {
    let world = World::new();
    world
        .gpushare(&["group", "create", "team", "memory=3GiB", "weight=50"])
        .done();
    world
        .gpushare(&["group", "create", "team"])
        .refused(1, &["already exists"]);
    let limits = || shm_layout::LaunchLimits {
        group: Some("team".into()),
        ..Default::default()
    };
    let (one, two) = (
        world.actor_with("one", &limits()),
        world.actor_with("two", &limits()),
    );
    let (a, b) = (one.enter(0), two.enter(0));
    assert!(one.takes(a, 2 * GIB));
    assert!(!two.takes(b, 2 * GIB), "the group's quota is spent");
    let shown = world
        .gpushare(&["group", "show", "team", "--json"])
        .done()
        .json();
    assert_eq!(shown["groups"][0]["members"], 2);
    assert_eq!(shown["groups"][0]["memory_bytes"], 3 * GIB);
    assert_eq!(shown["groups"][0]["used_bytes"][0], 2 * GIB);
    world
        .gpushare(&["group", "set", "team", "memory=8GiB"])
        .done();
    assert!(two.takes(b, 2 * GIB));
    assert_eq!(two.registration.share().weight, 50);
    world.gpushare(&["group", "rm", "team"]).done();
    let groups = world.gpushare(&["group", "create", "x", "memory=8Q"]);
    groups.refused(2, &["8Q"]);
}

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

/// Waits until a timed edit made just now has ended, whatever replaced it meanwhile.
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
    let dir = shm_layout::SegmentDir {
        path: world.dir().to_owned(),
        mode: shm_layout::Mode::User,
    };
    let editor = gpushare_tui::edit::Editor::open(&dir);
    let history = editor.log().read().expect("our own log");
    for entry in &history.entries[2..5] {
        let failure = editor
            .undo(entry, gpushare_tui::edit::audit::Place::Tui)
            .expect_err("it is over");
        assert!(
            failure.to_string().contains("reverted by itself"),
            "{failure}"
        );
    }
    let said = world.gpushare(&["undo", "2"]).done();
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
    // As after a boot: the segments are made anew, the log goes on.
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
    world.gpushare(&["undo"]).done();
    assert_eq!(train.registration.ledger(gpu).quota().bytes, None);
}

#[test]
fn several_edits_are_undone_in_one_go() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    for quota in ["4GiB", "3GiB", "2GiB"] {
        world.gpushare(&["quota", "set", "all", quota]).done();
    }
    world.gpushare(&["undo", "2"]).done();
    assert_eq!(train.registration.ledger(gpu).quota().bytes, Some(4 * GIB));
    world
        .gpushare(&["undo", "0"])
        .code
        .eq(&2)
        .then_some(())
        .expect("a count of 0 is a usage error");
}

#[test]
fn a_refused_edit_is_in_the_log_too() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    let slot = train.registration.slot();
    drop(train);
    // The dashboard may hold a row of a process that has gone meanwhile.
    let dir = shm_layout::SegmentDir {
        path: world.dir().to_owned(),
        mode: shm_layout::Mode::User,
    };
    let editor = gpushare_tui::edit::Editor::open(&dir);
    let change = shm_layout::Change::ProcessQuota {
        slot,
        device: None,
        value: shm_layout::QuotaValue::Bytes(GIB),
        until: None,
    };
    let request = gpushare_tui::edit::EditRequest::new(
        change,
        "7 train",
        gpushare_tui::edit::audit::Place::Tui,
    );
    let failure = editor.apply(request).expect_err("it is gone");
    assert_eq!(failure.exit(), gpushare_tui::text::exit::Exit::NoSuchTarget);
    let audit = world.gpushare(&["audit", "--json"]).done().json();
    let last = audit["edits"]
        .as_array()
        .and_then(|edits| edits.last())
        .expect("a record");
    assert_eq!(last["result"], "refused");
    assert_eq!(last["where"], "tui");
    let table = world.gpushare(&["audit"]).done();
    assert!(table.out.contains("REFUSED"), "{table:?}");
}

#[test]
fn a_dry_run_says_what_is_what_would_be_and_who_would_be_over_and_changes_nothing() {
    let world = World::new();
    let (train, serve) = (world.actor("train"), world.actor("serve"));
    let gpu = train.enter(0);
    serve.enter(0);
    assert!(train.takes(gpu, 2 * GIB));
    world.gpushare(&["quota", "set", "all", "8GiB"]).done();
    world
        .gpushare(&["group", "create", "team", "memory=4GiB"])
        .done();
    world.gpushare(&["policy", "set", "0", "launches=7"]).done();
    let generation = train.registration.control_generation();
    let dry = |words: &[&str]| world.gpushare(&[words, &["--dry-run"]].concat()).done();

    let said = dry(&["quota", "set", "name:train", "1GiB"]);
    assert!(
        said.out
            .contains("quota 1GiB (now: quota 8GiB); for 1 process"),
        "{said:?}"
    );
    assert!(
        said.err.contains("train would be over quota on gpu0"),
        "{said:?}"
    );
    assert!(
        said.out.contains("dry run: 1 edit would be made"),
        "{said:?}"
    );
    let said = dry(&["quota", "set", "all", "50%"]);
    assert!(said.out.contains("dry run: 2 edits"), "{said:?}");
    assert_eq!(said.err, "", "nobody would be over");
    let said = dry(&["set", "name:train", "weight=200"]);
    assert!(
        said.out.contains("weight=200 (now: weight=inherit)"),
        "{said:?}"
    );
    let said = dry(&["pause", "all"]);
    assert!(said.out.contains("paused=true"), "{said:?}");
    let said = dry(&["policy", "set", "all", "timeslice=5ms"]);
    assert!(
        said.out.contains("all GPUs: policy timeslice=5ms"),
        "{said:?}"
    );
    assert!(said.out.contains("for 2 processes"), "{said:?}");
    assert!(
        said.out
            .contains("gpu0: policy inherit (now: policy launches=7"),
        "{said:?}"
    );
    let said = dry(&["group", "set", "team", "memory=1GiB"]);
    assert!(
        said.out
            .contains("memory=1GiB (now: memory=4GiB); no running process affected"),
        "{said:?}"
    );
    dry(&["group", "rm", "team"]);
    dry(&["group", "create", "other"]);

    let refused = |words: &[&str]| world.gpushare(&[words, &["--dry-run"]].concat());
    refused(&["quota", "set", "name:nobody", "1G"]).refused(5, &["nobody"]);
    refused(&["quota", "set", "all", "8Q"]).refused(2, &["8Q"]);
    refused(&["group", "rm", "other"]).refused(5, &["no group other"]);
    assert_eq!(train.registration.control_generation(), generation);
    assert_eq!(train.registration.ledger(gpu).quota().bytes, Some(8 * GIB));
    let audit = world.gpushare(&["audit", "--json"]).done().json();
    let edits = audit["edits"].as_array().map(Vec::len);
    assert_eq!(edits, Some(4), "nothing of it is in the log");
}

#[test]
fn a_group_that_would_hold_more_than_its_quota_is_told_so_by_a_dry_run() {
    let world = World::new();
    world.gpushare(&["group", "create", "team"]).done();
    let limits = shm_layout::LaunchLimits {
        group: Some("team".into()),
        ..Default::default()
    };
    let member = world.actor_with("member", &limits);
    let gpu = member.enter(0);
    assert!(member.takes(gpu, 3 * GIB));
    let said = world
        .gpushare(&["group", "set", "team", "memory=2GiB", "--dry-run"])
        .done();
    assert!(said.out.contains("for 1 process"), "{said:?}");
    assert!(
        said.err.contains("group team would be over quota on gpu0"),
        "{said:?}"
    );
}

#[test]
fn undo_takes_settings_back_and_not_the_traces_that_came_after() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    let dir = shm_layout::SegmentDir {
        path: world.dir().to_owned(),
        mode: shm_layout::Mode::User,
    };
    let editor = gpushare_tui::edit::Editor::open(&dir);
    for on in [Some(1000), None] {
        let change = shm_layout::Change::Trace {
            slot: train.registration.slot(),
            on,
        };
        let ctl = gpushare_tui::edit::audit::Place::Ctl;
        let request = gpushare_tui::edit::EditRequest::new(change, "7 train", ctl);
        editor.apply(request).expect("a valid edit");
    }
    let said = world.gpushare(&["undo"]).done();
    assert!(said.out.contains("quota inherit"), "{said:?}");
    assert_eq!(train.registration.ledger(gpu).quota().bytes, None);
    let wanted = train.registration.trace_order();
    assert_eq!(wanted.and_then(shm_layout::trace::Order::room), None);
}
