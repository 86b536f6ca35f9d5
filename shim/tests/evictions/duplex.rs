//! Memory that leaves for a process that comes back: both move at once, part by part.

use std::thread;
use std::time::{Duration, Instant};

use gpushare_testbed::{Testbed, eventually};
use rustix::process::Signal;
use shm_layout::Phase;

use crate::Wish;
use crate::client::{Client, MIB, PATIENCE, look};
use crate::overcommit::overcommit;
use crate::refusals::world;
use crate::turns::{moves, take_turns};

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
    second.reaches(Phase::Evicted);
    assert_eq!(second.used() + second.evicted_bytes(), ALL);
    has_all(&mut second, 2);
    assert_eq!((second.used(), second.evicted_bytes()), (ALL, 0));
}

/// The other program is in no account, and no process measures the device while memory returns in parts.
#[test]
fn parts_wait_for_room_that_another_program_has_taken_for_a_moment() {
    let (_file, bed) = world(CARD);
    let [mut first, second] = two(&bed);
    let mut foreign = Client::start_bare(&bed, &[("GPUSHARE_DISABLE", "1")]);
    foreign.ok("init");
    foreign.ok("device 0");
    let before = moves(&bed).len();
    half_way(&mut first, &second);
    first.watched.signal(Signal::STOP);
    let mut taken = 0;
    eventually("it has taken room", PATIENCE, || {
        taken += u64::from(foreign.code(&format!("alloc f{taken} {}", 2 * MIB)) == 0);
        taken >= 3
    });
    first.watched.signal(Signal::CONT);
    thread::sleep(Duration::from_millis(100));
    for one in 0..taken {
        foreign.ok(&format!("free f{one}"));
    }
    assert_eq!(first.end(), 0);
    has_all(&mut first, 1);
    let moves = moves(&bed).split_off(before);
    let begins = moves.iter().filter(|one| one.1 == Phase::Restoring);
    assert_eq!(begins.count(), 1, "{moves:?}");
}

/// 16 of 64 MiB were free, and 2 are kept for what is in no account.
fn stays_in_part(client: &Client<'_>) {
    assert_eq!(
        (client.used(), client.evicted_bytes()),
        (12 * MIB, 36 * MIB)
    );
}

/// A switch after which the second server is on the host as far as the first needs its room.
fn in_part(bed: &Testbed) -> [Client<'_>; 2] {
    let [mut first, second] = two(bed);
    first.ok("synchronize");
    second.reaches(Phase::Evicted);
    assert!(second.residence().is_in_part);
    stays_in_part(&second);
    thread::sleep(Duration::from_nanos(first.residence().swap_ns).max(Duration::from_millis(100)));
    [first, second]
}

#[test]
fn what_the_other_has_no_use_for_stays_and_only_the_rest_has_to_return() {
    let (_file, bed) = world(CARD);
    let [mut first, mut second] = in_part(&bed);
    has_all(&mut second, 2);
    assert_eq!((second.used(), second.evicted_bytes()), (ALL, 0));
    first.reaches(Phase::Evicted);
    stays_in_part(&first);
    has_all(&mut first, 1);
}

/// The copy of each of the parts that have changed takes four seconds.
#[test]
fn what_has_changed_leaves_last_even_if_it_is_hashed_first() {
    let (_file, bed) = world("[[device]]\nmemory = \"64MiB\"\n[link]\nout = \"1MiB\"");
    overcommit(&bed, true);
    let [mut first, mut second] = [0, 0].map(|number| server(&bed, number));
    first.ok("synchronize");
    second.reaches(Phase::Evicted);
    let ends = ["a0", "a11"];
    for part in ends {
        first.ok(&format!("write {part} 1 {}", PART / 4));
    }
    first.ok("synchronize");
    thread::sleep(Duration::from_nanos(first.residence().swap_ns).max(Duration::from_millis(100)));
    let begun = Instant::now();
    second.ok("synchronize");
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(3500), "{took:?}");
    first.reaches(Phase::Evicted);
    assert!(first.residence().is_in_part);
    for part in ends {
        let right = first.ok(&format!("count {part} 1 {}", PART / 4));
        assert_eq!(right, [PART / 4]);
    }
}

