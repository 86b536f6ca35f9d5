//! Large allocations that consist of pieces: results, charges and refusals are those of `cuMemAlloc`.

use std::path::Path;

use gpushare_testbed::{Testbed, Watched, artifact, cc, eventually};

use crate::client::{Client, INVALID_VALUE, MIB, PATIENCE, app};

const SWAPPABLE: (&str, &str) = ("GPUSHARE_SWAPPABLE", "1");

/// Waits until its stderr contains these words.
fn says(client: &Client<'_>, words: &str) {
    eventually(words, PATIENCE, || client.watched.stderr().contains(words));
}

#[test]
fn what_is_swappable_is_charged_to_the_byte_and_given_back() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[SWAPPABLE]);
    client.ok("alloc a 3000001");
    assert_eq!(client.used(), 3_000_001);
    client.ok("write a 77 750000");
    assert_eq!(client.ok("read a 750000"), [77, 77]);
    let mut other = Client::start(&bed, &[]);
    client.ok("alloc b 8388608");
    assert_eq!(client.used(), 3_000_001 + 8 * MIB);
    client.ok("free a");
    assert_eq!(client.code("free a"), INVALID_VALUE);
    client.ok("free-async b");
    assert_eq!(client.used(), 0);
    let [free, total] = other.ok("info")[..] else {
        panic!("two numbers")
    };
    assert_eq!(free, total, "nothing stays on the device");
}

#[test]
fn a_quota_is_exact_and_a_full_device_answers_out_of_memory() {
    let bed = Testbed::new();
    let quota = [SWAPPABLE, ("GPUSHARE_MEMORY", "10000000")];
    let mut client = Client::start(&bed, &quota);
    client.ok("alloc a 7000000");
    client.denied("alloc b 3000001");
    client.ok("alloc b 3000000");
    assert_eq!(client.used(), 10_000_000);
    let mut client = Client::start(&bed, &[SWAPPABLE]);
    client.denied("alloc a 1099511627776");
    assert_eq!(client.used(), 0);
    assert_eq!(client.code("alloc-null 4194304"), INVALID_VALUE);
    assert_ne!(client.code("alloc a 0"), 0);
}

#[test]
fn it_is_told_of_as_of_memory_that_the_driver_gave() {
    let bed = Testbed::new();
    let mut told = Vec::new();
    for variables in [&[][..], &[SWAPPABLE]] {
        let mut client = Client::start(&bed, variables);
        client.ok("alloc a 3000001");
        client.ok("context-current c");
        let start = client.ok("attribute a 11")[0];
        let all = client.ok("attributes a");
        assert_eq!((all[1], client.ok("attribute a 3")[0]), (start, start));
        assert_eq!(all[0], client.ok("attribute a 1")[0]);
        told.push((
            client.ok("range a 3000000"),
            client.ask("range a 3000001").0,
            client.ok("attribute a 12"),
            client.ok("attribute a 9"),
            all[0] != 0,
            all[2..].to_vec(),
            client.code("retain h a 0"),
            client.code("free-address 12345678"),
        ));
    }
    assert_eq!(told[0].0, [3_000_000, 3_000_001]);
    told[1].1 = told[0].1; // Mapped, and beyond the requested size.
    assert_eq!(told[0], told[1]);
}

#[test]
fn the_end_of_a_context_gives_its_memory_back() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[SWAPPABLE]);
    client.ok("alloc kept 2097152");
    let free = client.ok("info")[0];
    client.ok("context c 0");
    client.ok("alloc a 5000000");
    client.ok("context-destroy c");
    assert_eq!(client.used(), 2 * MIB);
    client.ok("device 0");
    assert_eq!(client.ok("info")[0], free);
    assert_eq!(client.code("free a"), INVALID_VALUE);
    client.ok("device-reset 0");
    assert_eq!(client.used(), 0);
}

#[test]
fn what_is_freed_during_a_capture_goes_when_it_ends() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[SWAPPABLE]);
    client.ok("alloc a 4194304");
    client.ok("stream s");
    // Relaxed mode, in which the driver allows both.
    client.ok("capture s");
    client.ok("free a");
    client.ok("alloc b 4194304");
    assert_eq!(client.used(), 8 * MIB);
    client.ok("capture-end s g");
    assert_eq!(client.used(), 4 * MIB);
    assert_eq!(client.code("free a"), INVALID_VALUE);
    client.ok("free b");
    assert_eq!(client.used(), 0);
}

