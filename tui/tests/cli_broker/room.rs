//! A tenant that lies about the room on a device, and who comes back to it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use shm_layout::{Denial, Entry, Limit, Look, Registration, Want, WantKind, clock};

use crate::hostile::{handed, offset};
use crate::support::*;

/// In a child: says, when it is told to, that programs without an account have so many bytes of the first device.
pub fn crowder() {
    let [state, ..] = handed().map(File::from);
    let at = offset("State", "devices").0 + offset("Device", "outside").0;
    for order in orders() {
        let bytes: u64 = order.parse().expect("a number");
        let written = state.write_all_at(&bytes.to_ne_bytes(), at);
        written.expect("a tenant may write");
        say("written");
    }
}

/// In a child: whether there is room for so much that comes back.
pub fn comes_back(process: &Registration, entry: Entry, bytes: u64) -> &'static str {
    let ledger = process.ledger(entry);
    let kind = WantKind::Return { margin: 0 };
    let denial = Denial {
        limit: Limit::Device,
        used: 0,
        quota: 16 * GIB,
        asked: bytes,
    };
    let place = ledger.line_up(Want { bytes, kind }, denial, clock::now());
    match place.look(clock::now()) {
        Look::Granted(back) => {
            drop(back);
            "granted"
        }
        Look::Wait => "waits",
        Look::Refused(_) => "refused",
    }
}

#[test]
fn who_comes_back_finds_the_room_that_its_driver_tells_of_whatever_others_say() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "away");
    let mut mallory = machine.plays(MALLORY, "crowder", &[]);
    // Before it has asked its driver it believes what is said.
    assert_eq!(mallory.ask(&(4 * GIB).to_string()), "written");
    assert_eq!(alice.ask("back 13GiB"), "waits");
    assert_eq!(alice.ask("free 15GiB"), "told");
    for said in [u64::MAX, 4 * GIB] {
        assert_eq!(mallory.ask(&said.to_string()), "written");
        assert_eq!(alice.ask("back 14GiB"), "granted");
        assert_eq!(alice.ask("back 16GiB"), "waits");
    }
}
