//! Swappable memory: the library copies it out and back to the same addresses. Other memory stays on its device.

use std::thread::sleep;
use std::time::Duration;

use gpushare_testbed::{Testbed, eventually};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use shm_layout::{Identity, LaunchLimits, Moved, Phase, Segments, Why, register};

use crate::Wish;
use crate::client::{Client, MIB, OUT_OF_MEMORY, PATIENCE};
use crate::overcommit::overcommit;
use crate::refusals::world;

const SWAPPABLE: (&str, &str) = ("GPUSHARE_SWAPPABLE", "1");

/// Returns the number of words in this many bytes.
const fn words(bytes: u64) -> u64 {
    bytes / 4
}

/// Starts a client with allocations of these sizes, each filled with its own number.
pub fn holding<'b>(bed: &'b Testbed, variables: &[(&str, &str)], sizes: &[u64]) -> Client<'b> {
    let mut client = Client::start(bed, &[variables, &[SWAPPABLE]].concat());
    for (number, bytes) in sizes.iter().enumerate() {
        client.ok(&format!("alloc a{number} {bytes}"));
        client.ok(&format!("write a{number} {} {}", number + 1, words(*bytes)));
    }
    client.ok("synchronize");
    client
}

pub fn has_all(client: &mut Client<'_>, sizes: &[u64]) {
    for (number, bytes) in sizes.iter().enumerate() {
        let right = client.ok(&format!("count a{number} {} {}", number + 1, words(*bytes)));
        assert_eq!(right, [words(*bytes)], "a{number}");
    }
}

#[test]
fn what_is_swappable_leaves_and_is_back_where_it_was_and_what_is_not_stays() {
    let bed = Testbed::new();
    // One size exceeds a piece of host memory, and one is a multiple of nothing.
    let sizes = [16 * MIB, 300 * MIB, 3_000_004, 40 * MIB];
    let all: u64 = sizes.iter().sum();
    let mut client = holding(&bed, &[], &sizes);
    let mut other = Client::start(&bed, &[]);
    client.ok("alloc small 4096");
    client.ok("write small 9 1024");
    let free = other.ok("info")[0];
    for _ in 0..3 {
        client.evict(&bed);
        assert_eq!((client.used(), client.evicted_bytes()), (4096, all));
        assert!(client.residence().host_bytes >= all);
        assert!(other.ok("info")[0] >= free + all);
        client.wish(&bed, Wish::Resume);
        assert_eq!(client.ok("read small 1024"), [9, 9]);
        has_all(&mut client, &sizes);
        assert_eq!((client.used(), client.evicted_bytes()), (all + 4096, 0));
        assert_eq!(other.ok("info")[0], free);
    }
    let kept = client.residence().host_bytes;
    assert!(
        (all..all + 64 * MIB).contains(&kept),
        "once, and kept: {kept}"
    );
    for number in 0..sizes.len() {
        client.ok(&format!("free a{number}"));
    }
    assert_eq!(client.used(), 4096);
    client.evict(&bed);
    assert_eq!(
        client.used(),
        0,
        "by checkpoint, now that nothing is swappable"
    );
    client.wish(&bed, Wish::Resume);
    assert_eq!(client.ok("read small 1024"), [9, 9]);
}

#[test]
fn bytes_are_equal_after_a_hundred_moves_with_random_writes_between() {
    const SIZES: [u64; 3] = [2 * MIB, 5 * MIB + 12, 8 * MIB];
    let bed = Testbed::new();
    let mut clients: Vec<_> = (0..4).map(|_| holding(&bed, &[], &[])).collect();
    for client in &mut clients {
        for (number, bytes) in SIZES.iter().enumerate() {
            client.ok(&format!("alloc a{number} {bytes}"));
            client.ok(&format!("write a{number} 0 {}", bytes / 4));
        }
    }
    let mut seed = 0;
    for round in 0..25 {
        for client in &mut clients {
            for (number, bytes) in SIZES.iter().enumerate() {
                seed += 1;
                client.ok(&format!("scribble a{number} {bytes} {seed}"));
            }
            client.wish(&bed, Wish::Evict);
        }
        for client in &clients {
            client.reaches(Phase::Evicted);
            client.wish(&bed, Wish::Resume);
        }
        for client in &mut clients {
            for (number, bytes) in SIZES.iter().enumerate() {
                let wrong = client.ok(&format!("same a{number} {bytes}"));
                assert_eq!(wrong, [0], "round {round}, a{number}, seed {seed}");
            }
        }
    }
}

