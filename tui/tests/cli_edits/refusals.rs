//! Edits that are refused, and edits that are only checked.

use super::*;

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
fn a_refused_edit_is_in_the_log_too() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    let slot = train.registration.slot();
    drop(train);
    // The dashboard may still show a process that has ended.
    let dir = shm_layout::SegmentDir::at(world.dir());
    let editor = gpushare_control::Editor::open(&dir);
    let change = shm_layout::Change::ProcessQuota {
        slot,
        device: None,
        value: shm_layout::QuotaValue::Bytes(GIB),
        until: None,
    };
    let request =
        gpushare_control::EditRequest::new(change, "7 train", gpushare_control::audit::Place::Tui);
    let failure = editor.apply(request).expect_err("it is gone");
    assert_eq!(
        failure.exit(),
        gpushare_base::text::exit::Exit::NoSuchTarget
    );
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
    assert_eq!(said.err, "", "no process would be over");
    let said = dry(&["set", "name:train", "weight=200"]);
    assert!(
        said.out.contains("weight=200 (now: weight=100 (default))"),
        "{said:?}"
    );
    let said = dry(&["pause", "all"]);
    assert!(said.out.contains("paused=yes"), "{said:?}");
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
