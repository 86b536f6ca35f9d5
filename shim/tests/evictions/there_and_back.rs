//! Eviction and restore: after the first call of any kind the program finds its data at the same addresses.

use gpushare_testbed::Testbed;
use shm_layout::{EventKind, EventReader, EvictAfter, Phase, Segments, What};

use crate::client::{Client, MIB};
use crate::{Wish, eventually};

const WORDS: u64 = 16 * MIB / 4;

pub fn with_memory<'b>(bed: &'b Testbed, variables: &[(&str, &str)]) -> Client<'b> {
    let mut client = Client::start(bed, variables);
    client.ok(&format!("alloc a {}", 16 * MIB));
    client.ok(&format!("write a 77 {WORDS}"));
    client.ok("synchronize");
    client
}

#[test]
fn a_process_that_is_paused_and_evicted_leaves_the_card_to_others_and_finds_its_memory_again() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    client.evict(&bed);
    assert_eq!((client.used(), client.evicted_bytes()), (0, 16 * MIB));
    assert!(client.residence().host_bytes >= 16 * MIB);
    client.wish(&bed, Wish::Resume);
    assert_eq!(client.ok(&format!("read a {WORDS}")), [77, 77]);
    assert_eq!((client.used(), client.evicted_bytes()), (16 * MIB, 0));
    assert_eq!(client.residence().phase, Phase::Resident);
    assert_eq!(client.residence().host_bytes, 0);
    assert!(client.residence().swap_ns > 0);
    client.ok("alloc b 4096");
    client.ok("free a");
    assert_eq!(client.used(), 4096);
}

#[test]
fn calls_wait_until_a_process_that_was_paused_and_evicted_is_resumed() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    client.evict(&bed);
    client.watched.say(&format!("read a {WORDS}"));
    let long = std::time::Duration::from_millis(300);
    assert_eq!(client.watched.line_within(long), None);
    assert_eq!(client.residence().phase, Phase::Evicted);
    client.wish(&bed, Wish::Resume);
    assert_eq!(client.watched.line(), "0 77 77");
}

#[test]
fn whatever_is_requested_first_brings_it_back() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    client.ok("stream s");
    // A launch, a call with a hook, calls without one, and each from a thread that made no call before.
    for first in [
        "submit a",
        "submit a s",
        "alloc b 4096",
        "synchronize",
        "attribute a 12",
        "call cuProfilerStop 0",
        "in-a-thread alloc c 4096",
        "in-a-thread call cuProfilerStop 0",
    ] {
        client.evict(&bed);
        client.wish(&bed, Wish::Resume);
        let _ = client.code(first);
        assert_eq!(client.residence().phase, Phase::Resident, "{first}");
        assert_eq!(client.evicted_bytes(), 0, "{first}");
    }
    assert_eq!(client.ok(&format!("read a {WORDS}"))[1], 77);
}

#[test]
fn a_graph_that_allocates_is_launched_after_an_eviction() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    for stream in ["s", "t"] {
        client.ok(&format!("stream {stream}"));
        client.ok(&format!("graph g{stream}"));
        client.ok(&format!("graph-alloc n{stream} g{stream} {MIB} at{stream}"));
        client.ok(&format!(
            "graph-free g{stream} n{stream} at{stream} f{stream}"
        ));
        client.ok(&format!("graph-instantiate e{stream} g{stream}"));
        client.ok(&format!("graph-launch e{stream} {stream}"));
    }
    // Two driver queries come before the launch: whether the other stream has completed the work on its graph's memory, and the
    // current context of a thread that has made no call.
    for launch in [
        "graph-launch es t",
        "in-a-thread graph-launch et s",
        "graph-launch es s",
    ] {
        client.leaves_once(&bed);
        client.ok(launch);
        assert_eq!(client.residence().phase, Phase::Resident);
    }
}

#[test]
fn an_idle_process_is_evicted_and_its_next_call_brings_it_back() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[("GPUSHARE_EVICT_AFTER", "300ms")]);
    for _ in 0..2 {
        client.reaches(Phase::Evicted);
        assert_eq!(client.ok(&format!("read a {WORDS}")), [77, 77]);
    }
    client.wish(&bed, Wish::After(EvictAfter::Never));
    assert_eq!(client.ok(&format!("read a {WORDS}")), [77, 77]);
    assert_eq!(client.used(), 16 * MIB);
    std::thread::sleep(std::time::Duration::from_millis(900));
    assert_eq!(client.residence().phase, Phase::Resident);
}

