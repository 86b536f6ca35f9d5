//! Quotas of processes, devices and groups.

use super::*;

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
            "--verbose",
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
    assert_eq!(edit["old"], "quota none (default)");
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
fn quota_show_has_whole_names_in_a_pipe() {
    let world = World::new();
    let name = "serve-llama-3-70b-instruct-of-team-blue-0";
    let serve = world.actor(name);
    serve.enter(0);
    let said = world.gpushare(&["quota", "show"]).done();
    assert!(said.out.contains(name), "{said:?}");
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
fn a_group_limits_its_members_together() {
    let world = World::new();
    let made = world
        .gpushare(&["group", "create", "team", "memory=3GiB", "weight=50"])
        .done();
    assert!(made.out.contains("(was: no group)"), "{made:?}");
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
    world.gpushare(&["group", "remove", "team"]).done();
    let bare = world.gpushare(&["group", "create", "bare"]).done();
    assert!(
        bare.out.contains("without settings (was: no group)"),
        "{bare:?}"
    );
    let groups = world.gpushare(&["group", "create", "x", "memory=8Q"]);
    groups.refused(2, &["8Q"]);
}
