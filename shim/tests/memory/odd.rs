//! Driver behaviour that the simulator does not have.

use gpushare_testbed::Testbed;

use crate::client::{Client, MIB};

/// Returns how many addresses the odd driver has returned that are not freed.
fn allocated(client: &mut Client<'_>) -> u64 {
    client.ok("info")[0]
}

#[test]
fn a_pitch_nobody_expected_is_charged_as_it_is() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    assert_eq!(client.ok("pitch a 700 10"), [768], "expected 1024");
    assert_eq!(client.used(), 7680);
    assert_eq!(client.ok("pitch b 1000 10"), [1536], "expected 1024");
    assert_eq!(client.used(), 7680 + 15360);
    client.ok("free a");
    client.ok("free b");
    assert_eq!(client.used(), 0);
}

#[test]
fn a_pitch_that_turns_out_too_large_for_the_quota_goes_back_to_the_driver() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[("GPUSHARE_MEMORY", "12000")]);
    client.denied("pitch a 1000 10");
    assert_eq!((client.used(), allocated(&mut client)), (0, 0));
    client.ok("alloc b 12000");
    assert_eq!(client.process().devices[0].counters.denials, 1);
}

#[test]
fn memory_of_a_host_pool_is_counted_as_pinned() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[("GPUSHARE_MEMORY", "4096")]);
    client.ok("pool-host p");
    client.ok(&format!("pool-alloc a p {MIB}"));
    client.ok(&format!("pool-alloc b p {MIB}"));
    let pinned = |client: &Client<'_>| client.process().devices[0].counters.host_pinned_bytes;
    assert_eq!((client.used(), pinned(&client)), (0, 2 * MIB));
    client.ok("free-async a");
    client.ok("free b");
    assert_eq!(pinned(&client), 0);
}

#[test]
fn a_pool_is_not_destroyed_while_its_size_is_asked_for() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[("GPUSHARE_MEMORY", "64MiB")]);
    client.ok("pool p 0 0");
    client.ok("pool-alloc a p 4096");
    client.ok("alloc-while-destroying b 4096 p");
    client.ok("alloc c 4096");
    assert_eq!(client.ok("odd-wrong"), [0]);
}

#[test]
fn a_pool_that_is_being_destroyed_is_not_taken_for_the_current_one() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[("GPUSHARE_MEMORY", "64MiB")]);
    client.ok("pool p 0 0");
    client.ok("pool-current p 0");
    client.ok("async a 4096");
    client.ok("pool-destroy-while-allocating p");
    client.ok("alloc b 4096");
    client.ok("async c 4096");
    client.ok("alloc d 4096");
    assert_eq!(client.ok("odd-wrong"), [0]);
}

#[test]
fn what_another_thread_frees_during_a_release_that_ends_no_context_is_uncharged() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok("alloc a 4096");
    client.ok("alloc b 512");
    client.ok("device-release-while-freeing 0 a");
    assert_eq!(client.used(), 512, "the context stays, and so does `b`");
    client.ok("free b");
    assert_eq!(client.used(), 0);
}

#[test]
fn a_graph_is_not_charged_for_memory_of_a_lost_capture_at_the_same_handle() {
    const STREAM_CAPTURE_INVALIDATED: u64 = 901;
    let bed = Testbed::new();
    for way in ["capture-end s g", "stream-destroy s", "context-destroy c"] {
        let mut client = Client::start_on_odd_driver(&bed, &[]);
        client.ok("context-current c");
        client.ok("stream s");
        client.ok("capture s");
        client.ok(&format!("capture-alloc a {MIB} s"));
        let code = client.code(way);
        assert!([0, STREAM_CAPTURE_INVALIDATED].contains(&code), "{way}");
        client.ok("stream t");
        client.ok("graph h");
        client.ok("graph-instantiate e h");
        client.ok("graph-launch e t");
        assert_eq!(client.used(), 0, "{way}");
    }
}

#[test]
fn a_sparse_array_is_charged_by_what_is_mapped_into_it() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok("array3d x 4096 4096 0 0x20 4 0x40");
    assert_eq!(client.used(), 0);
    for (tile, handle) in [(0, "h"), (64, "i")] {
        client.ok(&format!("create {handle} {MIB} 0"));
        client.ok(&format!("map-array x {tile} {handle}"));
        client.ok(&format!("release {handle}"));
    }
    assert_eq!(client.used(), 2 * MIB, "the tiles keep it");
    client.ok("unmap-array x 64");
    assert_eq!(client.used(), MIB);
    client.ok("array-destroy x");
    assert_eq!(client.used(), 0);
}

#[test]
fn external_memory_is_shown_as_imported() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok(&format!("external x {MIB}"));
    let imported = |client: &Client<'_>| client.process().devices[0].counters.imported_bytes;
    assert_eq!((client.used(), imported(&client)), (0, MIB));
    client.ok("external-destroy x");
    assert_eq!(imported(&client), 0);
}

#[test]
fn what_a_forked_child_frees_is_not_taken_off_its_parent() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok("alloc a 4096");
    client.ok("fork-free a");
    assert_eq!(client.used(), 4096);
    client.ok("free a");
    assert_eq!(client.used(), 0);
}
