//! Memory that the driver needs for code when a kernel is first used, on a card that is full: other processes make room, as they
//! do for an allocation.

use std::time::{Duration, Instant};

use gpushare_testbed::{Testbed, cc};
use shm_layout::Phase;

use crate::client::{Client, MIB, OUT_OF_MEMORY, app};
use crate::overcommit::overcommit;
use crate::refusals::world;

const CARD: &str = "[[device]]\nmemory = \"256MiB\"\ncontext = \"4MiB\"\ncode = \"2MiB\"";
/// A loaded module of two kernels, the first of which was launched.
const BEFORE: [&str; 6] = [
    "stream s",
    "module m",
    "kernel one m one",
    "kernel two m two",
    "launch one",
    "launch one",
];

/// Starts a client with a kernel in use.
fn with_a_kernel<'b>(bed: &'b Testbed, variables: &[(&str, &str)]) -> Client<'b> {
    let mut client = Client::start(bed, variables);
    for command in BEFORE {
        client.ok(command);
    }
    client.ok("launch-ptsz one s");
    client
}

/// Starts a client that holds all that is left of the card.
fn filling(bed: &Testbed) -> Client<'_> {
    let mut client = Client::start(bed, &[]);
    let mut number = 0;
    for bytes in [64 * MIB, 16 * MIB, 4 * MIB, MIB] {
        while client.code(&format!("alloc a{number} {bytes}")) != OUT_OF_MEMORY {
            number += 1;
        }
    }
    client
}

#[test]
fn a_call_that_loads_code_has_an_idle_process_evicted() {
    let calls: [&[&str]; 7] = [
        &["module n", "module-unload n"],
        &["kernel-load two"],
        &["kernel-attribute two"],
        &["kernel-occupancy two"],
        &["launch two"],
        &["launch-ptsz two s"],
        &["graph g", "graph-kernel g two", "graph-instantiate e g"],
    ];
    for commands in calls {
        let (_file, bed) = world(CARD);
        let mut client = with_a_kernel(&bed, &[]);
        overcommit(&bed, true);
        let full = filling(&bed);
        for command in commands {
            client.ok(command);
        }
        full.reaches(Phase::Evicted);
        let device = &client.process().devices[0];
        assert_eq!(device.counters.memory_waits, 1, "{commands:?}");
        assert_eq!(device.counters.memory_gave_up, 0, "{commands:?}");
    }
}

#[test]
fn where_no_process_makes_room_the_drivers_error_is_returned_at_once() {
    let (_file, bed) = world(CARD);
    let mut client = with_a_kernel(&bed, &[]);
    let full = filling(&bed);
    for command in [
        "launch two",
        "launch-ptsz two s",
        "module n",
        "kernel-load two",
    ] {
        client.denied(command);
    }
    overcommit(&bed, true);
    client.ok("capture s");
    client.denied("launch two s");
    client.ok("capture-end s g");
    assert_eq!(
        full.residence().phase,
        Phase::Resident,
        "a capture does not wait"
    );
}

#[test]
fn a_launch_waits_for_as_long_as_an_allocation_would() {
    let (_file, bed) = world(CARD);
    let mut client = with_a_kernel(&bed, &[("GPUSHARE_ON_FULL", "wait=1s")]);
    let mut full = filling(&bed);
    let began = Instant::now();
    client.denied("launch two");
    assert!(began.elapsed() >= Duration::from_secs(1));
    client.begin("launch two");
    assert!(client.goes_on());
    full.ok("free a0");
    assert_eq!(client.end(), 0);
}

#[test]
fn of_many_servers_that_load_at_the_same_moment_none_ends() {
    // Code takes 90 MiB, with that of the library's own kernel, and contexts 24.
    let (_file, bed) = world(&CARD.replace("2MiB", "3MiB"));
    overcommit(&bed, true);
    let variables = [("GPUSHARE_SWAPPABLE", "1"), ("GPUSHARE_ON_FULL", "wait")];
    let start = |_| Client::start(&bed, &variables);
    let mut servers: Vec<Client<'_>> = (0..6).map(start).collect();
    // A library that empties its cache is not refused first: others of the same process would fail.
    let library = cc(
        &app("nothing_to_do.c"),
        "libc10_cuda.so",
        &["-shared", "-fPIC", "-w"],
    );
    for server in &mut servers {
        server.ok(&format!("load {}", library.display()));
    }
    let words = 20 * MIB / 4;
    let mut steps = Vec::new();
    for number in 0..4 {
        steps.push(format!("alloc a{number} {}", 20 * MIB));
        steps.push(format!("write a{number} {number} {words}"));
    }
    steps.extend(BEFORE.map(str::to_owned));
    steps.push("launch two s".into());
    steps.extend((0..4).map(|number| format!("count a{number} {number} {words}")));
    for step in &steps {
        servers.iter_mut().for_each(|server| server.begin(step));
        for server in &mut servers {
            assert_eq!(
                server.end(),
                0,
                "{step}; stderr: {}",
                server.watched.stderr()
            );
        }
    }
}
