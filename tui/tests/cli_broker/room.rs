//! A tenant that writes wrong amounts of free memory, and a process that must be restored.

use std::os::unix::fs::FileExt as _;

use shm_layout::{Entry, Poll, Registration, clock};

use crate::support::*;
use crate::{hostile::offset, turns::Words};

/// In a child: writes, on command, how much of the first device no account covers, or the account of the second slot's process.
pub fn crowder() {
    let words = Words::of_state();
    for order in orders() {
        let (what, bytes) = order.split_once(' ').expect("a word and a number");
        let at = match what {
            "outside" | "reserves" => words.of_device(what),
            "residence" | "host_bytes" => words.of_slot(1) + offset("Slot", what).0,
            _ => words.of_entry(1, what),
        };
        words.write(at, bytes.parse().expect("a number"));
        say("written");
    }
}

/// In a child: writes a reserve into the account of this process, of which only this process has a mapping that it can write.
pub fn forge_reserve(bytes: u64) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there");
    let is_ours = |line: &&str| line.contains("gpushare-account") && line.contains("rw-s");
    let line = maps.lines().find(is_ours).expect("a mapping");
    let begin = line.split('-').next().expect("an address");
    let begin = u64::from_str_radix(begin, 16).expect("an address");
    let memory = std::fs::File::options().write(true).open("/proc/self/mem");
    let at = begin + offset("PrivateAccount", "reserves").0;
    let written = memory.expect("ours").write_all_at(&bytes.to_ne_bytes(), at);
    written.expect("a page of its own");
}

/// In a child: asks whether a restore of this size fits.
pub fn comes_back(process: &Registration, entry: Entry, bytes: u64) -> &'static str {
    let ledger = process.ledger(entry);
    let place = ledger.enqueue_return(bytes, 0, clock::now());
    match place.poll(clock::now()) {
        Poll::Granted(back) => {
            drop(back);
            "granted"
        }
        Poll::Wait => "waits",
        Poll::Refused(_) => "refused",
    }
}

#[test]
fn who_comes_back_finds_the_room_that_its_driver_tells_of_whatever_others_say() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "away");
    let mut mallory = machine.plays(MALLORY, "crowder", &[]);
    // Until it has queried its driver it believes the shared value.
    assert_eq!(mallory.ask(&format!("outside {}", 4 * GIB)), "written");
    assert_eq!(alice.ask("back 13GiB"), "waits");
    for said in [u64::MAX, 4 * GIB, 0] {
        assert_eq!(alice.ask("free 15GiB"), "told");
        assert_eq!(mallory.ask(&format!("outside {said}")), "written");
        assert_eq!(alice.ask("back 14GiB"), "granted");
        assert_eq!(alice.ask("back 16GiB"), "waits");
    }
    // The displayed copy of another account does not matter either: the real one is where only its owner writes.
    let mut bob = machine.joined(ALICE, "there");
    assert_eq!(bob.ask("take 2GiB"), "granted");
    for shown in [0, 12 * GIB] {
        assert_eq!(mallory.ask(&format!("used {shown}")), "written");
        assert_eq!(alice.ask("free 13GiB"), "told");
        assert_eq!(alice.ask("back 13GiB"), "granted");
        assert_eq!(alice.ask("back 14GiB"), "waits");
    }
}

#[test]
fn who_evicts_believes_no_more_to_be_on_its_way_to_the_host_than_others_have_on_the_devices() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "evicts");
    let mut bob = machine.joined(ALICE, "there");
    let mut mallory = machine.plays(MALLORY, "crowder", &[]);
    assert_eq!(bob.ask("take 2GiB"), "granted");
    assert_eq!(alice.ask("to-host"), "0");
    const EVICTING: u64 = 1;
    assert_eq!(mallory.ask(&format!("residence {EVICTING}")), "written");
    assert_eq!(mallory.ask(&format!("host_bytes {GIB}")), "written");
    assert_eq!(alice.ask("to-host"), GIB.to_string());
    assert_eq!(mallory.ask(&format!("host_bytes {}", u64::MAX)), "written");
    assert_eq!(
        alice.ask("to-host"),
        (3 * GIB).to_string(),
        "with a context"
    );
}

#[test]
fn a_tenant_reserves_what_a_rule_gives_it_and_no_more_whatever_it_writes() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "alice");
    let mut mallory = machine.joined(MALLORY, "mallory");
    let mut crowder = machine.plays(MALLORY, "crowder", &[]);
    let all = 16 * GIB;
    assert_eq!(mallory.ask(&format!("forge-reserve {all}")), "written");
    assert_eq!(alice.ask("take 4GiB"), "granted", "no rule gives it any");

    let rules = machine.path("reserves.toml");
    let text =
        "[[rule]]\nuser = '61302'\nreserve = '2GiB'\n[[rule]]\nlabel = 'bob'\nreserve = '25%'\n";
    std::fs::write(&rules, text).expect("ours");
    let rules = rules.display().to_string();
    machine.run(0, &["apply", &rules]).done();
    let mut bob = machine.joined(ALICE, "bob");
    assert_eq!(bob.ask("reserve"), (4 * GIB).to_string());
    // Nobody believes more of it than the rule's 2 GiB, and its own writing over the shared words opens nothing.
    assert_eq!(crowder.ask("reserves 0"), "written");
    for slot_word in ["reserve 0", "reserve 99999999999"] {
        assert_eq!(crowder.ask(slot_word), "written");
        assert_eq!(
            alice.ask("take 7GiB"),
            "denied",
            "4 + 2 + 4 + 7 are more than 16"
        );
    }
    assert_eq!(alice.ask("take 6GiB"), "granted");
    assert_eq!(bob.ask("take 4GiB"), "granted");
    assert_eq!(mallory.ask("reserve"), (2 * GIB).to_string());
    assert_eq!(mallory.ask("take 2GiB"), "granted");
    assert_eq!(mallory.ask("take 1GiB"), "denied");
}
