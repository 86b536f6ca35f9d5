//! `gpushare apply`: a file of settings, applied completely or not at all.

mod cli_support;

use std::fs;

use cli_support::{Run as _, Said, World};
use shm_layout::PolicyKind;

const GIB: u64 = 1 << 30;

fn write(world: &World, text: &str) -> String {
    let path = world.dir().join("settings.toml");
    fs::write(&path, text).expect("ours");
    path.display().to_string()
}

const SETTINGS: &str = r#"
[policy]
all = "timeslice=5ms order=fair"
"1" = "launches=10"

[limit]
"0" = "12GiB"

[group.team]
memory = "4GiB"
weight = 200

[[process]]
target = "name:train"
memory = "25%"
cap = "30%"

[[process]]
target = "name:not-here"
optional = true
paused = true
"#;

#[test]
fn a_limit_for_all_devices_holds_for_each() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    train.enter(1);
    let file = write(&world, "[limit]\nall = \"12GiB\"");
    let said = world.gpushare(&["apply", &file]).done();
    for line in ["gpu0: limit 12GiB", "gpu1: limit 12GiB"] {
        assert!(said.out.contains(line), "{line:?} in {said:?}");
    }
}

/// At a boot the driver may answer later than the broker.
#[test]
fn a_limit_for_a_device_that_is_not_here_yet_holds_when_it_comes() {
    let world = World::new();
    let uuid = gpushare_base::text::uuids::format(cli_support::uuid(3), false);
    let text =
        format!("[policy]\n'{uuid}' = 'launches=10 overcommit=on'\n[limit]\n'{uuid}' = '12GiB'\n");
    let file = write(&world, &text);
    let said = world.gpushare(&["apply", &file]).done();
    assert!(
        said.out.contains(&format!("{uuid}: limit 12GiB")),
        "{said:?}"
    );
    let train = world.actor("train");
    let entry = train.enter(3);
    assert_eq!(
        train.registration.policy(entry).0.kind,
        PolicyKind::Launches(10)
    );
    assert!(!train.takes(entry, 13 << 30));
    assert!(train.takes(entry, 11 << 30));
}

#[test]
fn a_limit_for_all_devices_where_there_is_none_is_refused_and_at_a_boot_the_rest_holds() {
    let world = World::new();
    let file = write(&world, "[policy]\nall = 'always'\n[limit]\nall = '12GiB'\n");
    world
        .gpushare(&["apply", &file])
        .refused(5, &["[limit] all: found no GPU", "by its UUID"]);
    // Nothing has changed, so it is still new. At a boot nobody reads the message, and the rest would be missing as well.
    world
        .gpushare(&["apply", "--if-new", &file])
        .refused(5, &["[limit] all: found no GPU"]);
    let config = world.gpushare(&["export-config"]).done().out;
    assert!(config.contains("[policy]"), "{config}");
}

#[test]
fn a_devices_own_line_stands_above_that_for_all_and_a_file_means_the_same_each_time() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    train.enter(1);
    let file = write(
        &world,
        r#"
[policy]
all = "timeslice=20ms order=fair overcommit=on"
"0" = "grace=1s overcommit=off"
"1" = "launches=10"

[limit]
all = "10GiB"
"0" = "14GiB"
"#,
    );
    let in_force = || {
        let said = world.gpushare(&["export-config"]).done();
        said.out
    };
    world.gpushare(&["apply", &file]).done();
    let first = in_force();
    for wanted in [
        "timeslice=20ms",
        "grace=1s",
        "launches=10",
        "overcommit=off",
        "14GiB",
    ] {
        assert!(first.contains(wanted), "{wanted:?} in {first}");
    }
    let gpu0 = |text: &str| {
        let named = text.lines().find(|line| line.contains("grace=1s"));
        named.map(str::to_owned)
    };
    let line = gpu0(&first).expect("the first device has a line");
    assert!(
        line.contains("timeslice=20ms") && line.contains("overcommit=off"),
        "{line}"
    );
    world.gpushare(&["apply", &file]).done();
    assert_eq!(in_force(), first, "again");
    let exported = write(&world, &first);
    world.gpushare(&["apply", &exported]).done();
    assert_eq!(in_force(), first, "and back");
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let world = World::new();
    let train = world.actor("train");
    let gpu = train.enter(0);
    train.enter(1);
    let file = write(&world, SETTINGS);
    let said = world.gpushare(&["apply", &file, "--dry-run"]).done();
    for line in [
        "all GPUs: policy timeslice=5ms",
        "gpu1: policy launches=10",
        "gpu0: limit 12GiB",
        "group team: ",
    ] {
        assert!(said.out.contains(line), "{line:?} in {said:?}");
    }
    assert!(
        said.out
            .ends_with("dry run: 6 edits would be made, nothing was changed\n"),
        "{said:?}"
    );
    assert_eq!(train.registration.ledger(gpu).quota().bytes, None);
    assert_eq!(train.registration.control_generation(), 0);
}

