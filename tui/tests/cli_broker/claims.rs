//! Claims between the tools of several users: a device that one of them has picked.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use gpushare_testbed::artifact;

use crate::support::*;

#[test]
fn picks_of_different_users_see_each_others_claims() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let _alice = machine.joined(ALICE, "train");
    let claims = |uid| {
        let said = machine.run(uid, &["pick", "--json"]).done().json();
        assert_eq!(said["claimed"], true, "{said}");
        said["devices"][0]["claims"].as_u64()
    };
    assert_eq!(claims(ALICE), Some(0));
    assert_eq!(claims(MALLORY), Some(1));
    assert_eq!(claims(0), Some(2));
}

#[test]
fn a_device_that_one_user_has_alone_is_picked_by_no_other_until_its_program_ends() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let library = artifact("libgpushare.so").display().to_string();
    let place = machine.path("libgpushare.so").display().to_string();
    let installed = std::process::Command::new("install")
        .args(["-m", "755", &library, &place])
        .status();
    assert!(installed.is_ok_and(|done| done.success()));
    // The device is in the table, and her process holds no memory on it.
    let _alice = machine.joined(ALICE, "train");
    let program = "echo has it; cat";
    let words = [
        "run",
        "--exclusive",
        "--best-effort",
        "--",
        "sh",
        "-c",
        program,
    ];
    let mut bob = machine.command(MALLORY, &words);
    bob.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bob = Ended(bob.spawn().expect("it starts"));
    let mut line = String::new();
    let out = bob.0.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("readable");
    assert_eq!(line, "has it\n");
    for uid in [ALICE, 0] {
        machine.run(uid, &["pick"]).refused(1, &["no GPU is free"]);
        machine
            .run(uid, &["run", "--exclusive", "--best-effort", "--", "true"])
            .refused(1, &["no GPU is free"]);
    }
    machine.kill_broker();
    machine.serve(&[]);
    // Another broker takes over the same state and its processes.
    machine
        .run(ALICE, &["pick"])
        .refused(1, &["no GPU is free"]);
    drop(bob.0.stdin.take());
    bob.0.wait().expect("it ends");
    machine.run(ALICE, &["pick"]).done();
}

#[test]
fn who_holds_all_locks_of_the_state_delays_a_pick_and_no_more() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let _alice = machine.joined(ALICE, "train");
    let hostile = machine.plays(MALLORY, "locker", &[]);
    assert_eq!(hostile.hear(), "holds");
    machine
        .run(ALICE, &["pick"])
        .refused(1, &["no GPU is free"]);
    drop(hostile);
    machine.run(ALICE, &["pick"]).done();
}
