//! Use of the freed memory by other processes: a restore starts only when the whole footprint fits.

use std::time::Duration;

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{Phase, QuotaValue};

use crate::Wish;
use crate::client::{Client, MIB, OUT_OF_MEMORY, PATIENCE};
use crate::refusals::world;

const CARD: &str = "[[device]]\nmemory = \"1GiB\"";

#[test]
fn a_card_is_filled_twice_and_who_comes_back_waits_until_there_is_room() {
    let (_file, bed) = world(CARD);
    let (mut one, mut two) = (Client::start(&bed, &[]), Client::start(&bed, &[]));
    one.ok(&format!("alloc a {}", 800 * MIB));
    one.ok("write a 5 1000");
    assert_eq!(two.code(&format!("alloc a {}", 800 * MIB)), OUT_OF_MEMORY);
    one.evict(&bed);
    two.ok(&format!("alloc a {}", 800 * MIB));
    one.wish(&bed, Wish::Resume);
    one.watched.say("read a 1000");
    one.reaches(Phase::Returning);
    assert_eq!(one.watched.line_within(Duration::from_millis(300)), None);
    assert_eq!(one.residence().phase, Phase::Returning, "and not lost");
    two.ok("free a");
    assert_eq!(one.watched.line(), "0 5 5");
    assert_eq!(one.used(), 800 * MIB);
}

#[test]
fn who_comes_back_waits_until_those_before_it_have_left_the_card_and_not_only_the_accounts() {
    let (_file, bed) = world(CARD);
    let mut one = Client::start(&bed, &[]);
    // The process ends 1.5 s after it has closed its account.
    let mut two = Client::start_bare(&bed, &[]);
    two.ok("linger 1500");
    two.ok("init");
    two.ok("device 0");
    one.ok(&format!("alloc a {}", 800 * MIB));
    one.ok("write a 5 1000");
    one.evict(&bed);
    two.ok(&format!("alloc a {}", 800 * MIB));
    one.wish(&bed, Wish::Resume);
    one.watched.say("read a 1000");
    one.reaches(Phase::Returning);
    two.watched.say("quit");
    assert_eq!(one.watched.line(), "0 5 5");
    assert_eq!(one.residence().phase, Phase::Resident);
}

#[test]
fn a_quota_of_the_group_is_kept_on_the_way_back_and_a_lowered_one_of_its_own_is_not_asked() {
    let bed = Testbed::new();
    let operator = shm_layout::Operator::open(bed.dir()).expect("made at need");
    let change = shm_layout::Change::Group {
        name: "g".into(),
        settings: shm_layout::GroupEdit {
            memory: shm_layout::Set::To(QuotaValue::Bytes(100 * MIB)),
            ..shm_layout::GroupEdit::default()
        },
        remove: false,
    };
    operator
        .edit(None, &change, shm_layout::clock::now())
        .expect("a valid edit");
    let member = [("GPUSHARE_GROUP", "g")];
    let (mut one, mut two) = (Client::start(&bed, &member), Client::start(&bed, &member));
    one.ok(&format!("alloc a {}", 80 * MIB));
    one.evict(&bed);
    two.ok(&format!("alloc a {}", 80 * MIB));
    let change = shm_layout::Change::ProcessQuota {
        slot: one.process().slot,
        device: None,
        value: QuotaValue::Bytes(MIB),
        until: None,
    };
    operator
        .edit(None, &change, shm_layout::clock::now())
        .expect("a valid edit");
    one.wish(&bed, Wish::Resume);
    one.watched.say("synchronize");
    one.reaches(Phase::Returning);
    two.ok("free a");
    assert_eq!(one.watched.line(), "0");
    assert_eq!(one.used(), 80 * MIB);
    one.denied("alloc b 1");
}