#[test]
fn what_has_not_changed_leaves_without_a_copy_and_zeros_never_have_one() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"\n[link]\nout = \"8MiB\"");
    let sizes = [32 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.ok(&format!("alloc zeros {}", 128 * MIB));
    client.ok(&format!("write zeros 0 {}", words(128 * MIB)));
    let mut out_ns = || {
        client.evict(&bed);
        let ns = client.residence().swap_ns;
        client.wish(&bed, Wish::Resume);
        has_all(&mut client, &sizes);
        let zeros = client.ok(&format!("count zeros 0 {}", words(128 * MIB)));
        assert_eq!(zeros, [words(128 * MIB)]);
        ns
    };
    let (first, second) = (out_ns(), out_ns());
    let copied = 4_000_000_000;
    assert!(
        (copied..4 * copied).contains(&first),
        "32 MiB at 8 MiB/s, and no zeros: {first}"
    );
    assert!(second < copied / 2, "nothing is copied: {second}");
    assert_eq!(client.residence().host_bytes, 32 * MIB);
}

#[test]
fn an_allocation_at_an_address_that_had_another_is_copied() {
    let bed = Testbed::new();
    let mut client = holding(&bed, &[], &[16 * MIB]);
    for value in 5..8 {
        client.evict(&bed);
        client.wish(&bed, Wish::Resume);
        client.ok("free a0");
        client.ok(&format!("alloc a0 {}", 16 * MIB));
        client.ok(&format!("write a0 {value} {}", words(16 * MIB)));
        client.evict(&bed);
        client.wish(&bed, Wish::Resume);
        let right = client.ok(&format!("count a0 {value} {}", words(16 * MIB)));
        assert_eq!(right, [words(16 * MIB)]);
    }
    assert_eq!(
        client.residence().host_bytes,
        16 * MIB,
        "the old copies' places are used"
    );
}

#[test]
fn a_kept_copy_is_given_up_for_those_of_processes_that_moved_later() {
    let bed = Testbed::new();
    let sizes = [16 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes);
    assert_eq!(client.residence().host_bytes, 16 * MIB);
    let segments = Segments::open_workload(bed.dir()).expect("the client's");
    let identity = Identity::of_self("other");
    let other = register(&segments, &identity, &LaunchLimits::default()).expect("a slot");
    other.publish_host_bytes(1 << 50);
    other.publish_move(&Moved::default());
    eventually("the copy is given up", PATIENCE, || {
        client.residence().host_bytes == 0
    });
    drop(other);
    for _ in 0..2 {
        client.evict(&bed);
        client.wish(&bed, Wish::Resume);
        has_all(&mut client, &sizes);
    }
    assert_eq!(client.residence().host_bytes, 16 * MIB);
}

/// Limits how much more memory of its own a client may have; `None` ends the limit.
fn allow(client: &Client<'_>, more: Option<u64>) {
    let id = client.watched.pid();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let current = more.map(|more| kib.expect("a number") * 1024 + more);
    let limit = Rlimit {
        current,
        maximum: None,
    };
    let pid = Pid::from_raw(id as i32);
    prlimit(pid, Resource::Data, limit).expect("our own child");
}

const PARTS: [u64; 3] = [120 * MIB, 120 * MIB, 60 * MIB];

/// Starts a client that leaves for another in part, because the host's memory ends: of two pieces the first is there.
fn out_in_part(bed: &Testbed) -> [Client<'_>; 2] {
    overcommit(bed, true);
    let client = holding(bed, &[], &PARTS);
    allow(&client, Some(290 * MIB));
    let mut other = Client::start(bed, &[("GPUSHARE_ON_FULL", "wait")]);
    other.ok(&format!("alloc a {}", 200 * MIB));
    client.reaches(Phase::Evicted);
    assert!(client.residence().is_in_part);
    [client, other]
}