#[test]
fn what_has_stayed_leaves_for_a_program_that_allocates() {
    let (_file, bed) = world(CARD);
    let [mut first, mut second] = in_part(&bed);
    let mut third = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait")]);
    third.ok(&format!("alloc a {}", 10 * MIB));
    second.reaches(Phase::Evicted);
    assert!(!second.residence().is_in_part);
    assert_eq!((second.used(), second.evicted_bytes()), (0, ALL));
    assert_eq!(
        (first.used(), first.evicted_bytes()),
        (ALL, 0),
        "it is in use more"
    );
    third.ok("free a");
    has_all(&mut second, 2);
    has_all(&mut first, 1);
}

#[test]
fn a_process_that_is_pinned_when_a_part_has_left_returns_and_stays() {
    let (_file, bed) = world(CARD);
    let [mut first, mut second] = in_part(&bed);
    second.wish(&bed, Wish::Pin(true));
    eventually("it is back", PATIENCE, || second.used() == ALL);
    first.reaches(Phase::Evicted);
    first.begin("synchronize");
    thread::sleep(Duration::from_millis(500));
    has_all(&mut second, 2);
    assert_eq!(second.used(), ALL, "whoever asks");
    second.wish(&bed, Wish::Pin(false));
    assert_eq!(first.end(), 0);
    has_all(&mut first, 1);
}

#[test]
fn what_has_stayed_leaves_when_the_operator_wants_it() {
    let (_file, bed) = world(CARD);
    let [_first, second] = in_part(&bed);
    second.wish(&bed, Wish::Evict);
    eventually("all of it has left", PATIENCE, || {
        second.evicted_bytes() == ALL
    });
    second.reaches(Phase::Evicted);
    assert!(!second.residence().is_in_part);
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

#[test]
fn what_has_stayed_leaves_before_the_context() {
    let (_file, bed) = world(CARD);
    let [_first, mut second] = in_part(&bed);
    take_turns(&bed, "off deep-after=1s");
    eventually("its context has left", PATIENCE, || {
        second.residence().is_checkpoint
    });
    assert_eq!((second.used(), second.evicted_bytes()), (0, ALL));
    has_all(&mut second, 2);
    assert_eq!((second.used(), second.evicted_bytes()), (ALL, 0));
}

/// Four servers, of which the card has room for two and a third, asked by threads of their own at different times. Each leaves and
/// returns in part and as a whole, also while others wait for what it has left.
#[test]
fn servers_that_are_asked_at_any_time_lose_nothing_and_are_all_served() {
    let card = "[[device]]\nmemory = \"112MiB\"\n[link]\nout = \"1GiB\"\nback = \"1GiB\"";
    let (_file, bed) = world(card);
    overcommit(&bed, true);
    let servers: Vec<_> = (1..=4).map(|number| server(&bed, number)).collect();
    thread::scope(|scope| {
        for (at, mut server) in (1..).zip(servers) {
            scope.spawn(move || {
                let mut number = at;
                for round in 0..12_u64 {
                    // From 7 to 97 ms: some are idle for long enough to be evicted.
                    thread::sleep(Duration::from_millis(7 + (round * 37 + at * 53) % 91));
                    let asked = Instant::now();
                    has_all(&mut server, number);
                    assert!(
                        asked.elapsed() < 4 * PATIENCE,
                        "{at} waited {:?}",
                        asked.elapsed()
                    );
                    if (round + at) % 3 == 0 {
                        number += 10;
                        write(&mut server, number);
                    }
                }
                assert_eq!(server.used() + server.evicted_bytes(), ALL);
            });
        }
    });
    let seen = moves(&bed);
    let evictions = seen.iter().filter(|one| one.1 == Phase::Evicted).count();
    assert!(evictions > 12, "{evictions} evictions");
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
