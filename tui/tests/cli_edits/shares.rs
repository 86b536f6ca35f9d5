//! Policies, shares, pauses and boosts.

use super::*;

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
    // Settings that are not given stay unchanged, here the slice.
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
fn settings_of_memory_are_in_the_table_of_policies_and_are_named_when_they_stay() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    let set = |words: &[&str]| {
        world
            .gpushare(&[&["policy", "set", "all"], words].concat())
            .done()
    };
    set(&["timeslice=5ms", "evict-idle=2s", "stay=5s"]);
    let said = set(&["hw-timeslice=5ms"]);
    assert!(
        said.out
            .contains("hw-timeslice=5ms, evict-idle=2s, stay=5s"),
        "{said:?}"
    );
    let shown = world.gpushare(&["policy", "show"]).done().out;
    assert!(
        shown.contains("MORE") && shown.contains("evict-idle=2s stay=5s"),
        "{shown}"
    );
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
    // The devices have different policies; the edit for all still changes the common one.
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
    let said = world.gpushare(&["resume", "name:train"]).done();
    let line = format!("train (pid {}): resumed\n", std::process::id());
    assert_eq!(said.out, line, "{said:?}");
    assert!(!train.registration.share().paused);
    for words in [
        &["priority=inherit", "--for", "1m"][..],
        &["weight=7", "name=serve", "--for", "1m"],
    ] {
        world
            .gpushare(&[&["set", "name:train"], words].concat())
            .refused(2, &["--for"]);
    }
    assert_eq!(train.registration.share().weight, 200);
}

#[test]
fn the_audit_has_whole_names_and_values_in_a_pipe() {
    let world = World::new();
    let name = "serve-llama-3-70b-instruct-of-team-blue-0";
    let serve = world.actor(name);
    serve.enter(0);
    let user = "alice.of.the.language.model.group";
    let mut set = world.command(&["set", "all", "weight=200", "priority=-3", "cap=30%"]);
    set.env("SUDO_USER", user).said().done();
    let audit = world.gpushare(&["audit"]).done();
    let target = format!("{} {name}", std::process::id());
    for told in [user, &target, "weight=200"] {
        assert!(audit.out.contains(told), "{told:?}: {audit:?}");
    }
}

#[test]
fn what_is_set_for_a_while_ends_without_the_tool_and_undo_brings_it_back_with_its_end() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    let share = || train.registration.share();
    let gpushare = |words: &[&str]| world.gpushare(words).done();
    gpushare(&["set", "name:train", "weight=200", "evict-after=1h"]);
    let said = gpushare(&[
        "set",
        "name:train",
        "weight=300",
        "cap=30%",
        "evict-after=never",
        "on-full=wait",
        "--for",
        "1s",
    ]);
    assert!(said.out.contains("weight=300 for 1.0s"), "{said:?}");
    gpushare(&["pause", "name:train", "--for", "1s"]);
    let generation = train.registration.control_generation();
    eventually("all is as before", Duration::from_secs(30), || {
        let share = share();
        share.weight == 200
            && share.cap.is_none()
            && !share.paused
            && share.evict_after == Some(3_600_000_000_000)
            && share.on_full == shm_layout::OnFull::Fail
            && share.until_ns.is_none()
    });
    assert_eq!(train.registration.control_generation(), generation);
    assert_eq!(train.registration.next_deadline(), None);
    gpushare(&["set", "name:train", "weight=7", "--for", "1h"]);
    gpushare(&["set", "name:train", "weight=8"]);
    assert_eq!((share().weight, share().until_ns), (8, None));
    gpushare(&["undo"]);
    assert_eq!(share().weight, 7);
    assert!(share().until_ns.is_some(), "it still ends");
    let shown = gpushare(&["ps", "--json"]).json();
    assert!(shown["processes"][0]["share_reverts_in_ns"].is_u64());
    gpushare(&["policy", "set", "all", "evict-after=2h"]);
    gpushare(&["set", "name:train", "evict-after=inherit"]);
    train
        .registration
        .ledger(gpu)
        .reserve(1)
        .expect("room")
        .commit();
    assert_eq!(share().evict_after, Some(7_200_000_000_000));
    gpushare(&[
        "policy",
        "set",
        "all",
        "evict-after=5m",
        "overcommit=on",
        "--for",
        "1s",
    ]);
    eventually("the device's own is back", Duration::from_secs(30), || {
        share().evict_after == Some(7_200_000_000_000)
    });
}