#[test]
fn requests_are_use_of_the_device_and_queries_are_not() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[("GPUSHARE_EVICT_AFTER", "5s")]);
    let three_polls = std::time::Duration::from_millis(300);
    let mut used_after = |words: &str| {
        std::thread::sleep(three_polls);
        let began = shm_layout::clock::now();
        while shm_layout::clock::now() - began < three_polls.as_nanos() as u64 {
            client.code(words);
        }
        client.residence().used_ns > began
    };
    for request in ["call cuProfilerStop 0", "submit a", "synchronize"] {
        assert!(used_after(request), "{request}");
    }
    for query in [
        "info",
        "context-current c",
        "call cuStreamQuery 0",
        "call cuCtxGetApiVersion 0 0",
    ] {
        assert!(!used_after(query), "{query}");
    }
}

#[test]
fn a_holder_of_the_lock_gives_it_up_before_it_is_evicted() {
    let policy = "timeslice=60s idle=60s max-hold=60s";
    let bed = Testbed::new();
    let mut holder = with_memory(&bed, &[("GPUSHARE_POLICY", policy)]);
    let mut other = Client::start(&bed, &[("GPUSHARE_POLICY", policy)]);
    other.ok("alloc a 4096");
    holder.ok("submit a");
    holder.evict(&bed);
    other.ok("submit a");
    holder.wish(&bed, Wish::Resume);
    holder.watched.say("submit a");
    drop(other);
    assert_eq!(holder.watched.line(), "0");
}

#[test]
fn its_way_is_told_by_events() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    client.ok(&format!("read a {WORDS}"));
    let segments = Segments::open_viewer(bed.dir()).expect("there");
    let mut reader = EventReader::from_start(segments.state());
    let mut phases = Vec::new();
    while let Some(event) = reader.next(segments.state()) {
        let Ok(event) = event else { continue };
        if event.kind == EventKind::Residence
            && let What::Residence {
                phase, bytes, why, ..
            } = event.what()
        {
            assert_eq!((bytes, why), (16 * MIB, None), "{phase:?}");
            phases.push(phase);
        }
    }
    let expected = [
        Phase::Evicting,
        Phase::Evicted,
        Phase::Returning,
        Phase::Restoring,
        Phase::Resident,
    ];
    assert_eq!(phases, expected);
}

#[test]
fn a_forked_child_has_a_door_of_its_own() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[("GPUSHARE_EVICT_AFTER", "300ms")]);
    client.reaches(Phase::Evicted);
    // The driver's own error in a forked child, without a wait.
    assert_eq!(client.code("fork-free a"), 3);
    eventually("the parent is there still", crate::PATIENCE, || {
        client.process().devices[0].evicted == 16 * MIB
    });
    assert_eq!(client.ok(&format!("read a {WORDS}")), [77, 77]);
}

#[test]
fn a_program_that_is_linked_to_the_driver_is_brought_back_by_a_call_without_a_hook() {
    let bed = Testbed::new();
    let driver = gpushare_testbed::artifact("libcuda.so");
    let driver = driver.to_str().expect("a path in UTF-8");
    let program = gpushare_testbed::cc(
        &crate::client::app("linked_away.c"),
        "linked_away",
        &[driver],
    );
    let mut command = bed.preloaded(program);
    command.env("GPUSHARE_EVICT_AFTER", "300ms");
    let mut program = gpushare_testbed::Watched::spawn(&mut command);
    assert_eq!(program.line(), "ready 0");
    for _ in 0..2 {
        eventually("it is evicted", crate::PATIENCE, || {
            let processes = crate::client::look(&bed).processes;
            processes
                .iter()
                .any(|process| process.residence.phase == Phase::Evicted)
        });
        assert_eq!(program.ask("go"), "0 1");
    }
}

#[test]
fn a_thread_that_waits_in_nvml_brings_it_back() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[("GPUSHARE_EVICT_AFTER", "300ms")]);
    client.reaches(Phase::Evicted);
    client.ok("nvml 0");
    assert_eq!(client.ok(&format!("read a {WORDS}")), [77, 77]);
}

#[test]
fn what_another_program_has_brought_back_is_back() {
    let bed = Testbed::new();
    let (mut client, mut other) = (with_memory(&bed, &[]), Client::start(&bed, &[]));
    let pid = client.watched.pid();
    client.evict(&bed);
    other.ok(&format!("call cuCheckpointProcessRestore {pid} 0"));
    client.wish(&bed, Wish::Resume);
    assert_eq!(client.ok(&format!("read a {WORDS}")), [77, 77]);
    assert_eq!(client.used(), 16 * MIB);
    client.evict(&bed);
    other.ok(&format!("call cuCheckpointProcessRestore {pid} 0"));
    other.ok(&format!("unlock {pid}"));
    client.wish(&bed, Wish::Resume);
    assert_eq!(client.ok(&format!("read a {WORDS}")), [77, 77]);
}