#[test]
fn a_file_applies_and_applies_again_to_the_same_end() {
    let world = World::new();
    let train = world.actor("train");
    let (first, second) = (train.enter(0), train.enter(1));
    let file = write(&world, SETTINGS);
    for _ in 0..2 {
        world.gpushare(&["apply", &file]).done();
        assert_eq!(
            train.registration.policy(first).0.kind,
            PolicyKind::Timeslice(5_000_000)
        );
        assert_eq!(
            train.registration.policy(second).0.kind,
            PolicyKind::Launches(10)
        );
        assert_eq!(
            train.registration.ledger(first).quota().bytes,
            Some(4 * GIB)
        );
        assert_eq!(train.registration.share().cap, Some(30));
    }
    let audit = world.gpushare(&["audit", "--json"]).done().json();
    assert!(
        audit["edits"][0]["reason"]
            .as_str()
            .is_some_and(|reason| reason.starts_with("apply "))
    );
}

#[test]
fn one_mistake_anywhere_changes_nothing() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    for (text, code, word) in [
        (
            "[policy]\nall = 'timeslice=5ms'\n'9' = 'off'\n",
            5,
            "no GPU 9",
        ),
        (
            "[policy]\nall = 'always'\n[group.team]\nmemory = '8Q'\n",
            2,
            "8Q",
        ),
        (
            "[policy]\nall = 'always'\n[[process]]\ntarget = 'name:gone'\nmemory = '1G'\n",
            5,
            "gone",
        ),
        (
            "[policy]\nall = 'always'\n[[process]]\ntarget = 'all'\nweight = 0\n",
            2,
            "weight",
        ),
        ("[policies]\nall = 'always'\n", 2, "policies"),
        ("[policy]\nall = 'slice=1'\n", 2, "slice"),
        ("not toml", 2, "settings.toml"),
    ] {
        let file = write(&world, text);
        world.gpushare(&["apply", &file]).refused(code, &[word]);
    }
    world
        .gpushare(&["apply", "/nonexistent/file.toml"])
        .refused(2, &["cannot be read"]);
    let empty = write(&world, "");
    let said = world.gpushare(&["apply", &empty]).done();
    assert!(said.err.contains("contains no settings"), "{said:?}");
    assert_eq!(train.registration.control_generation(), 0);
}

#[test]
fn more_groups_than_there_is_room_for_are_refused_before_the_first_is_made() {
    let world = World::new();
    world.gpushare(&["init"]).done();
    let groups = |numbers: std::ops::Range<u32>| {
        let group = |number| format!("[group.g{number}]\nweight = 7\n");
        write(&world, &numbers.map(group).collect::<String>())
    };
    let made = || {
        let shown = world.gpushare(&["group", "show", "--json"]).done().json();
        shown["groups"].as_array().expect("a list").len()
    };
    for more in [&["--dry-run"][..], &[]] {
        let file = groups(0..70);
        let words = [&["apply", file.as_str()][..], more].concat();
        world
            .gpushare(&words)
            .refused(2, &["there would be 70 groups", "at most 64"]);
    }
    assert_eq!(made(), 0);
    world.gpushare(&["apply", &groups(0..60)]).done();
    world.gpushare(&["apply", &groups(4..64)]).done();
    assert_eq!(made(), 64);
    world.gpushare(&["apply", &groups(0..64)]).done();
    world
        .gpushare(&["apply", &groups(60..65)])
        .refused(2, &["there would be 65 groups, 1 of them new"]);
    assert_eq!(made(), 64);
}

