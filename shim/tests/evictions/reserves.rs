//! A reserve: memory of the device that one process can take and no other.

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{Change, GroupEdit, Phase, Reserve, Set, ShareEdit};

use crate::Wish;
use crate::client::{Client, MIB, OUT_OF_MEMORY, PATIENCE};
use crate::overcommit::{edit, overcommit, pause};
use crate::refusals::world;

/// A card on which each context takes 4 MiB in no account.
const CARD: &str = "[[device]]\nmemory = \"64MiB\"\ncontext = \"4MiB\"";

fn reserving<'b>(bed: &'b Testbed, size: &str) -> Client<'b> {
    let variables = [("GPUSHARE_RESERVE", size), ("GPUSHARE_SWAPPABLE", "1")];
    let mut client = Client::start(bed, &variables);
    // It has its context from here on.
    client.ok(&format!("alloc first {}", 2 * MIB));
    client
}

fn reserved(client: &Client<'_>) -> u64 {
    client.process().devices[0].reserved
}

#[test]
fn no_other_process_takes_what_is_reserved_and_its_owner_gets_all_of_it() {
    let (_file, bed) = world(CARD);
    let mut owner = reserving(&bed, "40MiB");
    assert_eq!(reserved(&owner), 40 * MIB);
    let mut other = Client::start(&bed, &[]);
    other.ok(&format!("alloc a {}", 12 * MIB));
    let free = other.ok("info");
    // Of 64 MiB two contexts take 8, and 40 are reserved.
    assert_eq!(other.code(&format!("alloc b {}", 5 * MIB)), OUT_OF_MEMORY);
    other.ok(&format!("alloc b {}", 4 * MIB));
    owner.ok(&format!("alloc a {}", 38 * MIB));
    owner.ok("free a");
    assert_eq!(other.code(&format!("alloc c {MIB}")), OUT_OF_MEMORY);
    other.ok("free b");
    assert_eq!(other.ok("info"), free, "others do not change what it sees");
    drop(owner);
    eventually("what was reserved is free", PATIENCE, || {
        other.code(&format!("alloc c {}", 40 * MIB)) == 0
    });
}

#[test]
fn a_process_that_waits_gets_its_memory_when_the_reserve_ends() {
    let (_file, bed) = world(CARD);
    let owner = reserving(&bed, "50%");
    assert_eq!(reserved(&owner), 32 * MIB);
    let mut other = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait")]);
    other.begin(&format!("alloc a {}", 30 * MIB));
    eventually("it waits", PATIENCE, || {
        other.process().devices[0].memory_wait.is_some()
    });
    // Longer than a process waits for those that wait themselves.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let change = Change::ProcessShare {
        slot: owner.process().slot,
        share: ShareEdit {
            reserve: Set::To(Reserve::Mib(20)),
            ..ShareEdit::default()
        },
    };
    edit(&bed, &change);
    assert_eq!(other.end(), 0);
    assert_eq!(reserved(&owner), 20 * MIB);
}

#[test]
fn an_evicted_process_keeps_its_reserve_and_comes_back_at_once() {
    let (_file, bed) = world(CARD);
    let mut owner = reserving(&bed, "40MiB");
    owner.ok(&format!("alloc a {}", 36 * MIB));
    owner.ok("write a 7 1000");
    owner.evict(&bed);
    let mut other = Client::start(&bed, &[]);
    other.ok(&format!("alloc a {}", 14 * MIB));
    assert_eq!(other.code(&format!("alloc b {}", 8 * MIB)), OUT_OF_MEMORY);
    owner.wish(&bed, Wish::Resume);
    assert_eq!(owner.ok("read a 1000"), [7, 7]);
}

#[test]
fn on_an_overcommitted_card_only_memory_beyond_the_reserve_makes_room() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut owner = reserving(&bed, "40MiB");
    owner.ok(&format!("alloc a {}", 36 * MIB));
    pause(&bed, &owner, true);
    let mut other = Client::start(&bed, &[]);
    assert_eq!(other.code(&format!("alloc a {}", 30 * MIB)), OUT_OF_MEMORY);
    assert_eq!(owner.residence().phase, Phase::Resident);
    pause(&bed, &owner, false);
    // Now it holds 20 MiB more than is reserved.
    let change = Change::ProcessShare {
        slot: owner.process().slot,
        share: ShareEdit {
            reserve: Set::To(Reserve::Mib(16)),
            ..ShareEdit::default()
        },
    };
    edit(&bed, &change);
    eventually("the rest is given up", PATIENCE, || {
        reserved(&owner) == 16 * MIB
    });
    other.ok(&format!("alloc a {}", 30 * MIB));
    owner.reaches(Phase::Evicted);
}

#[test]
fn what_a_group_has_reserved_makes_room_for_its_members_only() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    edit(
        &bed,
        &Change::Group {
            name: "team".into(),
            settings: GroupEdit {
                reserve: Set::To(Reserve::Mib(40)),
                ..GroupEdit::default()
            },
            remove: false,
        },
    );
    let member = || {
        let variables = [("GPUSHARE_GROUP", "team"), ("GPUSHARE_SWAPPABLE", "1")];
        Client::start(&bed, &variables)
    };
    let mut one = member();
    one.ok(&format!("alloc a {}", 30 * MIB));
    pause(&bed, &one, true);
    let mut other = Client::start(&bed, &[]);
    assert_eq!(other.code(&format!("alloc a {}", 30 * MIB)), OUT_OF_MEMORY);
    assert_eq!(one.residence().phase, Phase::Resident);
    let mut two = member();
    two.ok(&format!("alloc a {}", 30 * MIB));
    one.reaches(Phase::Evicted);
    assert_eq!(other.code(&format!("alloc a {}", 20 * MIB)), OUT_OF_MEMORY);
}
