//! Servers that together need more memory than an overcommitted card has, and are asked at any time: a request has the memory of an
//! idle server moved to the host and its own back.

use std::thread;
use std::time::{Duration, Instant};

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{Phase, Why};

use crate::client::{Client, MIB, PATIENCE, look};
use crate::overcommit::{at_work, holding, overcommit};
use crate::refusals::world;
use crate::turns::{Move, moves};

/// A card whose link moves all of its memory in a quarter of a second.
const CARD: &str = "[[device]]\nmemory = \"64MiB\"\n[link]\nout = \"256MiB\"\nback = \"256MiB\"";
/// A server that holds this many MiB filled with a number.
struct Server<'b> {
    client: Client<'b>,
    mib: u64,
    number: u64,
}

impl<'b> Server<'b> {
    fn start(bed: &'b Testbed, mib: u64, number: u64) -> Self {
        let variables = [("GPUSHARE_SWAPPABLE", "1"), ("GPUSHARE_ON_FULL", "wait")];
        let mut client = Client::start(bed, &variables);
        client.ok(&format!("alloc a {}", mib * MIB));
        let mut server = Self {
            client,
            mib,
            number,
        };
        server.write();
        server
    }

    /// Writes all of the memory, so that the host has no copy of it.
    fn write(&mut self) {
        let words = self.mib * MIB / 4;
        self.client.ok(&format!("write a {} {words}", self.number));
        self.client.ok("synchronize");
    }

    /// Sends one request and returns the time to its answer, which depends on all of the memory.
    fn request(&mut self) -> Duration {
        let began = Instant::now();
        let last = self.client.ok(&format!("read a {}", self.mib * MIB / 4));
        assert_eq!(last, [self.number, self.number]);
        began.elapsed()
    }
}

#[test]
fn two_servers_that_are_asked_every_two_seconds_answer_half_a_second_after_the_copies() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut servers = [1, 2].map(|number| Server::start(&bed, 40, number));
    let mut all = Vec::new();
    for server in [0, 1, 0, 1, 0, 1, 0, 1] {
        let other = servers[1 - server].client.residence();
        let stays = Duration::from_nanos(other.swap_ns);
        thread::sleep(stays.max(Duration::from_secs(1)));
        let before = moves(&bed).len();
        let wait = servers[server].request();
        let moved = moved(&moves(&bed)[before..]);
        assert!(moved > Duration::ZERO, "the request brought it back");
        all.push((wait.saturating_sub(moved), moved));
    }
    // On a busy machine one of them may be late.
    all.sort_unstable();
    assert!(all[4].0 <= Duration::from_millis(500), "{all:?}");
}

/// Returns how long memory was on its way, out and back.
fn moved(moves: &[Move]) -> Duration {
    let ends = moves
        .iter()
        .enumerate()
        .filter_map(|(at, &(slot, phase, ended))| {
            let step = match phase {
                Phase::Evicted => Phase::Evicting,
                Phase::Resident => Phase::Restoring,
                _ => return None,
            };
            let mut before = moves[..at].iter().rev();
            let (.., began) = before.find(|one| (one.0, one.1) == (slot, step))?;
            Some(Duration::from_nanos(ended - began))
        });
    ends.sum()
}

#[test]
fn of_four_servers_that_are_asked_at_once_each_answers_in_its_turn() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut servers = [1, 2, 3, 4].map(|number| Server::start(&bed, 24, number));
    for _ in 0..3 {
        let before = moves(&bed).len();
        thread::scope(|scope| {
            for server in &mut servers {
                scope.spawn(|| server.request());
            }
        });
        let moves = &moves(&bed)[before..];
        assert!(most_before(moves) <= 3, "{moves:?}");
    }
}

#[test]
fn for_a_server_that_comes_back_one_idle_server_leaves_and_no_second_one() {
    let (_file, bed) = world(&format!("{CARD}\n[mishaps]\nslow_event = \"1ms\""));
    overcommit(&bed, true);
    let mut servers = [1, 2, 3, 4].map(|number| Server::start(&bed, 18, number));
    for _ in 0..8 {
        let stays = servers
            .iter()
            .map(|server| server.client.residence().swap_ns);
        let stays = Duration::from_nanos(stays.max().expect("four"));
        // All are idle then, and none has just come back.
        thread::sleep(stays.max(Duration::from_millis(300)));
        let before = moves(&bed).len();
        let mut all = servers.iter_mut();
        let evicted = all.find(|one| one.client.residence().phase == Phase::Evicted);
        evicted.expect("three fit").write();
        let moves = moves(&bed).split_off(before);
        let left = moves.iter().filter(|one| one.1 == Phase::Evicting);
        assert_eq!(left.count(), 1, "three fit beside each other: {moves:?}");
    }
}

