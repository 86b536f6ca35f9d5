//! A broker that has no free descriptors.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::support::*;

/// Returns the processor time of a process, in hundredths of a second.
fn processor(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let behind = stat.rsplit(") ").next().expect("the name ends");
    let fields: Vec<&str> = behind.split(' ').collect();
    let number = |at: usize| fields[at].parse::<u64>().expect("a number");
    number(11) + number(12)
}

fn few(machine: &Machine, most: Option<u64>) {
    let pid = Pid::from_raw(machine.broker_pid() as i32).expect("one runs");
    let limit = Rlimit {
        current: most,
        // The broker has the hard limit of this process.
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    prlimit(Some(pid), Resource::Nofile, limit).expect("root may");
}

/// Starts a broker with few descriptors.
fn poor(descriptors: u32) -> Option<Machine> {
    let mut machine = Machine::new()?;
    machine.kill_broker();
    machine.serve_by(&format!(
        "ulimit -n {descriptors}; exec {} serve --group {USERS}",
        machine.path("gpushare").display()
    ));
    Some(machine)
}

#[test]
fn a_broker_without_room_for_one_more_process_says_so_and_has_room_again_when_one_ends() {
    let Some(machine) = poor(96) else { return };
    let mut tenants = Vec::new();
    let refused = (0..64).find_map(|_| {
        let tenant = machine.tenant(ALICE, "one");
        let said = tenant.hear();
        if said.starts_with("slot ") {
            tenants.push(tenant);
            return None;
        }
        Some(said)
    });
    let refused = refused.expect("96 descriptors are not enough for 64 processes");
    assert!(refused.contains("no descriptors left"), "{refused}");
    assert!(tenants.len() > 3, "{}", tenants.len());
    // Registered processes continue.
    assert_eq!(tenants[0].ask("take 1GiB"), "granted");
    tenants.truncate(1);
    eventually("there is room again", PATIENCE, || {
        machine.tenant(ALICE, "two").hear().starts_with("slot ")
    });
}

#[test]
fn a_flood_on_a_broker_with_few_descriptors_keeps_nobody_out() {
    let Some(machine) = poor(96) else { return };
    let flooder = machine.plays(MALLORY, "flooder", &[]);
    assert!(flooder.hear().starts_with("open "));
    let alice = machine.tenant(ALICE, "victim");
    assert!(alice.hear().starts_with("slot "));
}

#[test]
fn a_broker_without_any_descriptor_sleeps_until_there_are_some() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.tenant(ALICE, "stays");
    alice.hear();
    few(&machine, Some(4));
    let late = machine.tenant(MALLORY, "late");
    let before = processor(machine.broker_pid());
    std::thread::sleep(Duration::from_secs(2));
    let used = processor(machine.broker_pid()) - before;
    assert!(used < 50, "{used} hundredths of a second in two seconds");
    assert!(late.hear().starts_with("refused "));
    assert_eq!(alice.ask("take 1GiB"), "granted");
    few(&machine, Some(1024));
    assert!(machine.tenant(MALLORY, "next").hear().starts_with("slot "));
    assert_eq!(machine.process("stays")["pid"], alice.pid());
}