#[test]
fn a_host_whose_memory_ends_in_the_middle_of_an_eviction_for_another_keeps_what_has_left() {
    let (_file, bed) = world("[[device]]\nmemory = \"400MiB\"");
    let [mut client, mut other] = out_in_part(&bed);
    assert_eq!(client.used() + client.evicted_bytes(), 300 * MIB);
    assert!(client.evicted_bytes() <= 256 * MIB);
    allow(&client, None);
    other.ok("free a");
    has_all(&mut client, &PARTS);
    assert_eq!((client.used(), client.evicted_bytes()), (300 * MIB, 0));
}

/// The first one wants its memory back while it cannot leave the rest. Who waits for the rest is not refused for that.
#[test]
fn what_could_not_leave_for_a_moment_leaves_for_another_though_its_process_waits_too() {
    let (_file, bed) = world("[[device]]\nmemory = \"400MiB\"");
    let [mut client, mut other] = out_in_part(&bed);
    other.begin(&format!("alloc b {}", 180 * MIB));
    sleep(Duration::from_millis(300));
    client.begin("synchronize");
    client.reaches(Phase::Returning);
    assert!(client.residence().is_in_part, "others are to wait for it");
    allow(&client, None);
    assert_eq!(other.end(), 0);
    other.ok("free a");
    other.ok("free b");
    assert_eq!(client.end(), 0);
    has_all(&mut client, &PARTS);
}

/// Each is at the head of the queue of the device that it counts as its first.
#[test]
fn of_two_processes_that_count_the_devices_differently_none_waits_for_the_other_for_ever() {
    let card = "[[device]]\nmemory = \"64MiB\"\n";
    let (_file, bed) = world(&card.repeat(2));
    overcommit(&bed, true);
    let start = |visible| {
        let variables = [
            ("CUDA_VISIBLE_DEVICES", visible),
            ("GPUSHARE_SWAPPABLE", "1"),
            ("GPUSHARE_ON_FULL", "wait"),
        ];
        let mut client = Client::start(&bed, &variables);
        client.ok(&format!("alloc a {}", 40 * MIB));
        client.ok("device 1");
        client.ok(&format!("alloc b {}", 40 * MIB));
        client.ok("synchronize");
        sleep(Duration::from_millis(300));
        client
    };
    let [mut one, mut two, third] = ["0,1", "1,0", "0,1"].map(start);
    one.reaches(Phase::Evicted);
    two.reaches(Phase::Evicted);
    third.wish(&bed, Wish::Pin(true));
    for waits in [&mut one, &mut two] {
        waits.begin("synchronize");
        waits.reaches(Phase::Returning);
    }
    sleep(Duration::from_millis(300));
    drop(third);
    assert_eq!((one.end(), two.end()), (0, 0));
}

/// Its room on the first device holds nothing yet, and who holds the second may need it.
#[test]
fn a_process_that_waits_for_its_second_device_gives_up_the_first_to_one_that_needs_it() {
    let card = "[[device]]\nmemory = \"64MiB\"\n";
    let (_file, bed) = world(&card.repeat(2));
    overcommit(&bed, true);
    let waits = [("GPUSHARE_SWAPPABLE", "1"), ("GPUSHARE_ON_FULL", "wait")];
    for first in [0, 1] {
        let mut one = Client::start(&bed, &waits);
        for device in [0, 1] {
            one.ok(&format!("device {device}"));
            one.ok(&format!("alloc a{device} {}", 24 * MIB));
        }
        one.ok("synchronize");
        sleep(Duration::from_millis(300));
        let mut other = Client::start(&bed, &waits);
        for (device, mib) in [(first, 20), (1 - first, 44)] {
            other.ok(&format!("device {device}"));
            other.ok(&format!("alloc a{device} {}", mib * MIB));
        }
        one.reaches(Phase::Evicted);
        other.wish(&bed, Wish::Pin(true));
        one.begin("synchronize");
        one.reaches(Phase::Returning);
        other.ok(&format!("device {first}"));
        other.ok(&format!("alloc more {}", 24 * MIB));
        drop(other);
        assert_eq!(one.end(), 0);
    }
}

