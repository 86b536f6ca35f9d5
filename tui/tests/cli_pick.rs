//! `gpushare pick`: returns the least busy device, and never the same device to two callers at once.

mod cli_support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};

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
    pick(&["pick", "0"]).refused(2, &["not in the list"]);
    fs::write(&list, "gpu0\n").expect("ours");
    pick(&["pick"]).refused(2, &["not a UUID"]);
}

/// A run that waited for such a device would wait for ever.
#[test]
fn a_run_does_not_wait_for_a_device_outside_the_list() {
    let world = World::new();
    let _actor = devices(&world, 2);
    let list = world.dir().join("ids");
    let run = |words: &[&str]| -> cli_support::Said {
        let wait = ["run", "--wait", "--timeout", "20s"];
        let mut command = world.command(&[&wait, words, &["--", "true"]].concat());
        command.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
        command.env("GPUSHARE_ALLOWED_GPUS", &list).said()
    };
    fs::write(&list, format!("{}\n", name(1))).expect("ours");
    run(&["--gpu", "0"]).refused(2, &["gpu0 cannot be picked: not in the list"]);
    fs::write(&list, format!("{}\n", name(7))).expect("ours");
    run(&[]).refused(2, &["lists none of the GPUs here"]);
}

#[test]
fn a_run_that_waits_while_gpushare_is_upgraded_starts_its_program() {
    let world = World::new();
    let actor = devices(&world, 1);
    let entry = actor.registration.entry(0).expect("entered");
    assert!(actor.takes(entry, 8 << 30));
    let gpushare = world.dir().join("gpushare");
    cli_support::copy(env!("CARGO_BIN_EXE_gpushare"), &gpushare, "755");
    let mut run = std::process::Command::new(&gpushare);
    run.args([
        "run",
        "--wait",
        "--timeout",
        "60s",
        "--memory",
        "12GiB",
        "--",
        "echo",
        "started",
    ])
    .env("GPUSHARE_DIR", world.dir())
    .env("GPUSHARE_ALLOWED_GPUS", "/nonexistent/ids")
    .env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"))
    .stdout(std::process::Stdio::piped())
    .stderr(std::process::Stdio::piped());
    let mut run = run.spawn().expect("a copy runs as well");
    let mut errors = BufReader::new(run.stderr.take().expect("a pipe")).lines();
    let mut said = || errors.next().expect("it waits").expect("text");
    while !said().contains("the program waits: ") {}
    fs::remove_file(&gpushare).expect("ours");
    actor.registration.ledger(entry).release(8 << 30);
    let output = run.wait_with_output().expect("our child");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "started\n");
}

#[test]
fn a_run_that_waits_says_the_reason_again_when_it_changes() {
    let world = World::new();
    let actor = devices(&world, 1);
    let entry = actor.registration.entry(0).expect("entered");
    assert!(actor.takes(entry, 8 << 30));
    let limits = [
        "--wait",
        "--timeout",
        "8s",
        "--gpu",
        "0",
        "--memory",
        "12GiB",
    ];
    let mut command = world.command(&[&["run"], &limits[..], &["--", "true"]].concat());
    command.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
    command.stderr(std::process::Stdio::piped());
    let run = command.spawn().expect("built");
    std::thread::sleep(std::time::Duration::from_millis(3500));
    assert!(actor.takes(entry, 2 << 30));
    let output = run.wait_with_output().expect("our child");
    let said = String::from_utf8_lossy(&output.stderr);
    for free in ["8.0", "6.0"] {
        let words =
            format!("the program waits: --gpu 0: gpu0 cannot be picked: only {free} GiB free");
        assert_eq!(said.matches(&words).count(), 1, "{said}");
    }
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
        run("1", words).refused(
            2,
            &["--gpu", "CUDA_VISIBLE_DEVICES=\"1\" does not name gpu"],
        );
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

#[test]
fn a_run_waits_for_the_memory_that_is_asked_for_in_any_form() {
    let world = World::new();
    let actor = devices(&world, 2);
    for (number, gib) in [(0, 12_u64), (1, 10)] {
        let entry = actor.registration.entry(number).expect("entered");
        assert!(actor.takes(entry, gib << 30));
    }
    type Words = &'static [&'static str];
    type Variables = &'static [(&'static str, &'static str)];
    let run = |words: Words, variables: Variables| -> cli_support::Said {
        let wait = ["run", "--wait", "--timeout", "0s"];
        let print = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];
        let mut command = world.command(&[&wait, words, &print].concat());
        command.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
        command.envs(variables.iter().copied()).said()
    };
    let refused: [(Words, Variables, &str); 6] = [
        (&["--memory", "8GiB"], &[], "no GPU has 8.0 GiB free"),
        (
            &["--memory", "50%"],
            &[],
            "no GPU has 50% of its memory free",
        ),
        (&["--memory", "0:8GiB"], &[], "no GPU has 8.0 GiB free"),
        (
            &["--reserve", "50%"],
            &[],
            "no GPU has 50% of its memory free",
        ),
        (&["--gpu", "0", "--memory", "30%"], &[], "only 4.0 GiB free"),
        (
            &[],
            &[("GPUSHARE_MEMORY", "8GiB")],
            "no GPU has 8.0 GiB free",
        ),
    ];
    for (words, variables, why) in refused {
        run(words, variables).refused(1, &[why, "(waited "]);
    }
    for (words, variables) in [
        (&["--memory", "30%"][..], &[][..]),
        (&["--memory", "0:5GiB"], &[]),
        (&[], &[("GPUSHARE_MEMORY", "35%")]),
    ] {
        let said = run(words, variables).done();
        assert_eq!(said.out, format!("{}\n", name(1)), "{words:?}");
    }
    // The option stands above the variable.
    let said = run(&["--memory", "5GiB"], &[("GPUSHARE_MEMORY", "8GiB")]).done();
    assert_eq!(said.out, format!("{}\n", name(1)));
    run(&["--memory", "100%"], &[]).done();
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
    run(&alone).refused(1, &["no GPU is free; gpushare run --wait waits for one"]);
    let waits = [&["run", "--wait", "--timeout", "300ms"], &alone[1..]].concat();
    let words = "no GPU is free; gpushare pick --explain shows each (waited";
    run(&waits).refused(1, &[words]);
}