const RULES: &str = r#"
[policy]
all = "timeslice=5ms order=fair evict-after=15m overcommit=on"

[group.team-a]
memory = "16GiB"
cap = 30

[[rule]]
name = "trainings"
label = "train-*"
memory = "8GiB"
weight = 50

[[rule]]
all = true
memory = "2GiB"
on-full = "wait=10m"
"#;

#[test]
fn rules_hold_for_who_starts_later_and_are_shown_as_the_source() {
    let world = World::new();
    let file = world.dir().join("limits.toml");
    std::fs::write(&file, RULES).expect("ours");
    let apply = |more: &[&str]| {
        let mut command = world.command(&["apply"]);
        command.arg(&file).args(more).said()
    };
    let said = apply(&["--dry-run"]).done();
    assert!(
        said.out
            .contains("rule 1 trainings: label=train-*: memory=8GiB weight=50"),
        "{said:?}"
    );
    assert!(said.out.contains("\nrule 2: all: memory=2GiB"), "{said:?}");
    apply(&["--reason", "a new machine"]).done();
    let (train, other) = (world.actor("train-7b"), world.actor("notebook"));
    let (on, off) = (train.enter(0), other.enter(0));
    assert_eq!(train.registration.ledger(on).quota().bytes, Some(8 << 30));
    assert_eq!(other.registration.ledger(off).quota().bytes, Some(2 << 30));
    assert!(other.takes(off, 1 << 30));
    let ps = world.gpushare(&["ps", "--json"]).done().json();
    let first = &ps["processes"][0];
    assert_eq!(first["rule"], "trainings");
    assert_eq!(first["devices"][0]["quota_source"], "rule");
    assert_eq!(first["share_source"], "rule");
    assert_eq!(ps["processes"][1]["rule"], "rule 2");
    assert_eq!(ps["processes"][1]["on_full"], "wait=10m");
    let audit = world.gpushare(&["audit", "--json"]).done().json();
    let reason = audit["edits"][0]["reason"].as_str().unwrap_or_default();
    assert!(reason.ends_with("limits.toml: a new machine"), "{reason}");
    // The first rule is removed and the second moves up; a file without rules leaves the rules unchanged.
    std::fs::write(&file, "[[rule]]\nname = 'all'\nall = true\nmemory = '1GiB'").expect("ours");
    apply(&[]).done();
    assert_eq!(train.registration.ledger(on).quota().bytes, Some(1 << 30));
    let said = apply(&[]).done();
    assert!(said.err.contains("in force already"), "{said:?}");
    std::fs::write(&file, "[policy]\nall = 'off'").expect("ours");
    apply(&[]).done();
    assert_eq!(train.registration.ledger(on).quota().bytes, Some(1 << 30));
    std::fs::write(&file, "rule = []").expect("ours");
    apply(&[]).done();
    assert_eq!(train.registration.ledger(on).quota().bytes, None);
    world.gpushare(&["undo"]).done();
    assert_eq!(train.registration.ledger(on).quota().bytes, Some(1 << 30));
}

#[test]
fn what_is_exported_is_applied_elsewhere_to_the_same_effect() {
    let (here, there) = (World::new(), World::new());
    let file = here.dir().join("limits.toml");
    std::fs::write(&file, RULES).expect("ours");
    let apply = |world: &World| -> Said {
        let mut command = world.command(&["apply"]);
        command.arg(&file).said()
    };
    apply(&here).done();
    let exported = here.gpushare(&["export-config"]).done().out;
    assert!(exported.contains("label = \"train-*\""), "{exported}");
    assert!(
        exported.contains("evict-after=15m overcommit=on"),
        "{exported}"
    );
    std::fs::write(&file, &exported).expect("ours");
    apply(&there).done();
    assert_eq!(there.gpushare(&["export-config"]).done().out, exported);
}