#[test]
fn a_host_whose_memory_ends_in_the_middle_leaves_the_process_as_it_was() {
    let bed = Testbed::new();
    // The first piece of host memory is there, the second is not.
    let sizes = [250 * MIB, 50 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    allow(&client, Some(290 * MIB));
    client.wish(&bed, Wish::Evict);
    client.is_refused(Why::HostMemory);
    client.wish(&bed, Wish::Resume);
    allow(&client, None);
    has_all(&mut client, &sizes);
    client.ok(&format!("write a1 7 {}", words(sizes[1])));
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes[..1]);
    let right = client.ok(&format!("count a1 7 {}", words(sizes[1])));
    assert_eq!(right, [words(sizes[1])]);
}

#[test]
fn a_context_that_cannot_hash_has_all_copied() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"\n[mishaps]\nswap = \"hash\"");
    let sizes = [16 * MIB, 8 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    for _ in 0..2 {
        client.evict(&bed);
        client.wish(&bed, Wish::Resume);
        has_all(&mut client, &sizes);
    }
    client.ok(&format!("write a0 9 {}", words(16 * MIB)));
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    assert_eq!(
        client.ok(&format!("count a0 9 {}", words(16 * MIB))),
        [words(16 * MIB)]
    );
}

#[test]
fn what_a_checkpoint_cannot_take_does_not_hinder_it() {
    let bed = Testbed::new();
    let sizes = [64 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.ok(&format!("managed m {MIB}"));
    client.ok(&format!("alloc small {MIB}"));
    let (code, _) = client.ask("ipc-get small");
    assert_eq!(code, 0);
    client.evict(&bed);
    assert_eq!(client.used(), 2 * MIB);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes);
    // With more than an eighth not swappable, the driver's checkpoint is used, which refuses managed memory.
    client.ok(&format!("managed more {}", 16 * MIB));
    client.wish(&bed, Wish::Evict);
    client.is_refused(Why::Managed);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes);
}

#[test]
fn a_driver_without_checkpoints_is_no_hindrance() {
    let (_file, bed) = world("[driver]\nversion = \"560.10\"\n[[device]]\nmemory = \"1GiB\"");
    let sizes = [64 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes);
    drop(client);
    let bed = Testbed::with_scenario("no-nvml");
    let mut client = holding(&bed, &[], &sizes);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes);
}

#[test]
fn requests_wait_and_any_brings_it_back() {
    let bed = Testbed::new();
    let sizes = [16 * MIB, 16 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.ok("stream s");
    for first in [
        "submit a0",
        "submit a0 s",
        "alloc b 4194304",
        "free b",
        "attribute a0 12",
        "in-a-thread call cuProfilerStop 0",
    ] {
        client.evict(&bed);
        client.begin(first);
        assert!(client.goes_on(), "{first}");
        client.wish(&bed, Wish::Resume);
        let _ = client.end();
        assert_eq!(client.residence().phase, Phase::Resident, "{first}");
        assert_eq!(client.evicted_bytes(), 0, "{first}");
        client.ok("write a0 1 1");
    }
    has_all(&mut client, &sizes);
}

#[test]
fn what_is_freed_first_after_an_eviction_is_given_back() {
    let bed = Testbed::new();
    let sizes = [16 * MIB, 32 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.leaves_once(&bed);
    client.ok("free a1");
    assert_eq!(client.used(), 16 * MIB);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes[..1]);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    client.ok("device-reset 0");
    assert_eq!((client.used(), client.evicted_bytes()), (0, 0));
}

#[test]
fn what_runs_in_a_green_context_is_waited_for_no_longer_than_in_another() {
    let bed = Testbed::new();
    let sizes = [16 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.ok("green g c");
    client.ok("green-stream t g");
    client.ok("submit a0 t");
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    client.ok("green-destroy g");
    client.ok("device 0");
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes);
}

#[test]
fn memory_of_several_contexts_and_devices_comes_back() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = holding(&bed, &[], &[16 * MIB]);
    client.ok("context c 0");
    client.ok("alloc inner 8388608");
    client.ok("write inner 50 1000");
    client.ok("device 1");
    client.ok("alloc far 8388608");
    client.ok("write far 60 1000");
    client.evict(&bed);
    let evicted = |client: &Client<'_>| -> Vec<u64> {
        let process = client.process();
        process
            .devices
            .iter()
            .map(|device| device.evicted)
            .collect()
    };
    assert_eq!(evicted(&client), [24 * MIB, 8 * MIB]);
    client.wish(&bed, Wish::Resume);
    assert_eq!(client.ok("read far 1000"), [60, 60]);
    client.ok("context-set c");
    assert_eq!(client.ok("read inner 1000"), [50, 50]);
    // The context in which the copy buffer was pinned is destroyed; the next copy pins it again.
    client.ok("context-destroy c");
    client.ok("device 0");
    client.evict(&bed);
    assert_eq!(evicted(&client), [16 * MIB, 8 * MIB]);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &[16 * MIB]);
}