/// Allocations of 3 MiB take 4 MiB of the card each, which their return asks for beside their bytes.
#[test]
fn for_memory_that_needs_room_beside_its_bytes_enough_leaves() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let start = |count: u64, mib: u64| {
        let variables = [("GPUSHARE_SWAPPABLE", "1"), ("GPUSHARE_ON_FULL", "wait")];
        let mut client = Client::start(&bed, &variables);
        for number in 0..count {
            client.ok(&format!("alloc a{number} {}", mib * MIB));
        }
        client.ok("synchronize");
        thread::sleep(Duration::from_millis(300));
        client
    };
    let mut odd = start(8, 3);
    let _even = start(20, 2);
    odd.reaches(Phase::Evicted);
    odd.ok("synchronize");
}

#[test]
fn a_process_with_a_long_kernel_is_not_suspended_before_its_end() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut busy = holding(&bed, 40);
    let mut newcomer = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait")]);
    let kernel = Duration::from_secs(3);
    let began = Instant::now();
    assert_eq!(busy.ask(&format!("launch {} 1", kernel.as_micros())), "ok");
    newcomer.begin(&format!("alloc a {}", 40 * MIB));
    let residence = || {
        let processes = look(&bed).processes;
        let own = processes.iter().find(|one| one.identity.pid == busy.pid());
        own.expect("registered").residence
    };
    eventually("it says what it waits for", PATIENCE, || {
        residence().why == Some(Why::Busy)
    });
    eventually("it leaves", PATIENCE, || {
        residence().phase == Phase::Evicted
    });
    assert!(began.elapsed() >= kernel * 9 / 10, "{:?}", began.elapsed());
    assert_eq!(attempts(&bed), 1, "it was not tried before");
    assert_eq!(newcomer.end(), 0);
}

#[test]
fn a_small_server_among_large_ones_that_are_always_asked_is_served() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut servers =
        [(56, 1), (50, 2), (12, 3)].map(|(mib, number)| Server::start(&bed, mib, number));
    let until = Instant::now() + Duration::from_secs(8);
    let waits = thread::scope(|scope| {
        let asked = servers.each_mut().map(|server| {
            scope.spawn(|| {
                let mut waits = Vec::new();
                while Instant::now() < until {
                    waits.push(server.request());
                    thread::sleep(Duration::from_millis(100));
                }
                waits
            })
        });
        asked.map(|requests| requests.join().expect("answers"))
    });
    assert!(waits.iter().all(|waits| !waits.is_empty()));
    let moves = moves(&bed);
    assert!(most_before(&moves) <= 10, "{moves:?}");
}

/// Returns how many other processes came back while one waited to, at most.
fn most_before(moves: &[Move]) -> usize {
    let returning = moves.iter().enumerate();
    let returning = returning.filter(|(_, one)| one.1 == Phase::Returning);
    let before = returning.map(|(at, (slot, ..))| {
        let after = moves[at..].iter().filter(|one| one.1 == Phase::Restoring);
        after.take_while(|one| one.0 != *slot).count()
    });
    before.max().unwrap_or(0)
}

#[test]
fn two_processes_that_grow_at_the_same_time_do_not_wait_for_each_other() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut servers = [1, 2].map(|number| Server::start(&bed, 25, number));
    for _ in 0..2 {
        let ends = thread::scope(|scope| {
            let grown = servers.each_mut().map(|server| {
                scope.spawn(|| {
                    let code = server.client.code(&format!("alloc b {}", 30 * MIB));
                    // It goes on only if it is idle for a moment.
                    thread::sleep(Duration::from_millis(100));
                    code
                })
            });
            grown.map(|one| one.join().expect("an answer"))
        });
        assert_eq!(ends, [0, 0]);
        for server in &mut servers {
            server.request();
            server.client.ok("free b");
        }
    }
}

#[test]
fn a_process_that_never_pauses_keeps_its_memory() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let _busy = at_work(&bed, 40);
    let mut newcomer = Client::start(&bed, &[]);
    newcomer.denied(&format!("alloc a {}", 40 * MIB));
    assert_eq!(attempts(&bed), 0);
}

fn attempts(bed: &Testbed) -> usize {
    let moves = moves(bed).into_iter();
    moves.filter(|one| one.1 == Phase::Evicting).count()
}
