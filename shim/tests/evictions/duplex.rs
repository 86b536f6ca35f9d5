//! Memory that leaves for a process that comes back: both move at once, part by part.

use std::thread;
use std::time::{Duration, Instant};

use gpushare_testbed::{Testbed, eventually};
use rustix::process::Signal;
use shm_layout::Phase;

use crate::client::{Client, MIB, PATIENCE, look};
use crate::overcommit::overcommit;
use crate::refusals::world;
use crate::turns::moves;

/// A card with a link that moves a server's memory in a second and a half.
const CARD: &str = "[[device]]\nmemory = \"64MiB\"\n[link]\nout = \"32MiB\"\nback = \"32MiB\"";
const PARTS: u64 = 12;
const PART: u64 = 4 * MIB;
const ALL: u64 = PARTS * PART;

/// Starts a server with 48 MiB in twelve parts.
fn server(bed: &Testbed, number: u64) -> Client<'_> {
    let variables = [("GPUSHARE_SWAPPABLE", "1"), ("GPUSHARE_ON_FULL", "wait")];
    let mut client = Client::start(bed, &variables);
    for part in 0..PARTS {
        client.ok(&format!("alloc a{part} {PART}"));
    }
    write(&mut client, number);
    client
}

/// Writes all of the memory, so that the host has no copy of it.
fn write(client: &mut Client<'_>, number: u64) {
    for part in 0..PARTS {
        client.ok(&format!("write a{part} {number} {}", PART / 4));
    }
    client.ok("synchronize");
}

fn has_all(client: &mut Client<'_>, number: u64) {
    for part in 0..PARTS {
        let right = client.ok(&format!("count a{part} {number} {}", PART / 4));
        assert_eq!(right, [PART / 4], "a{part}");
    }
}

/// Two servers that do not fit together. The second is on the card.
fn two(bed: &Testbed) -> [Client<'_>; 2] {
    overcommit(bed, true);
    let servers = [1, 2].map(|number| server(bed, number));
    servers[0].reaches(Phase::Evicted);
    thread::sleep(
        Duration::from_nanos(servers[0].residence().swap_ns).max(Duration::from_millis(100)),
    );
    servers
}

/// Asks the first server and waits until it has more than was free at first while the second still leaves.
fn half_way(first: &mut Client<'_>, second: &Client<'_>) {
    first.begin("synchronize");
    let free = 64 * MIB - ALL;
    eventually("it has parts", PATIENCE, || first.used() > free);
    assert_eq!(second.residence().phase, Phase::Evicting);
    assert!(second.used() > 0);
}

#[test]
fn the_first_of_the_memory_is_back_before_the_last_of_the_other_has_left() {
    let (_file, bed) = world(CARD);
    let [mut first, mut second] = two(&bed);
    half_way(&mut first, &second);
    assert_eq!(first.end(), 0);
    has_all(&mut first, 1);
    assert_eq!((first.used(), first.evicted_bytes()), (ALL, 0));
    eventually("it has left", PATIENCE, || second.evicted_bytes() == ALL);
    has_all(&mut second, 2);
    assert_eq!((second.used(), second.evicted_bytes()), (ALL, 0));
}

#[test]
fn a_switch_of_changed_memory_takes_as_long_as_the_longer_of_both_ways() {
    let (_file, bed) = world(CARD);
    let mut servers = two(&bed);
    let (mut switches, mut numbers) = (Vec::new(), [1, 2]);
    for at in [0, 1, 0, 1] {
        let other = servers[1 - at].residence().swap_ns;
        thread::sleep(Duration::from_nanos(other).max(Duration::from_millis(100)));
        numbers[1 - at] += 10;
        write(&mut servers[1 - at], numbers[1 - at]);
        thread::sleep(Duration::from_millis(100));
        let before = moves(&bed).len();
        let began = Instant::now();
        servers[at].ok("synchronize");
        switches.push(began.elapsed());
        servers[1 - at].reaches(Phase::Evicted);
        let moves = moves(&bed).split_off(before);
        let of = |phase| moves.iter().position(|one| one.1 == phase);
        assert!(of(Phase::Restoring) < of(Phase::Evicted), "{moves:?}");
        has_all(&mut servers[at], numbers[at]);
    }
    eprintln!("a switch of 48 MiB over 32 MiB/s each way: {switches:?}");
}

/// Kills one of two servers in a switch, once the first has this many parts. The other then has the card.
fn kill_at(parts: u64, dies: usize) {
    let (_file, bed) = world(CARD);
    let mut servers = two(&bed);
    servers[0].begin("synchronize");
    eventually("it has come so far", PATIENCE, || {
        let moves = servers[1].residence().phase != Phase::Resident;
        moves && servers[0].used() >= parts * PART
    });
    servers[dies].watched.signal(Signal::KILL);
    eventually("it ends", PATIENCE, || servers[dies].watched.ended());
    let other = 1 - dies;
    if dies == 1 {
        assert_eq!(servers[0].end(), 0);
    }
    has_all(&mut servers[other], 1 + other as u64);
    eventually("the slot is given back", PATIENCE, || {
        look(&bed).processes.len() == 1
    });
    servers[other].ok(&format!("alloc b {}", 8 * MIB));
    assert_eq!(servers[other].used(), ALL + 8 * MIB);
}

#[test]
fn a_kill_at_any_step_of_a_switch_leaves_the_card_to_the_other() {
    thread::scope(|scope| {
        for (parts, dies) in [0, 1, 5, PARTS - 1, PARTS]
            .into_iter()
            .flat_map(|parts| [(parts, 0), (parts, 1)])
        {
            scope.spawn(move || kill_at(parts, dies));
        }
    });
}