#[test]
fn a_card_is_filled_twice_and_who_comes_back_waits_until_there_is_room() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"");
    let sizes = [500 * MIB, 200 * MIB];
    let (mut one, mut two) = (holding(&bed, &[], &sizes), Client::start(&bed, &[]));
    assert_eq!(two.code(&format!("alloc a {}", 800 * MIB)), OUT_OF_MEMORY);
    one.evict(&bed);
    two.ok(&format!("alloc a {}", 800 * MIB));
    one.wish(&bed, Wish::Resume);
    one.begin("read a0 1000");
    one.reaches(Phase::Returning);
    assert!(one.goes_on());
    assert_eq!(one.residence().phase, Phase::Returning);
    two.ok("free a");
    assert_eq!(one.end(), 0);
    has_all(&mut one, &sizes);
}

#[test]
fn idle_ones_make_room_for_each_other_on_an_overcommitted_card() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"");
    crate::overcommit::overcommit(&bed, true);
    let sizes = [600 * MIB];
    let mut one = holding(&bed, &[], &sizes);
    crate::overcommit::pause(&bed, &one, true);
    let mut two = holding(&bed, &[], &sizes);
    assert_eq!(one.residence().phase, Phase::Evicted);
    crate::overcommit::pause(&bed, &two, true);
    crate::overcommit::pause(&bed, &one, false);
    has_all(&mut one, &sizes);
    assert_eq!(two.residence().phase, Phase::Evicted);
    drop(one);
    crate::overcommit::pause(&bed, &two, false);
    has_all(&mut two, &sizes);
}

#[test]
fn a_program_that_is_not_managed_and_takes_the_room_is_waited_for() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"");
    let sizes = [600 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.evict(&bed);
    let mut foreign = Client::start_bare(&bed, &[("GPUSHARE_DISABLE", "1")]);
    foreign.ok("init");
    foreign.ok("device 0");
    foreign.ok(&format!("alloc a {}", 800 * MIB));
    client.wish(&bed, Wish::Resume);
    client.begin("read a0 1000");
    client.reaches(Phase::Returning);
    assert!(client.goes_on());
    foreign.ok("free a");
    assert_eq!(client.end(), 0);
    has_all(&mut client, &sizes);
}

#[test]
fn a_copy_that_fails_leaves_the_process_as_it_was() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"\n[mishaps]\nswap = \"out\"");
    let sizes = [16 * MIB, 16 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.wish(&bed, Wish::Evict);
    client.is_refused(Why::Refused);
    client.wish(&bed, Wish::Resume);
    client.ok("alloc z 4194304");
    client.ok("free z");
    has_all(&mut client, &sizes);
    assert_eq!((client.used(), client.evicted_bytes()), (32 * MIB, 0));
}