#[test]
fn a_groups_setting_for_a_while_ends_by_itself_for_all_its_members() {
    let world = World::new();
    let limits = shm_layout::LaunchLimits {
        group: Some("team".into()),
        ..shm_layout::LaunchLimits::default()
    };
    let member = world.actor_with("train", &limits);
    let gpu = member.enter(0);
    let gpushare = |words: &[&str]| world.gpushare(words).done();
    gpushare(&["group", "create", "team", "memory=4GiB", "weight=200"]);
    gpushare(&[
        "group",
        "set",
        "team",
        "memory=1GiB",
        "cap=30%",
        "--for",
        "1s",
    ]);
    eventually("all is as before", Duration::from_secs(30), || {
        let share = member.registration.share();
        let room = member.registration.ledger(gpu).room();
        share.cap.is_none() && share.weight == 200 && room == Some(4 * GIB)
    });
    gpushare(&["group", "set", "team", "weight=50", "--for", "1h"]);
    assert_eq!(member.registration.share().weight, 50);
    let shown = gpushare(&["group", "show", "--json"]).json();
    assert!(shown["groups"][0]["reverts_in_ns"].is_u64(), "{shown}");
    gpushare(&["undo"]);
    assert_eq!(member.registration.share().weight, 200);
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
    assert!(said.out.contains("boost=10 for 1.0s"), "{said:?}");
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
fn a_policy_for_a_while_reverts_and_gives_devices_their_own_back() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    train.enter(1);
    let set = |words: &[&str]| world.gpushare(&[&["policy", "set"], words].concat()).done();
    set(&["1", "launches=4"]);
    let shown = || {
        let shown = world.gpushare(&["policy", "show", "--json"]).done().json();
        [0, 1].map(|gpu| {
            let line = &shown["policies"][gpu];
            let policy = line["policy"].as_str().expect("text").to_owned();
            (policy, line["reverts_in_ns"].as_u64().is_some())
        })
    };
    let own = [("off".to_owned(), false), ("launches=4".to_owned(), false)];
    assert_eq!(shown(), own);
    let said = set(&["all", "timeslice=5ms", "--for", "1h"]);
    assert!(said.out.contains("for 1h00m"), "{said:?}");
    let timed = ("timeslice=5ms".to_owned(), true);
    assert_eq!(shown(), [timed.clone(), timed]);
    // The two temporary edits are undone one by one.
    world.gpushare(&["undo", "--last", "2"]).done();
    assert_eq!(shown(), own);

    set(&["all", "timeslice=5ms", "--for", "300ms"]);
    let start = std::time::Instant::now();
    while shown() != own {
        assert!(start.elapsed().as_secs() < 30, "{:?}", shown());
    }
    let left = world.gpushare(&["undo"]).done();
    assert!(
        left.out.contains("launches=4"),
        "the timed ones are over: {left:?}"
    );

    set(&["1", "launches=4"]);
    set(&["1", "timeslice=5ms", "--for", "1h"]);
    set(&["all", "timeslice=5ms"]);
    let lasting = ("timeslice=5ms".to_owned(), false);
    assert_eq!(
        shown(),
        [lasting.clone(), lasting],
        "nothing comes back below a lasting one"
    );
    world
        .gpushare(&["policy", "set", "all", "off", "--for", "0s"])
        .refused(2, &["--for: 0 would change nothing"]);
}

#[test]
fn a_boost_puts_a_process_first_and_ends_by_itself() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    let boost = |more: &[&str]| world.gpushare(&[&["boost", "name:train"], more].concat());
    boost(&["--for", "500ms", "--reason", "a deadline"]).done();
    assert_eq!(train.registration.share().priority, 19);
    eventually("it has ended", Duration::from_secs(30), || {
        train.registration.share().priority == 0
    });
    boost(&["-3", "--for", "10m"]).done();
    assert_eq!(train.registration.share().priority, -3);
    boost(&["20"]).refused(2, &["priority"]);
    boost(&["--for", "0"]).refused(2, &["--for"]);
    let audit = world.gpushare(&["audit", "--json"]).done().json();
    assert_eq!(audit["edits"][0]["reason"], "a deadline");
}

/// Processes that apply nothing are waited for together, and not one after the other.
#[test]
fn several_processes_are_waited_for_together() {
    use shm_layout::{Identity, LaunchLimits, Segments};
    let world = World::new();
    let segments = Segments::open_workload(world.dir()).expect("ours");
    let deaf: Vec<_> = (0..6)
        .map(|_| {
            let limits = LaunchLimits::default();
            shm_layout::register(&segments, &Identity::of_self("deaf"), &limits).expect("room")
        })
        .collect();
    let start = std::time::Instant::now();
    let said = world.gpushare(&["resume", "all"]).done();
    let took = start.elapsed();
    assert_eq!(said.out.lines().count(), deaf.len(), "{said:?}");
    let each = said
        .out
        .lines()
        .all(|line| line.contains("not applied yet by"));
    assert!(each, "{said:?}");
    let wait = gpushare_control::ACKNOWLEDGEMENT;
    assert!(took < wait * 4, "{took:?} for six processes");
}
