//! `gpushare apply`: a file of settings, all of it or nothing.

mod cli_support;

use std::fs;

use cli_support::World;
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
