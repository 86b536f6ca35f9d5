//! Brokers that take over from each other, at the worst moments.

use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::*;

fn upgrade(machine: &Machine) -> Ended {
    let users = USERS.to_string();
    let mut command = machine.command(0, &["serve", "--group", &users, "--upgrade"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    Ended(command.spawn().expect("started"))
}

fn has_ended(child: &mut Child) -> bool {
    child.try_wait().expect("ours").is_some()
}

/// Returns the messages of a broker that has ended.
fn complaint(child: &mut Child) -> String {
    let mut said = String::new();
    let mut err = child.stderr.take().expect("a pipe");
    err.read_to_string(&mut said).expect("readable");
    said
}

/// Returns the pid of the broker, as it reports it.
fn serving(machine: &Machine) -> Option<Value> {
    let doctor = machine.run(0, &["doctor", "--json"]);
    let findings = doctor.json()["findings"].as_array()?.clone();
    let words = findings.into_iter().find(|one| {
        one["check"] == "broker" && one["found"].to_string().contains("serves, release")
    });
    Some(words?["found"].clone())
}

/// Checks that the process has kept its slot, its bytes and its limit, and that its limit can be changed.
fn is_as_before(machine: &Machine, alice: &mut Tenant) {
    assert_eq!(machine.process("train")["pid"], alice.pid());
    let devices = &machine.process("train")["devices"];
    assert_eq!(devices[0]["used_bytes"], GIB);
    machine
        .run(0, &["quota", "set", "name:train", "2GiB"])
        .done();
    assert_eq!(alice.ask("take 2GiB"), "denied");
    machine
        .run(0, &["quota", "set", "name:train", "4GiB"])
        .done();
}

fn working(machine: &Machine) -> Tenant {
    let mut alice = machine.tenant(ALICE, "train");
    alice.hear();
    assert_eq!(alice.ask("take 1GiB"), "granted");
    alice
}

#[test]
fn of_two_that_take_over_at_once_one_serves_and_the_other_says_why_not() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let mut alice = working(&machine);
    let mut last = machine.take_broker();
    for _ in 0..5 {
        let mut both = [upgrade(&machine), upgrade(&machine)];
        eventually(
            "the earlier one has ended, and one of the two",
            PATIENCE,
            || has_ended(&mut last.0) && both.iter_mut().any(|one| has_ended(&mut one.0)),
        );
        is_as_before(&machine, &mut alice);
        let ended = both.each_mut().map(|one| has_ended(&mut one.0));
        assert_ne!(ended[0], ended[1]);
        let [first, second] = both;
        let (mut loser, winner) = if ended[0] {
            (first, second)
        } else {
            (second, first)
        };
        if !loser.0.wait().expect("ours").success() {
            let said = complaint(&mut loser.0);
            assert!(said.contains("gpushare"), "{said:?}");
        }
        last = winner;
    }
}

#[test]
fn who_registers_while_a_broker_takes_over_is_not_turned_away() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let mut alice = working(&machine);
    let mut last = machine.take_broker();
    for _ in 0..5 {
        let next = upgrade(&machine);
        let late: Vec<Tenant> = (0..8).map(|_| machine.tenant(MALLORY, "late")).collect();
        for tenant in &late {
            let said = tenant.hear();
            assert!(said.starts_with("slot "), "{said}");
        }
        eventually("the earlier one has ended", PATIENCE, || {
            has_ended(&mut last.0)
        });
        last = next;
    }
    is_as_before(&machine, &mut alice);
    eventually("all slots but one are free", PATIENCE, || {
        machine.processes().len() == 1
    });
}

#[test]
fn a_broker_that_is_killed_while_it_hands_over_leaves_all_to_the_next_one() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let mut alice = working(&machine);
    for wait in 0..8 {
        let mut next = upgrade(&machine);
        std::thread::sleep(Duration::from_millis(2 * wait));
        machine.kill_broker();
        let mut served = false;
        eventually("it serves, or has ended", PATIENCE, || {
            served = serving(&machine).is_some();
            served || has_ended(&mut next.0)
        });
        if served {
            is_as_before(&machine, &mut alice);
        }
        drop(next);
        let line = machine.serve(&[]);
        assert!(line.contains("found the memory"), "{line}");
        is_as_before(&machine, &mut alice);
    }
}

#[test]
fn a_broker_that_is_killed_while_it_takes_over_leaves_all_to_the_next_one() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let mut alice = working(&machine);
    for wait in 0..8 {
        let next = upgrade(&machine);
        std::thread::sleep(Duration::from_millis(2 * wait));
        drop(next);
        machine.kill_broker();
        let line = machine.serve(&[]);
        assert!(line.contains("found the memory"), "{line}");
        is_as_before(&machine, &mut alice);
    }
}

#[test]
fn a_broker_that_hangs_hands_nothing_over_and_its_successor_says_so() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let mut alice = working(&machine);
    let pid = Pid::from_raw(machine.broker_pid() as i32).expect("one runs");
    kill_process(pid, Signal::STOP).expect("ours");
    let mut next = upgrade(&machine);
    eventually("it gives up", PATIENCE, || has_ended(&mut next.0));
    let said = complaint(&mut next.0);
    assert!(said.contains("does not answer"), "{said}");
    machine.kill_broker();
    machine.serve(&[]);
    is_as_before(&machine, &mut alice);
}

#[test]
fn without_a_broker_there_is_none_to_take_over_from() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.kill_broker();
    let mut next = upgrade(&machine);
    eventually("it ends", PATIENCE, || has_ended(&mut next.0));
    let said = complaint(&mut next.0);
    assert!(said.contains("without --upgrade"), "{said}");
}