#[test]
fn memory_that_cannot_be_unmapped_stays_and_stays_charged() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"\n[mishaps]\nswap = \"unmap\"");
    let sizes = [16 * MIB, 16 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.wish(&bed, Wish::Evict);
    client.is_refused(Why::Refused);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes);
    assert_eq!((client.used(), client.evicted_bytes()), (32 * MIB, 0));
}

#[test]
fn a_copy_back_that_fails_is_the_end_of_its_calls_and_is_said() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"\n[mishaps]\nswap = \"back\"");
    let mut client = holding(&bed, &[], &[16 * MIB]);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    assert_ne!(client.code("synchronize"), 0);
    client.reaches(Phase::Lost);
    assert_eq!(client.residence().why, Some(Why::RestoreFailed));
    assert_ne!(client.code("alloc b 4096"), 0);
    eventually("it is said", PATIENCE, || {
        client.watched.stderr().contains("is lost")
    });
}

#[test]
fn a_kill_at_any_time_of_the_way_leaves_the_card_to_the_other() {
    let (_file, bed) =
        world("[[device]]\nmemory = \"1GiB\"\n[link]\nout = \"4GiB\"\nback = \"4GiB\"");
    let sizes = [200 * MIB, 100 * MIB];
    let mut other = holding(&bed, &[], &sizes);
    other.evict(&bed);
    for delay in [0, 20, 60, 110, 140, 170, 220, 300, 400] {
        let mut client = Client::start(&bed, &[SWAPPABLE]);
        client.ok(&format!("alloc a {}", 400 * MIB));
        client.ok(&format!("alloc b {}", 200 * MIB));
        client.wish(&bed, Wish::Evict);
        std::thread::sleep(std::time::Duration::from_millis(delay));
        client.wish(&bed, Wish::Resume);
        client.begin("synchronize");
        std::thread::sleep(std::time::Duration::from_millis(delay / 2));
        client.watched.signal(rustix::process::Signal::KILL);
        eventually("it ends", PATIENCE, || client.watched.ended());
    }
    other.wish(&bed, Wish::Resume);
    has_all(&mut other, &sizes);
    other.ok(&format!("alloc b {}", 600 * MIB));
}

#[test]
fn who_is_wanted_back_before_it_is_away_goes_on() {
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"\n[link]\nout = \"256MiB\"");
    let sizes = [200 * MIB, 200 * MIB];
    let mut client = holding(&bed, &[], &sizes);
    client.wish(&bed, Wish::Evict);
    client.reaches(Phase::Evicting);
    client.wish(&bed, Wish::Resume);
    has_all(&mut client, &sizes);
    assert_eq!(client.residence().phase, Phase::Resident);
    assert_eq!(client.used(), 400 * MIB);
}

#[test]
fn work_in_flight_is_waited_for() {
    waits_for_work(&Testbed::new());
    let (_file, bed) = world("[[device]]\nmemory = \"1GiB\"\n[mishaps]\nswap = \"record\"");
    waits_for_work(&bed);
}

#[test]
fn a_process_that_the_driver_locks_to_wait_and_does_not_unlock_is_lost_and_does_not_hang() {
    let (_file, bed) = world(
        "[[device]]\nmemory = \"1GiB\"\n[mishaps]\nswap = \"record\"\ncheckpoint = \"unlock\"",
    );
    let mut client = holding(&bed, &[], &[16 * MIB]);
    client.wish(&bed, Wish::Evict);
    client.reaches(Phase::Lost);
    assert_eq!(client.residence().why, Some(Why::CheckpointFailed));
    assert_ne!(client.code("synchronize"), 0);
}

fn waits_for_work(bed: &Testbed) {
    let mut client = holding(bed, &[], &[16 * MIB]);
    client.ok("stream s");
    for round in 0..3 {
        // The work is queued and not waited for.
        client.ok(&format!("write-in a0 {} {} s", 70 + round, words(16 * MIB)));
        client.wish(bed, Wish::Evict);
        client.reaches(Phase::Evicted);
        client.wish(bed, Wish::Resume);
        let right = client.ok(&format!("count a0 {} {}", 70 + round, words(16 * MIB)));
        assert_eq!(right, [words(16 * MIB)]);
    }
}
