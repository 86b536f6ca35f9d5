//! `gpushare pick`: returns the least busy device, and never the same device to two callers at once.

mod cli_support;

use std::collections::BTreeSet;
use std::fs;

use cli_support::{Run as _, World, uuid};

fn name(number: u8) -> String {
    gpushare_base::text::uuids::format(uuid(number), false)
}

/// Makes a world with this many devices, entered by a process.
fn devices(world: &World, count: u8) -> cli_support::Actor {
    let actor = world.actor("resident");
    for number in 0..count {
        actor.enter(number);
    }
    actor
}

#[test]
fn the_device_with_the_most_room_is_picked() {
    let world = World::new();
    let actor = devices(&world, 3);
    for (number, gib) in [(0, 8_u64), (1, 2), (2, 4)] {
        let entry = actor.registration.entry(number).expect("entered");
        assert!(actor.takes(entry, gib << 30));
    }
    let said = world.gpushare(&["pick"]).done();
    assert_eq!(said.out, format!("{}\n", name(1)));
    let said = world
        .gpushare(&["pick", "--memory", "9GiB", "--json"])
        .done()
        .json();
    assert_ne!(said["gpu"], 0, "8 of 16 GiB are taken there");
    world
        .gpushare(&["pick", "--memory", "15GiB"])
        .refused(1, &["no GPU has 15.0 GiB free"]);
}

#[test]
fn a_number_or_uuid_names_one() {
    let world = World::new();
    let _actor = devices(&world, 2);
    assert_eq!(
        world.gpushare(&["pick", "1"]).done().out,
        format!("{}\n", name(1))
    );
    assert_eq!(
        world.gpushare(&["pick", &name(0)]).done().out,
        format!("{}\n", name(0))
    );
    world.gpushare(&["pick", "2"]).refused(5, &["no GPU 2"]);
    world
        .gpushare(&["pick", "--memory", "8Q"])
        .refused(2, &["8Q"]);
}

#[test]
fn picks_that_race_get_a_device_each() {
    let world = World::new();
    let _actor = devices(&world, 4);
    let running: Vec<_> = (0..4)
        .map(|_| {
            world
                .command(&["pick"])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("built")
        })
        .collect();
    let picked: BTreeSet<String> = running
        .into_iter()
        .map(|child| child.wait_with_output().expect("our child"))
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .collect();
    assert_eq!(picked.len(), 4, "{picked:?}");
}

#[test]
fn only_listed_devices_are_picked() {
    let world = World::new();
    let _actor = devices(&world, 3);
    let list = world.dir().join("ids");
    fs::write(&list, format!("# the quiet one\n{}\n", name(2))).expect("ours");
    let pick = |args: &[&str]| {
        world
            .command(args)
            .env("GPUSHARE_ALLOWED_GPUS", &list)
            .said()
    };
    for _ in 0..3 {
        assert_eq!(pick(&["pick"]).done().out, format!("{}\n", name(2)));
    }
    pick(&["pick", "0"]).refused(1, &["not in the list"]);
    fs::write(&list, "gpu0\n").expect("ours");
    pick(&["pick"]).refused(2, &["not a UUID"]);
}

#[test]
fn a_run_stays_within_the_devices_that_its_caller_may_use() {
    let world = World::new();
    let actor = devices(&world, 3);
    // The visible device is the busiest.
    let entry = actor.registration.entry(1).expect("entered");
    assert!(actor.takes(entry, 8 << 30));
    let run = |visible: &str, words: &[&str]| -> cli_support::Said {
        let print = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];
        let mut command = world.command(&[&["run"], words, &print].concat());
        command.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
        command.env("CUDA_VISIBLE_DEVICES", visible).said()
    };
    for visible in ["1", &name(1), &name(1)[..38]] {
        for words in [&["--gpu", "auto"][..], &["--gpu", "1"], &["--wait"]] {
            let said = run(visible, words).done();
            assert_eq!(said.out, format!("{}\n", name(1)), "{visible} {words:?}");
        }
    }
    for words in [
        &["--gpu", "0"][..],
        &["--gpu", "0", "--wait"],
        &["--gpu", &name(2), "--exclusive"],
    ] {
        run("1", words).refused(2, &["--gpu", "CUDA_VISIBLE_DEVICES=\"1\" does not name gpu"]);
    }
    for none in ["", "-1", "7", "MIG-00000000-0000-0000-0000-000000000000"] {
        run(none, &["--wait"]).refused(5, &["names none of the GPUs here", "unset it"]);
    }
    // A pick is for its caller, who sets the variable.
    let mut pick = world.command(&["pick", "0"]);
    pick.env("CUDA_VISIBLE_DEVICES", "1").said().done();
}

#[test]
fn no_device_at_all_is_a_sentence() {
    World::new()
        .gpushare(&["pick"])
        .refused(5, &["found no GPU", "doctor"]);
}

#[test]
fn a_paused_process_counts_on_the_device_it_uses_and_on_no_other() {
    let world = World::new();
    let actor = devices(&world, 2);
    let entry = actor.registration.entry(0).expect("entered");
    assert!(actor.takes(entry, 1 << 30));
    world.gpushare(&["pause", "name:resident"]).done();
    let said = world.gpushare(&["pick", "--free"]).done();
    assert_eq!(said.out, format!("{}\n", name(1)));
    world
        .gpushare(&["pick", "--free", "0"])
        .refused(1, &["a process uses it"]);
}

#[test]
fn why_no_device_fits_is_explained_for_each() {
    let world = World::new();
    let actor = devices(&world, 2);
    let entry = actor.registration.entry(1).expect("entered");
    assert!(actor.takes(entry, 2 << 30));
    let other = actor.registration.entry(0).expect("entered");
    assert!(actor.takes(other, 1 << 30));
    let said = world.gpushare(&["pick", "--memory", "16GiB", "--explain"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    for words in [
        "only 15.0 GiB free",
        "only 14.0 GiB free",
        "gpushare: no GPU has 16.0 GiB free",
    ] {
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
    let said = world.gpushare(&["pick", "--memory", "15GiB", "--explain", "1"]);
    assert!(said.err.contains("only 14.0 GiB free"), "{said:?}");
}

#[test]
fn more_memory_than_any_device_has_is_not_waited_for() {
    let world = World::new();
    let _actor = devices(&world, 2);
    for words in [
        &["pick", "--memory", "99GiB"][..],
        &["run", "--wait", "--memory", "99GiB", "--", "true"],
        &["run", "--wait", "--reserve", "99GiB", "--", "true"],
    ] {
        let mut command = world.command(words);
        command.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
        command
            .said()
            .refused(5, &["the largest GPU has 16.0 GiB, not 99.0 GiB"]);
    }
    world
        .gpushare(&["pick", "--memory", "99GiB", "1"])
        .refused(5, &["gpu1 has 16.0 GiB, not 99.0 GiB"]);
}

/// A claim is only for programs that make their first allocation later.
#[test]
fn a_device_that_a_program_had_for_itself_is_free_when_that_ends() {
    let world = World::new();
    let _actor = devices(&world, 1);
    let run = |words: &[&str]| -> cli_support::Said {
        let mut command = world.command(words);
        command.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
        command.said()
    };
    let alone = [
        "run",
        "--exclusive",
        "--",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
    ];
    for _ in 0..3 {
        assert_eq!(run(&alone).done().out, format!("{}\n", name(0)));
    }
    let said = run(&["pick", "--free", "--json"]).done().json();
    assert_eq!(said["devices"][0]["claims"], 0, "{said}");
    // A claim of another pick remains.
    run(&alone).refused(1, &["no GPU is free"]);
}