#[test]
fn what_is_freed_during_a_capture_goes_with_its_context_or_with_the_stream() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[SWAPPABLE]);
    client.ok("stream s");
    client.ok("alloc kept 4194304");
    client.ok("context c 0");
    client.ok("alloc a 4194304");
    client.ok("capture s");
    client.ok("free a");
    client.ok("context-destroy c");
    client.ok("device 0");
    client.ok("capture-end s g");
    assert_eq!(client.used(), 4 * MIB);
    client.ok("capture s");
    client.ok("free kept");
    assert_eq!(client.used(), 4 * MIB);
    client.ok("stream-destroy s");
    assert_eq!(client.used(), 0);
}

#[test]
fn a_refused_capture_of_the_legacy_stream_does_not_delay_frees() {
    const STREAM_CAPTURE_UNSUPPORTED: u64 = 900;
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[SWAPPABLE]);
    client.ok("stream-blocking s");
    client.ok("alloc a 4194304");
    for legacy in [0, 1] {
        client.ok("capture s");
        // The driver answers nothing about the legacy stream now, because it would wait for `s`.
        let begin = format!("call cuStreamBeginCapture_v2 {legacy} 2");
        assert_eq!(client.code(&begin), STREAM_CAPTURE_UNSUPPORTED);
        client.ok("capture-end s g");
        client.ok("free a");
        assert_eq!(client.used(), 0, "{legacy}");
        client.ok("alloc a 4194304");
    }
}

#[test]
fn it_is_not_shared_with_other_processes_and_the_reason_is_said() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[SWAPPABLE]);
    client.ok("alloc a 4194304");
    client.ok("alloc small 4096");
    assert_eq!(client.code("ipc-get small"), 0);
    assert_eq!(client.code("ipc-get a"), INVALID_VALUE);
    says(&client, "without --swappable");
}

#[test]
fn where_the_driver_maps_no_memory_it_is_plain_memory() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[SWAPPABLE]);
    client.ok("alloc a 4194304");
    assert_eq!(client.used(), 4 * MIB);
    client.ok("free a");
    assert_eq!(client.used(), 0);
    says(&client, "--swappable has no effect");
}

#[test]
fn peers_reach_it() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = Client::start(&bed, &[SWAPPABLE]);
    client.ok("alloc before 4194304");
    client.ok("context-current first");
    client.ok("device 1");
    client.ok("peer first");
    client.ok("device 0");
    client.ok("alloc after 4194304");
    client.ok("device 1");
    for name in ["before", "after"] {
        client.ok(&format!("write {name} 5 1000"));
        assert_eq!(client.ok(&format!("access {name} 1")), [3], "{name}");
    }
    assert_eq!((client.used_on(0), client.used_on(1)), (8 * MIB, 0));
}

/// Runs the simulator's own programs with all their allocations swappable.
fn sees_no_difference(scenario: &str, name: &str) {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/cuda/tests/apps");
    let library = artifact("libcuda.so");
    let dir = library.parent().expect("an artifact is in a directory");
    let (link, large) = (format!("-L{}", dir.display()), app("large.c"));
    let large = large.to_str().expect("a path in UTF-8");
    let flags = [large, &link, "-Wl,--wrap=cuMemAlloc_v2", "-lcuda"];
    let program = cc(&apps.join(format!("{name}.c")), name, &flags);
    let bed = Testbed::with_scenario(scenario);
    let mut command = bed.preloaded(program);
    command.env("GPUSHARE_SWAPPABLE", "1");
    Watched::spawn(&mut command).succeed();
}

#[test]
fn the_programs_of_the_simulator_see_no_difference() {
    for name in [
        "capture_ends_by_a_forbidden_call",
        "capture_forks_and_joins",
        "capture_leaves_the_legacy_stream_alone",
        "capture_modes_decide_who_is_forbidden",
        "capture_of_per_thread_stream_and_events",
        "conditional_nodes_run_their_bodies",
        "copies_come_in_batches",
        "graph_is_built_by_hand",
        "graph_replays_what_was_captured",
        "managed_memory_keeps_wishes",
        "memory_outlasts_what_is_queued",
        "null_arguments_are_errors",
        "peers_reach_each_other",
        "pointer_attribute_is_set",
        "pool_allocates_in_stream_order",
        "vmm_alias_sees_the_same_bytes",
        "vmm_segment_grows",
    ] {
        sees_no_difference("two-gpus", name);
    }
    sees_no_difference("small", "threads_use_all_at_once");
}