#[test]
fn several_that_come_back_at_once_come_one_after_the_other() {
    let (_file, bed) = world(CARD);
    let mut clients: Vec<Client<'_>> = (0..3).map(|_| Client::start(&bed, &[])).collect();
    for client in &mut clients {
        client.ok(&format!("alloc a {}", 600 * MIB));
        client.ok("write a 9 100");
        client.evict(&bed);
    }
    for client in &mut clients {
        client.wish(&bed, Wish::Resume);
        client.watched.say("read a 100");
    }
    // The processes have the card in turn: a restored one is evicted again.
    let mut waiting: Vec<usize> = vec![0, 1, 2];
    while !waiting.is_empty() {
        eventually("one of them is back", PATIENCE, || {
            let back = waiting
                .iter()
                .position(|at| clients[*at].residence().phase == Phase::Resident);
            let Some(back) = back else { return false };
            let at = waiting.remove(back);
            assert_eq!(clients[at].watched.line(), "0 9 9");
            clients[at].ok("free a");
            true
        });
    }
}

#[test]
fn two_that_take_the_card_from_each_other_lose_nothing() {
    let (_file, bed) =
        world("[[device]]\nmemory = \"1GiB\"\n[checkpoint]\nout = \"8GiB\"\nback = \"16GiB\"");
    let (mut one, mut two) = (Client::start(&bed, &[]), Client::start(&bed, &[]));
    one.ok(&format!("alloc a {}", 600 * MIB));
    one.ok("write a 1 100");
    one.evict(&bed);
    two.ok(&format!("alloc a {}", 600 * MIB));
    two.ok("write a 2 100");
    for _ in 0..4 {
        // One leaves while the other returns, and no process waits for anything but its own reply.
        two.wish(&bed, Wish::Evict);
        one.wish(&bed, Wish::Resume);
        assert_eq!(one.ok("read a 100"), [1, 1]);
        one.wish(&bed, Wish::Evict);
        two.wish(&bed, Wish::Resume);
        assert_eq!(two.ok("read a 100"), [2, 2]);
    }
    one.wish(&bed, Wish::Resume);
    two.ok("free a");
    assert_eq!(one.ok("read a 100"), [1, 1]);
    assert_eq!(one.used(), 600 * MIB);
}

#[test]
fn a_kill_at_any_time_of_the_way_leaves_the_card_to_the_other() {
    let (_file, bed) =
        world("[[device]]\nmemory = \"1GiB\"\n[checkpoint]\nout = \"4GiB\"\nback = \"4GiB\"");
    let mut other = Client::start(&bed, &[]);
    other.ok(&format!("alloc a {}", 300 * MIB));
    other.ok("write a 4 100");
    other.evict(&bed);
    for delay in [0, 20, 60, 110, 140, 170, 220, 300, 400] {
        let mut client = Client::start(&bed, &[]);
        client.ok(&format!("alloc a {}", 600 * MIB));
        client.wish(&bed, Wish::Evict);
        std::thread::sleep(Duration::from_millis(delay));
        client.wish(&bed, Wish::Resume);
        client.watched.say("synchronize");
        std::thread::sleep(Duration::from_millis(delay / 2));
        client.watched.signal(rustix::process::Signal::KILL);
        eventually("it ends", PATIENCE, || client.watched.ended());
    }
    other.wish(&bed, Wish::Resume);
    assert_eq!(other.ok("read a 100"), [4, 4]);
    other.ok(&format!("alloc b {}", 600 * MIB));
}

/// Makes an evicted client, and another whose pool has since filled the card with memory that no account covers.
fn evicted_beside_a_full_pool<'b>(bed: &'b Testbed) -> (Client<'b>, Client<'b>) {
    let (mut one, mut two) = (Client::start(bed, &[]), Client::start(bed, &[]));
    one.ok(&format!("alloc a {}", 600 * MIB));
    one.ok("write a 5 1000");
    one.evict(bed);
    two.ok("pool-default p 0");
    two.ok(&format!("pool-keep p {}", 1_u64 << 40));
    two.ok(&format!("async a {}", 700 * MIB));
    two.ok("free-async a");
    two.ok("synchronize");
    assert_eq!(two.used(), 0);
    (one, two)
}

