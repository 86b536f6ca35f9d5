//! Permissions of edits, and their entries in the audit log.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use shm_layout::socket::Connection;
use shm_layout::wire::{Field, Message, Verb};
use shm_layout::{Change, Set, ShareEdit, SlotId};

use crate::support::*;

#[test]
fn root_and_administrators_edit_and_the_processes_follow() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "train");
    let said = machine
        .run(0, &["quota", "set", "name:train", "4GiB", "-v"])
        .done();
    assert!(said.out.contains("applied by 1 process"), "{said:?}");
    assert_eq!(alice.ask("take 5GiB"), "denied");
    machine
        .run_admin(STRANGER, &["quota", "set", "name:train", "8GiB"])
        .refused(4, &["you may not use"]);
    let admin = machine.command(
        MALLORY,
        &["quota", "set", "name:train", "8GiB", "--reason", "more"],
    );
    said_as(&admin, &[USERS, ADMINS]).done();
    assert_eq!(alice.ask("take 5GiB"), "granted");
    machine.run(0, &["undo"]).done();
    assert_eq!(alice.ask("quota"), format!("Some({})", 4 * GIB));
    let entries = machine.audit();
    let last = entries.last().expect("logged");
    assert_eq!(last["reason"], "undo of edit 2");
    assert_eq!(entries[1]["uid"], MALLORY);
    assert_eq!(entries[1]["target"], format!("{} train", alice.pid()));
}

#[test]
fn everyone_lowers_pauses_and_resumes_their_own_and_nothing_else() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "train");
    machine
        .run(0, &["quota", "set", "name:train", "8GiB"])
        .done();
    machine
        .run(ALICE, &["quota", "set", "name:train", "4GiB"])
        .done();
    assert_eq!(alice.ask("quota"), format!("Some({})", 4 * GIB));
    for words in [
        &["quota", "set", "name:train", "8GiB"][..],
        &["quota", "set", "name:train", "none"],
        &["quota", "set", "name:train", "1GiB", "--for", "10m"],
        &["set", "name:train", "priority=5"],
        &["policy", "set", "all", "always"],
        &["group", "create", "mine", "memory=1GiB"],
    ] {
        let said = machine.run(ALICE, words).refused(4, &["administrator"]);
        assert_eq!(alice.ask("quota"), format!("Some({})", 4 * GIB), "{said:?}");
    }
    // A temporary setting of an administrator is not the user's to keep.
    machine
        .run(0, &["quota", "set", "name:train", "8GiB", "--for", "1h"])
        .done();
    machine
        .run(ALICE, &["quota", "set", "name:train", "8GiB"])
        .refused(4, &["administrator"]);
    machine
        .run(ALICE, &["quota", "set", "name:train", "4GiB"])
        .done();
    machine.run(ALICE, &["pause", "name:train"]).done();
    machine.run(ALICE, &["resume", "name:train"]).done();
    machine.run(0, &["pause", "name:train"]).done();
    machine
        .run(ALICE, &["resume", "name:train"])
        .refused(4, &["an administrator paused"]);
    machine.run(0, &["resume", "name:train"]).done();
    // A temporary pause by an administrator binds its user for that time only.
    machine
        .run(0, &["pause", "name:train", "--for", "2s"])
        .done();
    for words in [
        &["resume", "name:train"][..],
        &["pause", "name:train", "--for", "1ms"],
    ] {
        machine
            .run(ALICE, words)
            .refused(4, &["an administrator paused"]);
    }
    eventually("the pause is over", PATIENCE, || {
        machine.process("train")["state"] == "idle"
    });
    machine.run(ALICE, &["pause", "name:train"]).done();
    machine.run(ALICE, &["resume", "name:train"]).done();
    for words in [
        &["quota", "set", "name:train", "1MiB"][..],
        &["pause", "name:train"],
    ] {
        machine
            .run(MALLORY, words)
            .refused(4, &["belongs to another user"]);
    }
    assert_eq!(machine.process("train")["state"], "idle");
    let refused = machine
        .audit()
        .iter()
        .filter(|one| one["result"] == "refused")
        .count();
    assert_eq!(refused, 11, "the refused ones are written down too");
}

