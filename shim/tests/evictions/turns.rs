//! Turns that include the memory (`timeslice=T swap=on`): programs that together hold more than the card's memory take turns on
//! it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{Change, EventReader, Phase, ProcessView, Segments, What};

use crate::client::{Client, MIB, OUT_OF_MEMORY, PATIENCE, look};
use crate::overcommit::{self, edit, overcommit, pause};
use crate::refusals::world;

const CARD: &str = "[[device]]\nmemory = \"64MiB\"";
const SLICE_NS: u64 = 1_000_000_000;

pub fn take_turns(bed: &Testbed, policy: &str) {
    let policy = Some(policy.parse().expect("a policy"));
    let (device, until) = (None, None);
    edit(
        bed,
        &Change::Policy {
            device,
            policy,
            until,
        },
    );
}

/// Starts a client that holds this many MiB filled with a number.
pub fn holder<'b>(bed: &'b Testbed, mib: u64, number: u64) -> Client<'b> {
    let mut client = Client::start(bed, &[("GPUSHARE_SWAPPABLE", "1")]);
    fill(&mut client, mib, number);
    client
}

/// Has a client allocate this many MiB, filled with a number.
pub fn fill(client: &mut Client<'_>, mib: u64, number: u64) {
    client.ok(&format!("alloc a {}", mib * MIB));
    client.ok(&format!("write a {number} {}", mib * MIB / 4));
}

fn has_all(client: &mut Client<'_>, mib: u64, number: u64) {
    let words = mib * MIB / 4;
    assert_eq!(client.ok(&format!("count a {number} {words}")), [words]);
}

#[test]
fn two_at_work_that_do_not_fit_together_have_the_card_in_turns_with_all_their_memory() {
    let (_file, bed) = world(CARD);
    take_turns(&bed, "timeslice=1s swap=on");
    two_at_work_take_turns(&bed, SLICE_NS);
}

#[test]
fn on_an_overcommitted_card_a_turn_lets_those_at_work_leave_too() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    take_turns(&bed, "off turn=1500ms");
    two_at_work_take_turns(&bed, SLICE_NS * 3 / 2);
}

/// Has two processes at work that do not fit together, until each has left twice. Each turn is at least this long.
fn two_at_work_take_turns(bed: &Testbed, least_ns: u64) {
    let over = AtomicBool::new(false);
    let works = |number: u64| {
        let mut client = holder(bed, 40, number);
        let mut rounds = 0_u64;
        while !over.load(Relaxed) {
            client.ok(&format!("write a {number} 1000"));
            client.ok("synchronize");
            rounds += 1;
        }
        has_all(&mut client, 40, number);
        rounds
    };
    let (one, two, turns) = thread::scope(|scope| {
        let one = scope.spawn(|| works(1));
        let two = scope.spawn(|| works(2));
        eventually("both hold all of it", PATIENCE, || {
            let processes = look(bed).processes;
            let held = |process: &ProcessView| {
                let device = process.devices.first();
                device.map_or(0, |device| device.used + device.evicted) == 40 * MIB
            };
            processes.len() == 2 && processes.iter().all(held)
        });
        let mut turns = Vec::new();
        eventually("each left twice after a turn", PATIENCE, || {
            turns = turns_of(bed);
            let own = |slot: u16| turns.iter().filter(|turn| turn.0 == slot).count();
            look(bed)
                .processes
                .iter()
                .all(|process| own(process.slot.index) >= 2)
        });
        over.store(true, Relaxed);
        (one.join().expect("well"), two.join().expect("well"), turns)
    });
    assert!(one > 100 && two > 100, "{one} and {two} rounds");
    for (_, turn) in turns {
        assert!(turn >= least_ns, "it had {turn} ns of its slice");
    }
}

