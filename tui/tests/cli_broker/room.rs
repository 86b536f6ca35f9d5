//! A tenant that writes wrong amounts of free memory, and a process that must be restored.

use shm_layout::{Entry, Poll, Registration, clock};

use crate::support::*;
use crate::{hostile::offset, turns::Words};

/// In a child: writes, on command, how much of the first device no account covers, or the account of the second slot's process.
pub fn crowder() {
    let words = Words::of_state();
    for order in orders() {
        let (what, bytes) = order.split_once(' ').expect("a word and a number");
        let at = match what {
            "outside" => words.of_device(what),
            "residence" | "host_bytes" => words.of_slot(1) + offset("Slot", what).0,
            _ => words.of_entry(1, what),
        };
        words.write(at, bytes.parse().expect("a number"));
        say("written");
    }
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