#[test]
fn an_administrator_has_policies_tried_and_a_user_is_refused_before_the_first_trial() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut jobs =
        [(ALICE, "serve"), (MALLORY, "train")].map(|(user, name)| machine.joined(user, name));
    assert!(jobs.iter_mut().all(|job| job.ask("work") == "at work"));
    eventually("their work is seen", PATIENCE, || {
        machine.run(ALICE, &["tune", "--dry-run"]).code == 0
    });
    let tune = ["tune", "--rounds=1", "--trial=500ms"];
    let said = machine
        .run(ALICE, &tune)
        .refused(4, &["each trial sets a policy", "ask an administrator"]);
    assert_eq!(said.out, "", "nothing was promised");

    let admin = machine.command(STRANGER, &tune);
    let said = said_as(&admin, &[USERS, ADMINS]).done();
    assert!(said.out.contains("overlap order=fair"), "{said:?}");
    let reasons: Vec<_> = machine
        .audit()
        .iter()
        .map(|edit| format!("{} {}", edit["result"], edit["reason"]))
        .collect();
    assert!(
        reasons.iter().any(|edit| edit.contains("trial 4 of 4")),
        "{reasons:?}"
    );
}

#[test]
fn a_launch_asks_for_no_more_of_turns_than_the_broker_lets_it() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let bed = gpushare_testbed::Testbed::new();
    let launched = |machine: &Machine| {
        let mut command = bed.workload(&["--seconds", "2"]);
        command.env("GPUSHARE_DIR", machine.dir());
        command.env("GPUSHARE_NAME", "greedy");
        command.env("GPUSHARE_PRIORITY", "7");
        command.env("GPUSHARE_WEIGHT", "900");
        let told = std::thread::spawn(move || said(&mut command));
        let seen = machine.process("greedy");
        let told = told.join().expect("no panic").done();
        (seen["priority"].clone(), seen["weight"].clone(), told.err)
    };
    let (priority, weight, told) = launched(&machine);
    assert_eq!((priority, weight), (0.into(), 100.into()));
    assert!(told.contains("priority 0 and weight 100 at most"), "{told}");
    machine.kill_broker();
    machine.serve(&["--launch-priority", "9", "--launch-weight", "1000"]);
    let (priority, weight, told) = launched(&machine);
    assert_eq!((priority, weight), (7.into(), 900.into()));
    assert!(!told.contains("at most"), "{told}");
}

#[test]
fn a_pause_of_ones_own_takes_no_eviction_from_an_administrators() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "train");
    // This test's process has no keeper that evicts: the command reports that, and the setting stays.
    for words in [&["--evict"][..], &["--evict", "--for", "1h"]] {
        let admin = machine
            .command(0, &["pause", "name:train"])
            .args(words)
            .spawn();
        let mut admin = Ended(admin.expect("started"));
        eventually("it is to be evicted", PATIENCE, || {
            alice.ask("share") == "paused evicted"
        });
        let _ = admin.0.kill();
        machine.run(ALICE, &["pause", "name:train"]).done();
        assert_eq!(alice.ask("share"), "paused evicted", "{words:?}");
        machine.run(0, &["resume", "name:train"]).done();
        assert_eq!(alice.ask("share"), "");
    }
    // Users may revert their own pauses.
    let own = machine
        .command(ALICE, &["pause", "name:train", "--evict"])
        .spawn();
    let _own = Ended(own.expect("started"));
    eventually("it is to be evicted", PATIENCE, || {
        alice.ask("share") == "paused evicted"
    });
    machine.run(ALICE, &["pause", "name:train"]).done();
    assert_eq!(alice.ask("share"), "paused");
}

#[test]
fn everyone_names_their_own_processes_and_the_name_outlives_the_broker() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let alice = machine.joined(ALICE, "train");
    machine
        .run(ALICE, &["set", "name:train", "name=finetune"])
        .done();
    assert_eq!(machine.process("finetune")["pid"], alice.pid());
    machine
        .run(MALLORY, &["set", "name:finetune", "name=mine"])
        .refused(4, &["belongs to another user"]);
    machine
        .run(ALICE, &["set", "name:finetune", "name=a\u{1b}[2J"])
        .refused(2, &["U+001B"]);
    machine
        .run(
            ALICE,
            &["set", "name:finetune", &format!("name={}", "x".repeat(64))],
        )
        .refused(2, &["63 bytes"]);
    let entries = machine.audit();
    assert_eq!(entries[0]["new"], "name finetune");
    assert_eq!(entries[0]["old"], "name train");
    // A refusal is not an edit, so there is nothing to undo.
    machine.run(0, &["undo"]).refused(1, &["no edit to undo"]);
    machine.kill_broker();
    machine.serve(&[]);
    assert_eq!(machine.process("finetune")["pid"], alice.pid());
}