#[test]
fn one_that_finds_the_card_full_waits_for_the_end_of_a_turn_and_is_not_refused() {
    let (_file, bed) = world(CARD);
    take_turns(&bed, "timeslice=2s swap=on");
    let mut one = holder(&bed, 40, 1);
    let mut two = overcommit::holding(&bed, 40);
    two.say("spin 1000 60000");
    let of_two = || {
        let processes = look(&bed).processes.into_iter();
        let mut own = processes.filter(|process| process.identity.pid == two.pid());
        own.next().expect("registered")
    };
    // Its turn began when its memory fitted.
    let began = of_two().residence.since_ns;
    assert_ne!(began, 0);
    one.begin("read a 1000");
    assert_eq!(one.watched.line(), "0 1 1");
    let left = first_left(&bed, of_two().slot.index);
    assert!(left - began >= 2 * SLICE_NS, "it had {} ns", left - began);
    // An allocation beyond the card's size is refused at once, as without turns.
    assert_eq!(one.code(&format!("alloc b {}", 128 * MIB)), OUT_OF_MEMORY);
    one.ok("free a");
    eventually("the other one goes on", PATIENCE, || {
        of_two().residence.phase == Phase::Resident
    });
}

#[test]
fn of_two_that_grow_at_the_same_time_none_waits_for_the_other_for_ever() {
    let (_file, bed) = world(CARD);
    take_turns(&bed, "timeslice=1s swap=on");
    let (mut one, mut two) = (holder(&bed, 25, 1), holder(&bed, 25, 2));
    let more = format!("alloc b {}", 30 * MIB);
    for _ in 0..2 {
        one.begin(&more);
        two.begin(&more);
        let ends = (one.end(), two.end());
        assert_eq!(ends, (0, 0), "{:?} {:?}", one.residence(), two.residence());
        has_all(&mut one, 25, 1);
        has_all(&mut two, 25, 2);
        one.ok("free b");
        two.ok("free b");
    }
}

#[test]
fn without_it_one_at_work_keeps_its_memory_and_a_higher_one_keeps_it_under_it() {
    let (_file, bed) = world(CARD);
    take_turns(&bed, "timeslice=1s");
    let one = holder(&bed, 40, 1);
    let mut two = Client::start(&bed, &[("GPUSHARE_SWAPPABLE", "1")]);
    two.denied(&format!("alloc a {}", 40 * MIB));
    take_turns(&bed, "timeslice=1s swap=on");
    let mut urgent = Client::start(
        &bed,
        &[("GPUSHARE_SWAPPABLE", "1"), ("GPUSHARE_PRIORITY", "5")],
    );
    urgent.ok(&format!("alloc a {}", 40 * MIB));
    one.reaches(Phase::Evicted);
    two.denied(&format!("alloc a {}", 40 * MIB));
    // The allocation is refused also while the urgent process does not use the device.
    pause(&bed, &urgent, true);
    two.denied(&format!("alloc a {}", 40 * MIB));
    assert_eq!(urgent.residence().phase, Phase::Resident);
}

/// A process's slot, the phase that it has reached, and the time.
pub type Move = (u16, Phase, u64);

/// Returns the moves of all processes.
pub fn moves(bed: &Testbed) -> Vec<Move> {
    let segments = Segments::open_workload(bed.dir()).expect("ours");
    let mut reader = EventReader::from_start(segments.state());
    let next = || reader.next(segments.state());
    let events = std::iter::from_fn(next).flatten();
    let moved = events.filter_map(|event| match event.what() {
        What::Residence { phase, .. } => Some((event.slot, phase, event.time_ns)),
        _ => None,
    });
    moved.collect()
}

/// Returns the time of each process between a restore and the next eviction.
fn turns_of(bed: &Testbed) -> Vec<(u16, u64)> {
    let (moves, mut turns) = (moves(bed), Vec::new());
    for (at, (slot, phase, left)) in moves.iter().enumerate() {
        let mut before = moves[..at].iter().rev().filter(|one| one.0 == *slot);
        if let (Phase::Evicting, Some((_, Phase::Resident, came))) = (phase, before.next()) {
            turns.push((*slot, left - came));
        }
    }
    turns
}

fn first_left(bed: &Testbed, slot: u16) -> u64 {
    let mut moves = moves(bed).into_iter();
    let left = moves.find(|one| (one.0, one.1) == (slot, Phase::Evicting));
    left.expect("it left").2
}
