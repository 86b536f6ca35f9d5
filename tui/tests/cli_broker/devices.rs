//! Invented devices of a tenant: they do not keep other tenants' devices out of the table.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use shm_layout::{Identity, LaunchLimits, Segments, register};

use crate::hostile::{handed, is_well, offset};
use crate::support::*;

/// In a child: enters invented devices in the table, once or repeatedly.
pub fn filler(once: bool) {
    let [state, ..] = handed().map(File::from);
    let (devices, all) = offset("State", "devices");
    let count = all / 1088;
    let fill = || {
        for index in 0..count {
            let key = state.write_all_at(&(index + 1).to_le_bytes(), devices + index * 1088);
            key.expect("a tenant may write");
        }
    };
    fill();
    say("filled");
    if once {
        return sleep_on();
    }
    loop {
        fill();
    }
}

/// In a child: asks the broker to enter as many invented devices as a process may use.
pub fn namer(first: u8) {
    let limits = LaunchLimits::default();
    let segments = Segments::open_to_register(&dir(), "namer", &limits);
    let segments = segments.expect("it serves");
    let identity = Identity::of_self_in(&segments, "namer");
    let process = register(&segments, &identity, &limits).expect("a slot");
    let entered = (0..16).map(|index| process.add_device([first + index; 16], index, "", 1, 0));
    let all: Vec<_> = entered.collect();
    let why = all.iter().find_map(|one| one.as_ref().err());
    let count = all.iter().filter(|one| one.is_ok()).count();
    say(format_args!(
        "named {count} {}",
        why.map_or(String::new(), ToString::to_string)
    ));
    sleep_on();
}

#[test]
fn a_table_filled_with_devices_keeps_no_process_from_its_own() {
    for how in ["once", "without an end"] {
        let Some(machine) = Machine::new() else {
            return;
        };
        machine.run(0, &["policy", "set", "all", "always"]).done();
        let filler = machine.plays(MALLORY, "filler", &[how]);
        assert_eq!(filler.hear(), "filled");
        let mut all: Vec<_> = (0..8).map(|_| machine.joined(ALICE, "victim")).collect();
        // All on one device: one process has the lock, the others wait for it.
        assert_eq!(all[0].ask("lock"), "held", "{how}");
        all[1..].iter_mut().for_each(|one| one.tell("lock"));
        for index in 1..all.len() {
            assert_eq!(all[index - 1].ask("unlock"), "released", "{how}");
            assert_eq!(all[index].hear(), "held", "{how}");
        }
    }
}

#[test]
fn devices_that_a_tenant_makes_up_keep_no_other_ones_device_out_and_go_with_their_processes() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let name = |first: u8| machine.plays(MALLORY, "namer", &[&first.to_string()]);
    let namers: Vec<_> = (0..5).map(|index| name(100 + 16 * index)).collect();
    let said: Vec<_> = namers.iter().map(Tenant::hear).collect();
    let why = "are kept for users who have less than 8 to themselves, and user 61302 has 56";
    assert!(said.iter().any(|one| one.contains(why)), "{said:?}");
    let named = |said: &str| {
        said.split(' ')
            .nth(1)
            .and_then(|count| count.parse::<usize>().ok())
    };
    let all: usize = said.iter().filter_map(|one| named(one)).sum();
    assert_eq!(all, 56, "{said:?}");
    let mut alice = machine.joined(ALICE, "victim");
    is_well(&machine, &mut alice, "4GiB", 4 * GIB);
    drop(namers);
    eventually("what nobody uses goes", PATIENCE, || {
        name(200).hear().starts_with("named 16")
    });
}