#[test]
fn nobody_fills_the_log_with_long_words() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let _alice = machine.joined(ALICE, "train");
    let reason = "x".repeat(20_000);
    machine
        .run(ALICE, &["pause", "name:train", "--reason", &reason])
        .refused(2, &["reason", "500 bytes"]);
    assert_eq!(machine.audit().len(), 0);
}

#[test]
fn the_log_is_roots_to_write_and_the_administrators_to_read() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine.run(0, &["policy", "set", "all", "always"]).done();
    let log = machine.path("run-private").join("audit.jsonl");
    let meta = fs::metadata(log).expect("there");
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(
        (meta.permissions().mode() & 0o777, meta.gid()),
        (0o640, ADMINS)
    );
}

#[test]
fn a_tenant_is_told_who_may_read_the_log() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine.run(0, &["policy", "set", "all", "always"]).done();
    for verb in ["audit", "undo"] {
        let said = machine.run(ALICE, &[verb]);
        assert!(
            said.err
                .contains("only root and the administrators' group may read"),
            "{said:?}"
        );
        assert!(!said.err.contains("join"), "{said:?}");
    }
}

#[test]
fn a_long_log_goes_on_in_a_new_part_and_the_oldest_part_ends() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine.run(0, &["policy", "set", "all", "always"]).done();
    let dir = machine.path("run-private");
    let log = dir.join("audit.jsonl");
    let line = fs::read_to_string(&log).expect("there");
    let long = line.repeat((8 << 20) / line.len() + 1);
    for _ in 0..6 {
        fs::write(&log, &long).expect("we are root");
        machine.run(0, &["policy", "set", "all", "off"]).done();
        let text = fs::read_to_string(&log).expect("a new part");
        assert!(text.lines().count() == 1 && text.contains("off"), "{text}");
    }
    let parts = fs::read_dir(&dir).expect("ours").flatten();
    let parts = parts.filter_map(|part| {
        let name = part.file_name().into_string().ok()?;
        name.starts_with("audit.jsonl")
            .then(|| (name, part.metadata().expect("there")))
    });
    let parts: Vec<_> = parts.collect();
    assert!((2..=5).contains(&parts.len()), "{parts:?}");
    let closed = |meta: &fs::Metadata| meta.permissions().mode() & 0o007 == 0;
    assert!(parts.iter().all(|(_, meta)| closed(meta)), "{parts:?}");
    // Earlier entries can still be read.
    assert!(machine.audit().len() > 1);
}

/// In a child: repeatedly asks for an edit that it may not make, of the maximum length.
pub fn pesterer(times: u32) {
    for _ in 0..times {
        let ask = serde_json::json!({
            "change": Change::Policy { device: None, policy: None, until: None },
            "target": "\u{1}".repeat(800), "reason": "\u{1}".repeat(400), "place": "ctl",
            "expected_generation": null, "undoes": null,
        });
        let edit = Message::new(Verb::Edit).with(Field::Json, ask);
        let connection = Connection::to(&dir()).expect("it serves");
        assert!(connection.ask(&edit).is_err());
    }
    say("asked");
}

/// In a child: pauses the first process, as if that undid the edit of this generation.
pub fn undoer(generation: u64) {
    let share = ShareEdit {
        paused: Set::To(true),
        ..ShareEdit::default()
    };
    let slot = SlotId { index: 0, epoch: 1 };
    let ask = serde_json::json!({
        "change": Change::ProcessShare { slot, share },
        "target": "x", "reason": null, "place": "ctl",
        "expected_generation": null, "undoes": generation,
    });
    let edit = Message::new(Verb::Edit).with(Field::Json, ask);
    let connection = Connection::to(&dir()).expect("it serves");
    connection.ask(&edit).expect("it is the user's own");
    say("made");
}