#[test]
fn the_groups_of_jobs_and_claims_are_not_exported_and_counted_in_a_comment() {
    let world = World::new();
    let groups = [
        ("team", true),
        ("slurm-interns", true),
        ("slurm-4711", false),
        ("k8s-111122223333444455556666777", false),
        ("k8s-shared-11112222333344445555", false),
        ("k8s-team", true),
    ];
    for (group, _) in groups {
        let create = ["group", "create", group, "memory=1GiB"];
        world.gpushare(&create).done();
    }
    let config = world.gpushare(&["export-config"]).done().out;
    let first = config.lines().next().expect("a line");
    assert!(
        first.starts_with("# Groups of Slurm jobs") && first.ends_with(": 3"),
        "{config}"
    );
    for (group, stays) in groups {
        let table = format!("[group.{group}]");
        assert_eq!(config.contains(&table), stays, "{group}: {config}");
    }
    let file = write(&world, &config);
    world.gpushare(&["apply", &file]).done();
}

#[test]
fn a_rule_that_is_wrong_is_named_and_changes_nothing() {
    let world = World::new();
    let file = world.dir().join("limits.toml");
    for (text, words) in [
        (
            "[[rule]]\nname = 'a'\nlabel = 'x'",
            &["\"a\"", "sets nothing"][..],
        ),
        ("[[rule]]\nmemory = '8Q'", &["rule 1", "8Q"]),
        ("[[rule]]\nweight = 0", &["rule 1", "weight"]),
        (
            "[[rule]]\nmemory = '1G'\nuser = 'no-such-user'",
            &["no-such-user"],
        ),
        ("[[rule]]\nmemory = '1G'\nspeed = 3", &["speed"]),
        (
            "[[rule]]\nmemory = '1G'",
            &["rule 1", "no condition", "all = true"],
        ),
        ("[[rule]]\nmemory = '1G'\nall = false", &["no condition"]),
        (
            "[[rule]]\nmemory = '1G'\nall = true\nlabel = 'x'",
            &["rule 1", "has a condition"],
        ),
        (
            "[[rule]]\nlabel = 'x'\nmemory = 8",
            &["rule 1", "8 bytes", "8GiB"],
        ),
    ] {
        std::fs::write(&file, text).expect("ours");
        let mut command = world.command(&["apply"]);
        command.arg(&file).said().refused(2, words);
    }
    std::fs::write(&file, vec![b'#'; 2 << 20]).expect("ours");
    let mut command = world.command(&["apply"]);
    command.arg(&file).said().refused(2, &["1 MiB"]);
}

#[test]
fn the_standing_settings_are_applied_to_new_segments_by_the_first_run_and_never_again() {
    let world = World::new();
    let home = world.dir().join("settings");
    std::fs::create_dir_all(home.join("gpushare")).expect("ours");
    let file = home.join("gpushare/config.toml");
    std::fs::write(&file, "[[rule]]\nall = true\nmemory = '3GiB'").expect("ours");
    let dir = world.dir().join("segments");
    std::fs::create_dir(&dir).expect("ours");
    let gpushare = |args: &[&str]| -> Said {
        let mut command = world.command(args);
        command
            .env("XDG_CONFIG_HOME", &home)
            .env("GPUSHARE_DIR", &dir);
        command.said()
    };
    gpushare(&["run", "--", "true"]).done();
    assert!(gpushare(&["export-config"]).done().out.contains("3GiB"));
    std::fs::write(&file, "[[rule]]\nall = true\nmemory = '1GiB'").expect("ours");
    gpushare(&["run", "--", "true"]).done();
    gpushare(&["apply", "--if-new"]).done();
    assert!(gpushare(&["export-config"]).done().out.contains("3GiB"));
    gpushare(&["apply"]).done();
    assert!(gpushare(&["export-config"]).done().out.contains("1GiB"));
    std::fs::remove_file(&file).expect("ours");
    let said = gpushare(&["apply"]).done();
    assert!(said.err.contains("nothing to apply"), "{said:?}");
    // A mistake in the rules is reported, and the program starts.
    let other = world.dir().join("other");
    std::fs::create_dir(&other).expect("ours");
    std::fs::write(&file, "rules = 3").expect("ours");
    let mut command = world.command(&["run", "--", "true"]);
    command
        .env("XDG_CONFIG_HOME", &home)
        .env("GPUSHARE_DIR", &other);
    let said = command.said();
    assert!(said.done().err.contains("not all in force"));
}