#[test]
fn what_a_pool_of_another_process_keeps_is_waited_for() {
    let (_file, bed) = world(CARD);
    let (mut one, mut two) = evicted_beside_a_full_pool(&bed);
    one.wish(&bed, Wish::Resume);
    one.begin("read a 1000");
    one.reaches(Phase::Returning);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(one.residence().phase, Phase::Returning, "and not lost");
    two.ok("pool-trim p 0");
    assert_eq!(one.watched.line(), "0 5 5");
}

#[test]
fn a_program_that_is_not_managed_is_seen_by_another_that_is_on_the_card() {
    let (_file, bed) = world(CARD);
    let mut one = Client::start(&bed, &[]);
    let _other = Client::start(&bed, &[]);
    one.ok(&format!("alloc a {}", 600 * MIB));
    one.ok("write a 5 1000");
    one.evict(&bed);
    let mut foreign = Client::start_bare(&bed, &[("GPUSHARE_DISABLE", "1")]);
    foreign.ok("init");
    foreign.ok("device 0");
    foreign.ok(&format!("alloc a {}", 800 * MIB));
    one.wish(&bed, Wish::Resume);
    one.begin("read a 1000");
    one.reaches(Phase::Returning);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(one.residence().phase, Phase::Returning, "and not lost");
    foreign.ok("free a");
    assert_eq!(one.watched.line(), "0 5 5");
}

#[test]
fn a_restore_that_the_driver_refuses_for_want_of_room_and_does_not_lose_is_tried_again() {
    let (_file, bed) = world(&format!("{CARD}\n[mishaps]\ncheckpoint = \"room\""));
    let mut one = Client::start(&bed, &[]);
    one.ok(&format!("alloc a {}", 600 * MIB));
    one.ok("write a 5 1000");
    one.evict(&bed);
    // No process of ours is there to see it.
    let mut foreign = Client::start_bare(&bed, &[("GPUSHARE_DISABLE", "1")]);
    foreign.ok("init");
    foreign.ok("device 0");
    foreign.ok(&format!("alloc a {}", 800 * MIB));
    one.wish(&bed, Wish::Resume);
    one.begin("read a 1000");
    eventually("it was tried", PATIENCE, || {
        one.watched.stderr().contains("tries again")
    });
    assert_eq!(one.residence().phase, Phase::Returning, "and not lost");
    foreign.ok("free a");
    assert_eq!(one.watched.line(), "0 5 5");
    assert_eq!(one.used(), 600 * MIB);
}

#[test]
fn a_context_is_not_made_in_the_room_of_memory_that_comes_back() {
    let (_file, bed) = world(&format!("{CARD}\n[checkpoint]\nback = \"300MiB\""));
    let mut one = Client::start(&bed, &[]);
    one.ok(&format!("alloc a {}", 600 * MIB));
    one.ok("write a 5 1000");
    one.evict(&bed);
    let mut two = Client::start_bare(&bed, &[]);
    two.ok("init");
    one.wish(&bed, Wish::Resume);
    one.begin("read a 1000");
    one.reaches(Phase::Restoring);
    two.begin("device 0");
    assert!(two.goes_on(), "it waits while the memory is on its way");
    assert_eq!(one.watched.line(), "0 5 5");
    assert_eq!(two.end(), 0);
}

#[test]
fn a_primary_context_that_is_there_is_retained_while_memory_comes_back() {
    let (_file, bed) = world(&format!("{CARD}\n[checkpoint]\nback = \"100MiB\""));
    let mut one = Client::start(&bed, &[]);
    let mut two = Client::start(&bed, &[]);
    one.ok(&format!("alloc a {}", 600 * MIB));
    one.ok("write a 5 1000");
    one.evict(&bed);
    one.wish(&bed, Wish::Resume);
    one.begin("read a 1000");
    one.reaches(Phase::Restoring);
    two.ok("device 0");
    assert!(one.goes_on(), "its memory is still on its way");
    assert_eq!(one.watched.line(), "0 5 5");
}