#[test]
fn a_users_edit_does_not_count_as_the_undoing_of_an_administrators() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let _alice = machine.joined(ALICE, "train");
    for policy in ["timeslice=5ms", "timeslice=50ms"] {
        machine.run(0, &["policy", "set", "all", policy]).done();
    }
    let newest = machine.audit().last().expect("logged")["generation"].as_u64();
    let newest = newest.expect("an edit has one");
    let child = machine.plays(ALICE, "undoer", &[&newest.to_string()]);
    assert_eq!(child.hear(), "made");
    machine.run(0, &["resume", "name:train"]).done();
    machine.run(0, &["undo", &newest.to_string()]).done();
    let shown = machine.run(0, &["policy", "show"]).done();
    assert!(shown.out.contains("timeslice=5ms"), "{shown:?}");
}

#[test]
fn all_numbers_of_a_containers_root_have_one_allowance_and_what_they_are_refused_is_short() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine.run(0, &["policy", "set", "all", "always"]).done();
    let script = format!(
        "for number in 1 2 3 4 5 6 7; do \
         setpriv --reuid $((70000 + number)) --regid {USERS} --clear-groups \"$@\"; done"
    );
    let words = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        &script,
        "sh",
    ];
    let root = machine.plays_through(&words, "pesterer 30");
    for _ in 0..7 {
        assert_eq!(root.hear(), "asked");
    }
    let refused = machine.path("run-private").join("audit-refused.jsonl");
    let refused = fs::read_to_string(refused).expect("some were written down");
    let count = refused.lines().count();
    assert!((100..110).contains(&count), "{count}");
    let longest = refused.lines().map(str::len).max();
    assert!(longest < Some(2000), "{longest:?}");
    let newest = machine.audit().pop().expect("at least one");
    assert_eq!(newest["result"], "refused");
}

#[test]
fn what_others_are_refused_takes_nothing_from_what_an_administrator_may_undo() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let _alice = machine.joined(ALICE, "train");
    machine.run(0, &["policy", "set", "all", "always"]).done();
    let refuse = |reason: &str| {
        let words = ["policy", "set", "all", "off", "--reason", reason];
        machine.run(MALLORY, &words).refused(4, &["administrator"]);
    };
    let permit = |reason: &str| {
        let words = ["pause", "name:train", "--reason", reason];
        machine.run(ALICE, &words).done();
    };
    refuse("first");
    permit("first");
    let dir = machine.path("run-private");
    for (name, ask) in [
        ("audit-refused.jsonl", &refuse as &dyn Fn(&str)),
        ("audit-users.jsonl", &permit),
    ] {
        let log = dir.join(name);
        let line = fs::read_to_string(&log).expect("there");
        let long = line.repeat((8 << 20) / line.len() + 1);
        for _ in 0..6 {
            fs::write(&log, &long).expect("we are root");
            ask("again");
        }
        let text = fs::read_to_string(&log).expect("a new part");
        assert!(
            text.lines().count() == 1 && text.contains("again"),
            "{text}"
        );
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(fs::metadata(&log).expect("there").gid(), ADMINS);
        fs::remove_file(&log).expect("we are root");
        for part in 1..=4 {
            fs::remove_file(dir.join(format!("{name}.{part}"))).expect("an earlier part");
        }
    }
    machine.run(ALICE, &["resume", "name:train"]).done();
    // The second undo reverts the administrator's edit.
    machine.run(0, &["undo"]).done();
    machine.run(0, &["undo"]).done();
    let said = machine.run(0, &["policy", "show"]).done();
    assert!(!said.out.contains("always"), "{said:?}");
}

#[test]
fn root_without_a_running_broker_gets_a_sentence() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.kill_broker();
    for words in [
        &["ps"][..],
        &["policy", "set", "all", "always"],
        &["pause", "all"],
    ] {
        machine
            .run(0, words)
            .refused(1, &["does not answer", "gpushare serve"]);
    }
}

fn said_as(command: &std::process::Command, groups: &[u32]) -> crate::cli_support::Said {
    // The program `setpriv` sets several groups for a user.
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    let mut outer = std::process::Command::new("setpriv");
    outer
        .args(["--reuid", &MALLORY.to_string(), "--regid", &groups[0]])
        .args(["--groups", &groups.join(",")])
        .arg(command.get_program())
        .args(command.get_args())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    said(&mut outer)
}
